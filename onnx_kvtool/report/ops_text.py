"""What `ops` knows of operators, in lines and tables for people."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from onnx_kvtool.report.blocks import Block, Grid, Line
from onnx_kvtool.targets.releases import releases

if TYPE_CHECKING:
    from onnx_kvtool.commands.ops_report import (
        AttributeEntry,
        LimitEntry,
        Operator,
        OpsReport,
        ParameterEntry,
        VersionEntry,
    )

__all__ = ["blocks"]

_HEADER = ("operator", "versions", "kernel", "lowering", "upgrade", "raising", "rules", "limits")


def blocks(report: OpsReport, *, in_full: bool) -> Iterator[Block]:
    """Yield all about each operator if `in_full`, else a line for each."""
    if in_full:
        for operator in report.operators:
            yield from _about(operator)
    else:
        yield Grid(_HEADER, tuple(map(_row, report.operators)))


def _row(operator: Operator) -> tuple[str, ...]:
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
    yield Grid(
        ("version", "inputs", "outputs", "attributes"), tuple(map(_shown, operator.versions))
    )
    yield Line("function body", "in the schema" if operator.function_body else "-")
    yield Line("kernels", _kernels(operator))
    yield from _table(
        "lowerings",
        ("rule", "to opsets below", "from version", "on request"),
        (
            (one.rule, str(one.below), str(one.reads), "yes" if one.removes else "-")
            for one in operator.lowerings
        ),
    )
    yield from _table(
        "upgrades",
        ("rule", "across opsets"),
        ((one.rule, _joined(one.across)) for one in operator.upgrades),
    )
    yield from _table(
        "raisings",
        ("pattern", "read off", "makes"),
        ((one.pattern, one.reads, one.makes) for one in operator.raisings),
    )
    yield from _table(
        "rules",
        ("code", "name", "severity", "what it finds"),
        ((one.code, one.name, one.severity, one.summary) for one in operator.rules),
    )
    yield from _table(
        "limits",
        ("limit", "runtime", "releases", "what they do"),
        ((one.name, one.runtime, _span(one), one.reason) for one in operator.limits),
    )


def _table(label: str, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[Block]:
    listed = tuple(rows)
    yield Line(label, str(len(listed)) if listed else "-")
    if listed:
        yield Grid(header, listed)


def _shown(version: VersionEntry) -> tuple[str, ...]:
    since = f"{version.since} (deprecated)" if version.deprecated else str(version.since)
    return (
        since,
        _joined(map(_parameter, version.inputs)),
        _joined(map(_parameter, version.outputs)),
        _joined(map(_attribute, version.attributes)),
    )


def _parameter(parameter: ParameterEntry) -> str:
    return (
        f"{parameter.name}{'?' if parameter.optional else ''}{'...' if parameter.variadic else ''}"
    )


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


def _span(limit: LimitEntry) -> str:
    """Return the releases as a range, or one by one if a known one between them is free of it."""
    known = [one.version for one in releases() if one.runtime == limit.runtime]
    first, last = limit.versions[0], limit.versions[-1]
    between = known[known.index(first) : known.index(last) + 1]
    if len(between) == 1 or tuple(between) != limit.versions:
        return ", ".join(limit.versions)
    return f"{first} to {last}"
