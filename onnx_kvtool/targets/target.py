"""Releases of runtimes, as `runtimes.toml` describes them, and how a user names one."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal, cast

from onnx_kvtool.core.domains import is_onnxruntimes
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.suggestion import closest, unknown_name
from onnx_kvtool.core.table import Table

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["Evidence", "Limit", "Release", "Target", "find_target", "named_releases", "releases"]

Evidence = Literal["measured", "documented"]
Number = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Limit:
    """Nodes of one operator that a release lacks a kernel for, refuses, or computes wrongly.

    Attributes:
        name: Identifier, unique.
        operator: Operator of the default domain.
        when: Name of the condition that strikes the nodes which are meant.
        since: Lowest opset of a model in which it strikes; 0 where it always does.
        lower_opset: Whether the remedy is an opset below `since`, whose version has a kernel.
        types: Element types that are taken, where the condition asks for them.
        values: Attribute values that are meant, where the condition asks for them.
        behind: Operator of the node that it reads, where the condition asks for it.
        reason: What the release does; a clause that follows its name.
        help: What a user can do about it; None where nothing is known but another release.
        listed: Whether it is a line of `lacks` or `errs`, which say of an operator as a whole that
            the release does not compute it.
        evidence: Whether that was tried or read.
        source: Where it was tried or read.
    """

    name: str
    operator: str
    when: str
    since: int
    lower_opset: bool
    types: tuple[str, ...]
    values: tuple[int, ...]
    reason: str
    evidence: Evidence
    source: str
    help: str | None = None
    behind: str | None = None
    listed: bool = False


@dataclass(frozen=True, slots=True)
class Known:
    """What a release of onnxruntime knows of one of its operators.

    Attributes:
        inputs: How many inputs the operator takes; 0 where it is not known at all.
        without: Attributes that came later.
        values: Integer attributes of which these values alone have kernels.
        errs: Inputs with which it computes some forms wrongly, without a word.
    """

    inputs: int
    without: frozenset[str]
    values: Mapping[str, tuple[int, ...]]
    errs: frozenset[str]


@dataclass(frozen=True, slots=True)
class Release:
    """One release of a runtime.

    Attributes:
        runtime: Name of the runtime, in lower case.
        version: Version as the runtime writes it.
        min_opset: Lowest version of the default domain that it loads; None when not known.
        max_opset: Highest version of the default domain that it loads; None when not known.
        max_ir_version: Highest IR version that it loads; None when it has no limit that is known.
        evidence: Whether these versions were tried or read.
        source: Where they were tried or read.
        native: Newer operators that it has, as `<operator>-<since version>`.
        limits: What it lacks, refuses or computes wrongly within these versions.
        unsupported: Why nothing is written for it, a clause that follows its name; None where it is
            a target.
        bare: Whether shapes of inner values have to be left out: it takes them for facts, where
            exporters write several names for one dimension, and some that are stale.
        static: Why it is given models of fixed sizes only, a clause that follows its name; None
            where it takes symbolic dimensions.
        functions: Whether it calls functions of the model.
        explicit: Attributes (operator, name) that must not be written out, even at their default.
        contrib: Operators that ONNX does not define, of `com.microsoft` or put into the default
            domain, that it imports; None where all are, or nothing is known.
        narrower: Those of which it knows less than the newest onnxruntime, by name.
        notes: Remarks for people.
    """

    runtime: str
    version: str
    min_opset: int | None
    max_opset: int | None
    max_ir_version: int | None
    evidence: Evidence
    source: str
    native: tuple[str, ...]
    limits: tuple[Limit, ...]
    explicit: frozenset[tuple[str, str]]
    contrib: frozenset[str] | None
    notes: str
    unsupported: str | None = None
    bare: bool = False
    static: str | None = None
    functions: bool = True
    narrower: Mapping[str, Known] = field(default_factory=dict)

    @property
    def number(self) -> Number:
        """The version for comparison: (1, 17, 3)."""
        return tuple(int(part) for part in self.version.split("."))

    def imports(self, domain: str, op_type: str) -> bool:
        """Return whether it knows an operator that ONNX does not define.

        Of custom domains, whose operators come with plugins, nothing is known; those of
        onnxruntime's layouts are known to nobody else.
        """
        known = self.contrib
        if domain == "com.microsoft" and op_type in self.narrower:
            return self.narrower[op_type].inputs > 0
        if known is None:
            return True
        if domain in ("", "com.microsoft"):
            return op_type in known
        return not is_onnxruntimes(domain)

    def __str__(self) -> str:
        return f"{self.runtime} {self.version}"


@dataclass(frozen=True, slots=True)
class Target:
    """What a user asked for, and the release whose limits hold for it.

    Attributes:
        asked: The release as it was asked for: `onnxruntime 1.17.9`.
        release: A known release that is not newer; its highest opset is known.
        max_opset: That highest opset.
    """

    asked: str
    release: Release
    max_opset: int

    @property
    def is_known(self) -> bool:
        """Whether the release that was asked for is itself known."""
        return self.asked == str(self.release)


def find_target(text: str) -> Target:
    """Return what `RUNTIME[@VERSION]` names.

    Without a version it is the newest known release. A version with fewer parts than the known ones
    (`1.17`) is the lowest known one that begins so; any other that is not known has the limits of
    the next lower known one. So has a known one whose highest opset is not known.

    Raises:
        UsageError: If the runtime is not known, if the version is no version, if it is below all
            that are known, or if nothing can be written for the release.
    """
    known, version = _named(text)
    if version is None:
        return _target(known[-1], known, str(known[-1]))
    meant, asked = _meant(known, version)
    return _target(meant, known, asked)


def named_releases(text: str | None) -> tuple[Release, ...]:
    """Return all releases of a runtime, or the one that `RUNTIME@VERSION` names; None names all.

    Raises:
        UsageError: If the runtime is not known, if the version is no version, or if it is below all
            that are known.
    """
    if text is None:
        return releases()
    known, version = _named(text)
    return tuple(known) if version is None else (_meant(known, version)[0],)


def _named(text: str) -> tuple[list[Release], str | None]:
    """Return the releases of the runtime that is named, and the version if one is."""
    name, at, version = text.partition("@")
    known = [r for r in releases() if r.runtime == name.strip().lower()]
    if not known:
        raise _unknown_runtime(name)
    return known, version if at else None


def _meant(known: list[Release], version: str) -> tuple[Release, str]:
    """Return the release whose limits a version has, and what it is called."""
    runtime = known[0].runtime
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9}){0,5}", version):
        raise UsageError(
            f"`{version}` is no version, expected numbers with dots between them",
            help=f"write it like `{runtime}@{known[-1].version}`",
        )
    wanted = tuple(int(part) for part in version.split("."))
    meant = next((r for r in known if r.number[: len(wanted)] == wanted), None)
    if meant is not None:
        return meant, str(meant)
    lower = [r for r in known if r.number <= wanted]
    if not lower:
        raise UsageError(
            f"{runtime} {version} is older than all that kvtool knows; the oldest is "
            f"{known[0].version}",
            help=f"use `{runtime}@{known[0].version}`, or choose the opset with `--opset`",
        )
    return lower[-1], f"{runtime} {version}"


def _target(release: Release, known: list[Release], asked: str) -> Target:
    """Step down to a release whose highest opset is known; the lowest of each runtime has one."""
    if release.unsupported is not None:
        later = next(
            (r for r in known if r.unsupported is None and r.number > release.number), None
        )
        raise UsageError(
            f"nothing can be lowered for {asked}: it {release.unsupported}",
            help=None if later is None else f"use `{later.runtime}@{later.version}`",
        )
    for candidate in reversed(known[: known.index(release) + 1]):
        if candidate.max_opset is not None and candidate.unsupported is None:
            return Target(asked, candidate, candidate.max_opset)
    raise ValueError(f"runtimes.toml gives the lowest release of {release.runtime} no max_opset")


def _unknown_runtime(name: str) -> UsageError:
    runtimes = list(dict.fromkeys(r.runtime for r in releases()))
    message = f"kvtool knows no runtime `{name}`"
    spelt = [f"{r.runtime}@{r.version}" for r in releases()] if re.search("[0-9]", name) else []
    near = closest(name.strip(), [*spelt, *runtimes])
    if near is None:
        return unknown_name(message, name, runtimes)
    return UsageError(message, help=f"did you mean `{near}`?")


@cache
def releases() -> tuple[Release, ...]:
    """Return every known release, runtime by runtime, each in ascending order."""
    text = files("onnx_kvtool.targets").joinpath("runtimes.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    limits = Table("limit", ((line["name"], _limit(line)) for line in data["limit"]))
    lines = [_release(line, limits, data["contrib"]) for line in data["release"]]
    return tuple(Table("release", ((str(release), release) for release in lines)).values())


def _limit(line: Mapping[str, Any]) -> Limit:
    return Limit(
        name=line["name"],
        operator=line["operator"],
        when=line["when"],
        since=line.get("since", 0),
        lower_opset=line.get("lower_opset", False),
        types=tuple(line.get("types", ())),
        values=tuple(line.get("values", ())),
        reason=line["reason"],
        evidence=_evidence(line),
        source=line["source"],
        help=line.get("help"),
        behind=line.get("behind"),
    )


def _whole(line: Mapping[str, Any], key: str, operator: str, reason: str) -> Limit:
    """Return the limit that a release does not compute an operator at all."""
    source = f"onnx's backend cases in {line['runtime']} {line['version']}"
    name, evidence = f"{key}-{operator}", _evidence(line)
    return Limit(name, operator, "always", 0, False, (), (), reason, evidence, source, listed=True)


def _known(line: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> dict[str, Known]:
    """Return what a release knows of operators to which onnxruntime added something."""
    found: dict[str, Known] = {}
    for step in steps:
        if step["runtime"] == line.get("kernels", line["runtime"]) and _number(step) <= _number(
            line
        ):
            values = {name: tuple(these) for name, these in step.get("values", {}).items()}
            without, errs = frozenset(step.get("without", ())), frozenset(step.get("errs", ()))
            found[step["operator"]] = Known(step["inputs"], without, values, errs)
    return found


def _number(line: Mapping[str, Any]) -> Number:
    return tuple(int(part) for part in line["version"].split("."))


def _release(
    line: Mapping[str, Any], limits: Mapping[str, Limit], steps: Sequence[Mapping[str, Any]]
) -> Release:
    explicit = [attribute.partition(".") for attribute in line.get("explicit", ())]
    lacks = [_whole(line, "lacks", op, f"computes no {op}") for op in line.get("lacks", ())]
    errs = [
        _whole(line, "errs", op, f"computes some forms of {op} wrongly")
        for op in line.get("errs", ())
    ]
    return Release(
        runtime=line["runtime"],
        version=line["version"],
        min_opset=line.get("min_opset"),
        max_opset=line.get("max_opset"),
        max_ir_version=line.get("max_ir_version"),
        evidence=_evidence(line),
        source=line["source"],
        native=tuple(line["native"]),
        limits=(*(limits[name] for name in line.get("limits", ())), *lacks, *errs),
        explicit=frozenset((operator, name) for operator, _, name in explicit),
        contrib=frozenset(line["contrib"]) if "contrib" in line else None,
        notes=line["notes"],
        unsupported=line.get("unsupported"),
        bare=line.get("bare", False),
        static=line.get("static"),
        functions=line.get("functions", True),
        narrower=_known(line, steps),
    )


def _evidence(line: Mapping[str, Any]) -> Evidence:
    evidence = line["evidence"]
    if evidence not in ("measured", "documented"):
        raise ValueError(f"runtimes.toml says `{evidence}`, expected `measured` or `documented`")
    return cast(Evidence, evidence)
