"""Rules about references to external data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    from onnx_kvtool.core.location import Location
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["ReferenceRule", "more_tensors"]


class ReferenceRule(ModelRule):
    """A rule that hands on what is wrong with references to data files.

    Data files are looked up, never read.

    Attributes:
        problems: Codes of the problems of `core.files.references` that are meant.
        by_file: Whether one finding stands for all tensors of a file.
    """

    problems: ClassVar[frozenset[str]]
    by_file: ClassVar[bool]

    def check(self, context: Context) -> Iterator[Finding]:
        """Judge each reference."""
        from onnx_kvtool.core.files.references import ReferenceJudge

        judge = ReferenceJudge(need_bytes=True)
        files: dict[tuple[str, str], list[tuple[Location, str, str | None]]] = {}
        for place, tensor in context.external_tensors:
            problem = judge.judge(tensor)
            if problem is None or problem.code not in self.problems:
                continue
            if not self.by_file:
                yield self.found(place, problem.message, help=problem.help)
                continue
            key = (os.fspath(tensor.base_dir), os.fspath(tensor.location))
            files.setdefault(key, []).append((place, problem.message, problem.help))
        for entries in files.values():
            place, message, remedy = entries[0]
            yield self.found(place, message + more_tensors(len(entries)), help=remedy)


def more_tensors(count: int) -> str:
    """Return what a message about the first of several tensors says of the others."""
    return f" (so do {count - 1} more tensors)" if count > 1 else ""
