"""Findings as one JSON object, with the header that every command shares."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from onnx_kvtool.core.record import plain
from onnx_kvtool.lint.report import FileReport
from onnx_kvtool.report.findings.writer import Writer
from onnx_kvtool.report.json import headed

__all__ = ["JsonWriter", "ListInParts"]

_INDENT = "  "


class ListInParts:
    """A list in a JSON text of two spaces of indentation, written item by item.

    Args:
        depth: How many brackets are open around the list.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._is_empty = True

    def items(self, items: Sequence[Any]) -> str:
        """Return some more items, with what stands in front of each."""
        text = ""
        for item in items:
            text += "[\n" if self._is_empty else ",\n"
            self._is_empty = False
            text += textwrap.indent(json.dumps(item, indent=2), _INDENT * (self._depth + 1))
        return text

    def end(self) -> str:
        """Return what ends the list, which may be empty."""
        return "[]" if self._is_empty else f"\n{_INDENT * self._depth}]"


class JsonWriter(Writer):
    """The report as the command-line contract fixes it; with `statistics`, with counts."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._files = ListInParts(1)

    def begin(self) -> str:
        """Return the header."""
        return headed("check", {}).removesuffix("\n}") + f',\n{_INDENT}"files": '

    def file(self, file: FileReport) -> str:
        """Return one file."""
        return self._files.items([file.to_json()])

    def end(self) -> Iterator[str]:
        """Yield the summary."""
        yield self._files.end()
        keys: dict[str, Any] = {
            "summary": self.tally.summary.to_json(),
            "fail_on": self.tally.fail_on,
            "notes": list(self.tally.notes),
        }
        if self.tally.shard is not None:
            keys["shard"] = self.tally.shard
        if self.statistics:
            keys["statistics"] = plain(self.tally.counts())
        yield "," + json.dumps(keys, indent=2).removeprefix("{") + "\n"
