"""What `infer`, `ops` and `targets` know, in lines and tables for people."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from onnx_kvtool.core.words import counted
from onnx_kvtool.report.blocks import Block, Grid, Line, groups_alike, named, shortened
from onnx_kvtool.targets.releases import releases

if TYPE_CHECKING:
    from onnx_kvtool.commands.ops import (
        AttributeEntry,
        Operator,
        OpsReport,
        ParameterEntry,
        VersionEntry,
    )
    from onnx_kvtool.commands.targets import TargetsReport
    from onnx_kvtool.shapes.inference import InferReport, UnknownValue
    from onnx_kvtool.targets.release import Limit, Release


# What `infer` found, in lines and tables for people.


_MOST_FOLLOWERS = 3
"""Most values that are named as lost with the first one."""


def infer_blocks(report: InferReport) -> Iterator[Block]:
    """Yield the report: the counts, conflicts, what is unknown by its first cause, equalities."""
    yield Line(
        "inferred",
        f"{named(report.model)}, {report.known_after} of {counted(report.values, 'value')} known, "
        f"{report.known_before} by the file alone",
    )
    for one in report.conflicts:
        yield Line("conflict", f"{one.code}: {one.location}: {one.message}", "bold red")
        if len(one.chain) > 1:
            yield Line("  way", " -> ".join(one.chain))
    if report.unknown:
        yield Line("unknown", str(len(report.unknown)))
        yield _unknown(report.unknown)
    if report.equalities:
        yield Line("equal sizes", str(len(report.equalities)))
        rows = ((e.name, e.equals, e.why, str(e.location)) for e in report.equalities)
        yield Grid("name, equals, because of, at", rows)
    for note in report.notes:
        yield Line("note", note)
    if report.output is not None:
        target = "standard output" if report.output == "-" else report.output
        yield Line("written", target)


def _unknown(unknown: Sequence[UnknownValue]) -> Grid:
    """Return a row for each first cause, with the values that were lost by it."""
    rows = []
    for values in groups_alike(unknown, lambda value: (str(value.lost.location), value.lost.why)):
        names = [value.location.value or "" for value in values]
        first = values[0].lost
        rows.append((str(first.location), first.why, shortened(names, _MOST_FOLLOWERS)))
    return Grid("lost first at, why, unknown values", rows)


# What `ops` knows of operators, in lines and tables for people.


def ops_blocks(report: OpsReport, *, in_full: bool) -> Iterator[Block]:
    """Yield all about each operator if `in_full`, else a line for each."""
    if in_full:
        for operator in report.operators:
            yield from _about(operator)
    else:
        titles = "operator, versions, kernel, lowering, upgrade, raising, rules, limits"
        yield Grid(titles, map(_ops_row, report.operators))


def _ops_row(operator: Operator) -> tuple[str, ...]:
    return (
        operator.op,
        _joined(version.since for version in operator.versions),
        _joined(kernel.since for kernel in operator.kernels),
        _joined(lowering.rule for lowering in operator.lowerings),
        _joined(upgrade.rule for upgrade in operator.upgrades),
        _joined(raising.pattern for raising in operator.raisings),
        str(len(operator.rules) or "-"),
        str(len(operator.limits) or "-"),
    )


def _joined(items: Iterable[object]) -> str:
    return ", ".join(map(str, items)) or "-"


def _about(operator: Operator) -> Iterator[Block]:
    yield Line("operator", operator.op)
    yield Line("versions", _joined(version.since for version in operator.versions))
    yield Grid("version, inputs, outputs, attributes", map(_shown, operator.versions))
    yield Line("function body", "in the schema" if operator.function_body else "-")
    yield Line("kernels", _kernels(operator))
    yield from _table(
        "lowerings",
        "rule, to opsets below, from version, on request",
        (
            (one.rule, str(one.below), str(one.reads), "yes" if one.removes else "-")
            for one in operator.lowerings
        ),
    )
    yield from _table(
        "upgrades",
        "rule, across opsets",
        ((one.rule, _joined(one.across)) for one in operator.upgrades),
    )
    yield from _table(
        "raisings",
        "pattern, read off, makes",
        ((one.pattern, one.reads, one.makes) for one in operator.raisings),
    )
    yield from _table(
        "rules",
        "code, name, severity, what it finds",
        ((one.code, one.name, one.severity, one.summary) for one in operator.rules),
    )
    yield from _table(
        "limits",
        "limit, runtime, releases, what they do",
        (
            (one.name, one.runtime, _span(one.runtime, one.versions), one.reason)
            for one in operator.limits
        ),
    )


def _table(label: str, titles: str, rows: Iterable[tuple[str, ...]]) -> Iterator[Block]:
    grid = Grid(titles, rows)
    yield Line(label, str(len(grid.rows) or "-"))
    if grid.rows:
        yield grid


def _shown(version: VersionEntry) -> tuple[str, ...]:
    since = f"{version.since} (deprecated)" if version.deprecated else str(version.since)
    return (
        since,
        _joined(map(_parameter, version.inputs)),
        _joined(map(_parameter, version.outputs)),
        _joined(map(_attribute, version.attributes)),
    )


def _parameter(parameter: ParameterEntry) -> str:
    return f"{parameter.name}{'?' * parameter.optional}{'...' * parameter.variadic}"


def _attribute(attribute: AttributeEntry) -> str:
    if attribute.required:
        return f"{attribute.name} (required)"
    if attribute.default is None:
        return attribute.name
    default = attribute.default
    return f"{attribute.name}={default if isinstance(default, str) else json.dumps(default)}"


def _kernels(operator: Operator) -> str:
    if not operator.kernels:
        return "none of kvtool; onnx's reference implementation runs it"
    begins = [kernel.since for kernel in operator.kernels]
    spans = [f"{begin} to {end - 1}" for begin, end in itertools.pairwise(begins)]
    text = f"version {_joined([*spans, f'{begins[-1]} on'])}"
    shared = sorted({kernel.in_place for kernel in operator.kernels if kernel.in_place})
    return f"{text}; may write into {_joined(f'`{name}`' for name in shared)}" if shared else text


def _span(runtime: str, versions: Sequence[str]) -> str:
    """Return versions as a range, or one by one if a known release between them has no limit."""
    shown = [release.version for release in releases() if release.runtime == runtime]
    first, last = versions[0], versions[-1]
    between = shown[shown.index(first) : shown.index(last) + 1]
    is_range = len(versions) > 1 and len(between) == len(versions)
    return f"{first} to {last}" if is_range else ", ".join(versions)


# What `targets` knows of releases, in lines and tables for people.


def targets_blocks(report: TargetsReport, *, in_full: bool) -> Iterator[Block]:
    """Yield a line for each release, and if `in_full` what its limits mean.

    Args:
        report: The releases; if `in_full`, of one runtime.
        in_full: Whether limits are explained; they are counted anyway.
    """
    titles = "runtime, version, opset, IR version, evidence, limits"
    yield Grid(titles, map(_targets_row, report.targets))
    if not in_full:
        return
    found: dict[str, tuple[Limit, list[str]]] = {}
    for release in report.targets:
        for limit in release.limits:
            found.setdefault(limit.name, (limit, []))[1].append(release.version)
    told = [(limit, versions) for limit, versions in found.values() if not limit.listed]
    if told:
        yield Line("limits", str(len(told)))
        runtime = report.targets[0].runtime
        rows = (
            (limit.name, limit.operator, _span(runtime, versions), _meaning(limit))
            for limit, versions in sorted(told, key=lambda one: one[0].operator)
        )
        yield Grid("limit, operator, releases, what they do", rows)
    for release in report.targets:
        yield from _wholes(release)


def _targets_row(release: Release) -> tuple[str, ...]:
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


def _meaning(limit: Limit) -> str:
    since = f" from opset {limit.since} on" if limit.since and "opset" not in limit.reason else ""
    if limit.before:
        since += f" before opset {limit.before}"
    remedy = f"; {limit.help}" if limit.help else ""
    return f"{limit.reason}{since}{remedy}"


def _wholes(release: Release) -> Iterator[Line]:
    """Yield the facts of a whole release: operators, evidence, remarks."""
    if release.unsupported:
        yield Line(f"{release} is no target", f"it {release.unsupported}")
    for kind, text in (
        ("lacks-", "does not compute"),
        ("errs-", "computes wrongly in some forms"),
        ("constants-", "takes as constants only"),
    ):
        limits = [limit for limit in release.limits if limit.name.startswith(kind)]
        names = [f"{one.operator}.{one.operand}" if one.operand else one.operator for one in limits]
        if names:
            yield Line(f"{release} {text}", ", ".join(names))
    if release.types:
        yield Line(f"{release} takes values of these types only", ", ".join(sorted(release.types)))
