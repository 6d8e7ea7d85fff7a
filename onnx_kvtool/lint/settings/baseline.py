"""Fingerprints of findings, and baselines: findings that are known and not reported again."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import onnx_ir as ir

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.files.atomic import write_bytes
from onnx_kvtool.core.files.patient import patient
from onnx_kvtool.core.files.remote import is_remote
from onnx_kvtool.core.suggestion import missing_file_help
from onnx_kvtool.core.walk import step_path, subgraphs
from onnx_kvtool.lint.context import Context, Site
from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.lint.report import FileReport

__all__ = [
    "Baseline",
    "NewBaseline",
    "read_baseline",
    "with_fingerprints",
]

_VERSION = 1


class Baseline:
    """Fingerprints of known findings, by file.

    Args:
        files: The fingerprints of each file, by its path relative to `base`, with `/` in it.
        base: Absolute directory of the baseline file.
    """

    def __init__(self, files: Mapping[str, Iterable[str]], base: str) -> None:
        self._files = {path: frozenset(known) for path, known in files.items()}
        self._base = base

    def known(self, path: str) -> frozenset[str]:
        """Return the fingerprints of the known findings of a file."""
        return self._files.get(_relative(path, self._base), frozenset())


def read_baseline(path: str) -> Baseline:
    """Read a baseline file.

    Raises:
        UsageError: If it cannot be read, or is none.
    """
    try:
        with open(path, "rb", opener=patient) as file:
            data = json.load(file)
    except FileNotFoundError as error:
        make = f"make it with `--write-baseline {path}`"
        raise UsageError(
            f"the baseline `{path}` does not exist", help=missing_file_help(path, ".json") or make
        ) from error
    except OSError as error:
        raise UsageError(
            f"the baseline `{path}` cannot be read: {error.strerror or error}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"`{path}` is no baseline: it is no JSON") from error
    return Baseline(_files(path, data), os.path.dirname(os.path.abspath(path)))


def _files(path: str, data: Any) -> dict[str, list[str]]:
    if not isinstance(data, dict) or data.get("baseline_version") != _VERSION:
        raise UsageError(
            f"`{path}` is no baseline of version {_VERSION}", help="make it with `--write-baseline`"
        )
    files = {}
    try:
        for name, lines in data["files"].items():
            files[str(name)] = [str(line["fingerprint"]) for line in lines]
    except (AttributeError, KeyError, TypeError) as error:
        raise UsageError(
            f"`{path}` is no baseline: it holds no list of findings for each file",
            help="make it with `--write-baseline`",
        ) from error
    return files


class NewBaseline:
    """A baseline file that is to be written of all findings.

    Args:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._base = os.path.dirname(os.path.abspath(path))
        self._lines: dict[str, list[dict[str, str]]] = {}

    def add(self, file: FileReport) -> None:
        """Take in the findings of one file."""
        if file.findings:
            self._lines[_relative(file.path, self._base)] = [
                {"code": f.code, "fingerprint": f.fingerprint, "place": str(f.location)}
                for f in file.findings
            ]

    def write(self) -> int:
        """Write the file, and return how many findings it holds.

        Equal findings give equal bytes; each is a line of its own, so that a diff can be read.

        Raises:
            UnwritableOutput: If the system refuses.
        """
        data = {"baseline_version": _VERSION, "files": dict(sorted(self._lines.items()))}
        write_bytes(self._path, (json.dumps(data, indent=1) + "\n").encode())
        return sum(map(len, self._lines.values()))


def _relative(path: str, base: str) -> str:
    if path in ("", "-") or is_remote(path):
        return path
    try:
        return os.path.relpath(os.path.abspath(path), base).replace(os.sep, "/")
    except ValueError:  # another drive
        return os.path.abspath(path).replace(os.sep, "/")


_LENGTH = 32  # hexadecimal digits: 128 bits
_COUNTER = re.compile(r"_\d+|(?<=[A-Za-z#])\d+$|^\d+$")
"""Numbers that an exporter gives out in turn: `val_12`, `/layers.3/Add_7_output_0`, `n47`, `29`."""

_NUMBER = re.compile(r"(\d+)")


def with_fingerprints(findings: Sequence[Finding], context: Context) -> list[Finding]:
    """Return the findings with a fingerprint and an identity, both unique within the model.

    A fingerprint is made of the code and of the names around the place: those of graph, node and
    value. Positions do not count, so that it survives nodes that are added or sorted otherwise; an
    unnamed node goes by its operator and the name of its first output. An identity leaves out the
    numbers that an exporter gives out in turn as well, so that it survives another export. Findings
    of one code that cannot be told apart are numbered: for a fingerprint in the order of the
    findings, for an identity in that of the whole names.
    """
    places = _Places(context)
    names = [places.logical(finding) for finding in findings]
    fingerprints = _digests([(f.code, *n) for f, n in zip(findings, names, strict=True)])
    order = sorted(range(len(findings)), key=lambda place: tuple(map(_natural, names[place])))
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


def _natural(name: str) -> list[tuple[int, str]]:
    """Return what sorts `layer.2` before `layer.10`."""
    return [(int(part) if part.isdecimal() else -1, part) for part in _NUMBER.split(name)]


class _Places:
    """Names for places that hold no position; worked out when the first position is met."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._paths: dict[str, str] | None = None
        self._nodes: dict[tuple[str, int], ir.Node] = {}

    def logical(self, finding: Finding) -> tuple[str, str, str]:
        """Return graph, node and value of a finding as names."""
        place = finding.location
        unnamed = place.node is None and place.index is not None
        if unnamed or "#" in place.graph:
            self._look()
        graph = (self._paths or {}).get(place.graph, place.graph)
        label = place.node or ""
        if unnamed and (node := self._nodes.get((place.graph, place.index or 0))) is not None:
            label = _anchor(node)
        return graph, label, place.value or ""

    def _look(self) -> None:
        if self._paths is not None:
            return
        self._paths = {}
        for site in self._context.sites:
            self._nodes[site.path, site.index] = site.node
            if site.node.attributes.data:
                self._enter(site, self._paths)

    def _enter(self, site: Site, paths: dict[str, str]) -> None:
        node = site.node
        for name, _ in subgraphs(node):
            outer = paths.get(site.path, site.path)
            path = step_path(site.path, node.name, site.index, name)
            paths[path] = step_path(outer, node.name or _anchor(node), site.index, name)


def _anchor(node: ir.Node) -> str:
    """Return what an unnamed node goes by."""
    output = next((value.name for value in node.outputs if value.name), "")
    return f"{node.domain}::{node.op_type} -> {output}"
