"""What `infer` found, in lines and tables for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnx_kvtool.core.words import counted
from onnx_kvtool.report.blocks import Block, Grid, Line, named
from onnx_kvtool.shapes.report import InferReport, UnknownValue
from onnx_kvtool.symbolic.knowledge import Conflict

__all__ = ["blocks"]

_MOST_FOLLOWERS = 3
"""Most values that are named as lost with the first one."""


def blocks(report: InferReport) -> Iterator[Block]:
    """Yield the report: the counts, conflicts, what is unknown by its first cause, equalities."""
    yield Line(
        "inferred",
        f"{named(report.model)}, {report.known_after} of {counted(report.values, 'value')} known, "
        f"{report.known_before} by the file alone",
    )
    for conflict in report.conflicts:
        yield from _conflict(conflict)
    if report.unknown:
        yield Line("unknown", str(len(report.unknown)))
        yield _unknown(report.unknown)
    if report.equalities:
        yield Line("equal sizes", str(len(report.equalities)))
        yield Grid(
            ("name", "equals", "because of", "at"),
            tuple((e.name, e.equals, e.why, str(e.location)) for e in report.equalities),
        )
    for note in report.notes:
        yield Line("note", note)
    if report.output is not None:
        target = "standard output" if report.output == "-" else report.output
        yield Line("written", target)


def _conflict(conflict: Conflict) -> Iterator[Block]:
    yield Line("conflict", f"{conflict.code}: {conflict.location}: {conflict.message}", "bold red")
    if len(conflict.chain) > 1:
        yield Line("  way", " -> ".join(conflict.chain))


def _unknown(unknown: Sequence[UnknownValue]) -> Grid:
    """Return a row for each first cause, with the values that were lost by it."""
    groups: dict[tuple[str, str], list[UnknownValue]] = {}
    for value in unknown:
        lost = value.lost
        groups.setdefault((str(lost.location), lost.why), []).append(value)
    rows = []
    for (place, why), values in groups.items():
        names = [value.location.value or "" for value in values]
        shown = ", ".join(names[:_MOST_FOLLOWERS])
        rest = len(names) - _MOST_FOLLOWERS
        rows.append((place, why, f"{shown} and {rest} more" if rest > 0 else shown))
    return Grid(("lost first at", "why", "unknown values"), tuple(rows))
