"""What `targets` knows of releases, in lines and tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from onnx_kvtool.report.blocks import Block, Grid, Line

if TYPE_CHECKING:
    from onnx_kvtool.targets.release import Limit, Release

__all__ = ["blocks"]

_HEADER = ("runtime", "version", "opset", "IR version", "evidence", "limits")
_LIMITS = ("limit", "operator", "releases", "what they do")


def blocks(releases: Sequence[Release], *, in_full: bool) -> Iterator[Block]:
    """Yield a line for each release, and if `in_full` what its limits mean.

    Args:
        releases: Those that are shown; if `in_full`, of one runtime.
        in_full: Whether limits are told in words; they are counted anyway.
    """
    yield Grid(_HEADER, tuple(map(_row, releases)))
    if not in_full:
        return
    found: dict[str, tuple[Limit, list[str]]] = {}
    for release in releases:
        for limit in release.limits:
            found.setdefault(limit.name, (limit, []))[1].append(release.version)
    told = [(limit, versions) for limit, versions in found.values() if not limit.listed]
    if told:
        yield Line("limits", str(len(told)))
        rows = (
            (limit.name, limit.operator, _span(versions, releases), _meaning(limit))
            for limit, versions in sorted(told, key=lambda one: one[0].operator)
        )
        yield Grid(_LIMITS, tuple(rows))
    for release in releases:
        yield from _wholes(release)


def _row(release: Release) -> tuple[str, ...]:
    return (
        release.runtime,
        release.version,
        "none" if release.unsupported else _known(release.max_opset),
        _known(release.max_ir_version),
        release.evidence,
        str(len(release.limits) or "-"),
    )


def _known(version: int | None) -> str:
    return "-" if version is None else str(version)


def _span(versions: list[str], releases: Sequence[Release]) -> str:
    """Return versions as a range, or one by one if one between them is free of the limit."""
    shown = [release.version for release in releases]
    first, last = shown.index(versions[0]), shown.index(versions[-1])
    if len(versions) > 1 and last - first + 1 == len(versions):
        return f"{versions[0]} to {versions[-1]}"
    return ", ".join(versions)


def _meaning(limit: Limit) -> str:
    since = f" from opset {limit.since} on" if limit.since and "opset" not in limit.reason else ""
    if limit.before:
        since += f" before opset {limit.before}"
    remedy = f"; {limit.help}" if limit.help else ""
    return f"{limit.reason}{since}{remedy}"


def _wholes(release: Release) -> Iterator[Line]:
    """Yield what a release is told of as a whole: operators, its evidence, remarks."""
    if release.unsupported:
        yield Line(f"{release} is no target", f"it {release.unsupported}")
    constants = [limit for limit in release.limits if limit.name.startswith("constants-")]
    lacks = [limit.operator for limit in release.limits if limit.name.startswith("lacks-")]
    errs = [limit.operator for limit in release.limits if limit.name.startswith("errs-")]
    if lacks:
        yield Line(f"{release} does not compute", ", ".join(lacks))
    if errs:
        yield Line(f"{release} computes wrongly in some forms", ", ".join(errs))
    if constants:
        names = (f"{one.operator}.{one.operand}" for one in constants)
        yield Line(f"{release} takes as constants only", ", ".join(names))
    if release.types:
        yield Line(f"{release} takes values of these types only", ", ".join(sorted(release.types)))
