"""Fingerprints of findings, and baselines: findings that are known and not reported again."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.walk import step_path, subgraphs
from onnx_kvtool.lint.context import Context
from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.lint.report import FileReport, Known
from onnx_kvtool.lint.settings.config import file_content, relative_path
from onnx_kvtool.model_io.atomic import write_bytes
from onnx_kvtool.model_io.remote import is_remote
from onnx_kvtool.model_io.sorting import natural
from onnx_kvtool.model_io.stored import file_digest

_VERSION = 1


@dataclass(frozen=True)
class Baseline:
    """Known findings, by file.

    Attributes:
        path: The baseline file.
        files: The findings of each file, by its path relative to the baseline file, with `/` in it.
        contents: The digest of each file when the baseline was written.
    """

    path: str
    files: dict[str, Sequence[Known]] = field(default_factory=dict)
    contents: dict[str, str] = field(default_factory=dict)

    @property
    def base(self) -> str:
        """Absolute directory of the baseline file."""
        return os.path.dirname(os.path.abspath(self.path))

    def known(self, path: str) -> frozenset[str]:
        """Return the fingerprints of the known findings of a file."""
        return frozenset(one.fingerprint for one in self._of(path))

    def stale(self, path: str, found: Collection[str], codes: Collection[str]) -> tuple[Known, ...]:
        """Return the known findings of a file that rules looked for and did not find."""
        return tuple(
            one for one in self._of(path) if one.code in codes and one.fingerprint not in found
        )

    def _of(self, path: str) -> Sequence[Known]:
        return self.files.get(_relative(path, self.base), ())

    def gone(self, paths: Iterable[str]) -> list[str]:
        """Return the files of the baseline that no longer exist, by their names in it."""
        inside = [os.path.join(os.path.abspath(path), "") for path in paths]
        return [
            name
            for name in self.files
            if not self._is_there(name) and self._place(name).startswith(tuple(inside))
        ]

    def _place(self, name: str) -> str:
        return os.path.normpath(os.path.join(self.base, name))

    def _is_there(self, name: str) -> bool:
        return name in ("", "-") or is_remote(name) or os.path.lexists(self._place(name))

    def renamed(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the former name of each file that has the content of a file that is gone.

        If files of the baseline are gone, the given files that it does not know are read.
        """
        lost = {
            content: name
            for name, content in self.contents.items()
            if name in self.files and not self._is_there(name)
        }
        new = [path for path in paths if _is_file(path) and not self._of(path)] if lost else []
        found = {path: file_digest(path) for path in new}
        return {path: lost[content] for path, content in found.items() if content in lost}

    def with_names(self, renamed: Mapping[str, str]) -> Baseline:
        """Return the baseline with new names for some of its files; see `renamed`."""
        files, contents = dict(self.files), dict(self.contents)
        for path, name in renamed.items():
            new = _relative(path, self.base)
            files[new], contents[new] = self.files[name], self.contents[name]
        for name in set(renamed.values()):
            del files[name], contents[name]
        return replace(self, files=files, contents=contents)

    def without(self, stale: Mapping[str, Collection[Known]], gone: Collection[str]) -> Baseline:
        """Return the baseline without some findings of files, and without some files."""
        dropped = {_relative(path, self.base): set(each) for path, each in stale.items()}
        left = {
            name: [one for one in each if one not in dropped.get(name, ())]
            for name, each in self.files.items()
            if name not in gone
        }
        return replace(self, files={name: each for name, each in left.items() if each})

    def add(self, file: FileReport) -> None:
        """Take in the findings of one file."""
        if not file.findings:
            return
        name = _relative(file.path, self.base)
        self.files[name] = [Known(f.code, f.fingerprint, str(f.location)) for f in file.findings]
        if _is_file(file.path) and (content := file_digest(file.path)) is not None:
            self.contents[name] = content

    def write(self) -> int:
        """Write the file, and return the number of its findings.

        Equal findings give equal bytes; each has its own line, so that diffs are readable.

        Raises:
            UnwritableOutput: If the system refuses.
        """
        names = sorted(self.files)
        data = {
            "baseline_version": _VERSION,
            "files": {name: [one.to_json() for one in self.files[name]] for name in names},
            "contents": {name: self.contents[name] for name in names if name in self.contents},
        }
        write_bytes(self.path, (json.dumps(data, indent=1) + "\n").encode())
        return sum(map(len, self.files.values()))


def read_baseline(path: str) -> Baseline:
    """Read a baseline file.

    Raises:
        UsageError: If it cannot be read, or is no baseline.
    """
    make = f"make it with `--write-baseline {path}`"
    content = file_content(path, ".json", "the baseline ", make)
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"`{path}` is no baseline: it is no JSON") from error
    if not isinstance(data, dict) or data.get("baseline_version") != _VERSION:
        raise UsageError(
            f"`{path}` is no baseline of version {_VERSION}", help="make it with `--write-baseline`"
        )
    try:
        files: dict[str, Sequence[Known]] = {
            str(name): [
                Known(str(line.get("code")), str(line["fingerprint"]), str(line.get("place", "")))
                for line in lines
            ]
            for name, lines in data["files"].items()
        }
        contents = {str(name): str(held) for name, held in data.get("contents", {}).items()}
    except (AttributeError, KeyError, TypeError) as error:
        raise UsageError(
            f"`{path}` is no baseline: it has no list of findings for each file",
            help="make it with `--write-baseline`",
        ) from error
    return Baseline(path, files, contents)


def _is_file(path: str) -> bool:
    return path not in ("", "-") and not is_remote(path)


def _relative(path: str, base: str) -> str:
    if not _is_file(path):
        return path
    return relative_path(path, base) or os.path.abspath(path).replace(os.sep, "/")


_LENGTH = 32  # hexadecimal digits: 128 bits
_COUNTER = re.compile(r"_\d+|(?<=[A-Za-z#])\d+$|^\d+$")
"""Numbers that an exporter counts up: `val_12`, `/layers.3/Add_7_output_0`, `n47`, `29`."""


def with_fingerprints(findings: Sequence[Finding], context: Context) -> list[Finding]:
    """Return the findings with a fingerprint and an identity, both unique within the model.

    A fingerprint consists of the code and the names of graph, node and value. Positions do not
    count, so it survives new nodes and another order; an unnamed node goes by its operator and the
    name of its first output. An identity also leaves out the numbers that an exporter counts up, so
    it survives another export. Findings of one code that are otherwise equal are numbered: for a
    fingerprint in the order of the findings, for an identity in the order of the full names.
    """
    names = list(_logical(findings, context))
    fingerprints = _digests([(f.code, *n) for f, n in zip(findings, names, strict=True)])
    order = sorted(range(len(findings)), key=lambda place: tuple(map(natural, names[place])))
    alike = [
        (findings[i].code, findings[i].location.op or "", *(_COUNTER.sub("", n) for n in names[i]))
        for i in order
    ]
    identities = dict(zip(order, _digests(alike), strict=True))
    return [
        replace(finding, fingerprint=fingerprints[place], identity=identities[place])
        for place, finding in enumerate(findings)
    ]


def _digests(keys: Sequence[tuple[str, ...]]) -> list[str]:
    """Return a text for each key, in order; equal keys are numbered."""
    counts: Counter[tuple[str, ...]] = Counter()
    digests = []
    for key in keys:
        counts[key] += 1
        text = "\0".join((*key, str(counts[key])))
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        digests.append(digest[:_LENGTH])
    return digests


def _logical(findings: Sequence[Finding], context: Context) -> Iterator[tuple[str, str, str]]:
    """Yield graph, node and value of each finding as names, without positions."""
    places = [finding.location for finding in findings]
    paths: dict[str, str] = {}
    nodes: dict[tuple[str, int | None], ir.Node] = {}
    if any("#" in p.graph or (p.node is None and p.index is not None) for p in places):
        for site in context.sites:
            nodes[site.path, site.index] = owner = site.node
            outer = paths.get(site.path, site.path)
            for name, _ in subgraphs(owner) if owner.attributes.data else ():
                path = step_path(site.path, owner.name, site.index, name)
                paths[path] = step_path(outer, owner.name or _anchor(owner), site.index, name)
    for place in places:
        node = nodes.get((place.graph, place.index)) if place.node is None else None
        label = _anchor(node) if node is not None else place.node or ""
        yield paths.get(place.graph, place.graph), label, place.value or ""


def _anchor(node: ir.Node) -> str:
    """Return the stand-in for the name of an unnamed node."""
    output = next((value.name for value in node.outputs if value.name), "")
    return f"{node.domain}::{node.op_type} -> {output}"
