"""What an evaluation gave, in lines and tables for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from onnx_kvtool.core.words import counted
from onnx_kvtool.evaluation.report import EvalReport, TraceEntry, Update
from onnx_kvtool.evaluation.summary import Summary, type_facts
from onnx_kvtool.report import comparison
from onnx_kvtool.report.array_text import array_lines, excerpt, ranges
from onnx_kvtool.report.blocks import VERDICT_STYLES, Block, Grid, Line, named
from onnx_kvtool.runtime.kernels.kernel import Value

__all__ = ["blocks", "remarks"]


def blocks(report: EvalReport) -> Iterator[Block]:
    """Yield what was asked for: values, caches before and after, the trace, the comparison."""
    yield Line("ran", _headline(report))
    if not all(fact.given for fact in report.inputs):
        rows = tuple(
            (fact.name, str(fact), "given" if fact.given else "drawn") for fact in report.inputs
        )
        yield Grid(("input", "type", "value"), rows)
    for update in report.updates:
        yield from _update(update)
    shown = {name for update in report.updates for name in (update.before, update.after)}
    rest = [output for output in report.outputs if output.type.name not in shown]
    yield from _outputs(rest, report)
    if report.trace:
        yield from _trace(report)
    if report.comparison is not None:
        found = report.comparison
        text = f"{report.runtime}, compared with {found.runtime}"
        yield Line(found.status, text, VERDICT_STYLES[found.status])
        yield Grid(comparison.HEADER, tuple(comparison.output_rows(found.outputs)))


def remarks(report: EvalReport) -> Iterator[Block]:
    """Yield warnings, what onnx.reference ran, and where the values were written."""
    for warning in report.warnings:
        yield Line("warning", f"{warning.location}: {warning.message}", "yellow")
    if report.borrowed:
        counts = Counter(place.op or "" for place in report.borrowed)
        ops = ", ".join(f"{op} ({count})" for op, count in sorted(counts.items()))
        yield Line("note", f"onnx.reference runs what has no kernel here: {ops}")
    if report.saved is not None:
        yield Line("written", report.saved)


def _headline(report: EvalReport) -> str:
    if report.operator is not None:
        text = f"{report.operator} of opset {report.opset}"
    else:
        text = named(report.model or "")
    text += f" in {report.runtime}"
    if report.steps:
        text += f", then {counted(report.steps, 'decode step')}"
    return text if report.seed is None else f"{text}, seed {report.seed}"


def _update(update: Update) -> Iterator[Block]:
    """Yield a value before and after, with what changed marked."""
    marks = update.changed
    kind = ""
    if update.old is not None and marks is not None:
        kind = f"{type_facts(update.before, update.old)}, "
        yield Line(update.before, f"{kind}before")
        yield from array_lines(update.old, np.zeros_like(marks))
    text = f"{kind}after: {update.written:,} of {counted(update.elements, 'element')} changed"
    if update.written and update.indices:
        where = "; ".join(
            f"axis {axis}: {ranges(indices)}" for axis, indices in enumerate(update.indices)
        )
        text += f" (*), {where}"
    yield Line(update.after, text)
    if update.new is not None:
        yield from array_lines(update.new, marks)


def _outputs(outputs: list[Summary], report: EvalReport) -> Iterator[Block]:
    """Yield small values whole, and a table of the others."""
    large = []
    for output in outputs:
        value = report.values.get(output.type.name)
        if value is None and output.values is not None:  # read from JSON
            value = np.array(output.values, object)
        if output.items is not None:
            yield Line(output.type.name, str(output.type))
            yield from _items(output, value)
        elif output.values is None and output.type.dtype is not None:
            elements = excerpt(value) if isinstance(value, np.ndarray) else ""
            large.append((output.type.name, str(output.type), _range(output), elements))
        else:
            yield Line(output.type.name, _described(output))
            if isinstance(value, np.ndarray):
                yield from array_lines(value)
    if large:
        yield Grid(("output", "type", "range", "elements"), tuple(large))


def _items(output: Summary, value: Value) -> Iterator[Block]:
    assert output.items is not None
    values = value if isinstance(value, list) else [item.values for item in output.items]
    rows = tuple(
        (item.type.name, str(item.type), excerpt(np.asarray(v)) if v is not None else "")
        for item, v in zip(output.items, values, strict=True)
    )
    if rows:
        yield Grid(("element", "type", "elements"), rows)


def _described(output: Summary) -> str:
    extent = _range(output)
    return f"{output.type}, {extent}" if extent else str(output.type)


def _range(output: Summary) -> str:
    parts = []
    if output.min is not None:
        parts.append(f"{_number(output.min)} to {_number(output.max)}")
    if output.nan:
        parts.append(f"{output.nan} NaN")
    return ", ".join(parts)


def _number(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _trace(report: EvalReport) -> Iterator[Block]:
    """Yield a row per node that ran; graph, step and runtime only where they differ."""
    columns = [
        ("step", [str(entry.step) for entry in report.trace]),
        ("graph", [entry.location.graph for entry in report.trace]),
        ("node", [entry.location.node_label or "" for entry in report.trace]),
        ("operator", [entry.location.op or "" for entry in report.trace]),
        ("outputs", [_made(entry) for entry in report.trace]),
        ("ms", [f"{entry.seconds * 1e3:.3f}" for entry in report.trace]),
        ("by", [entry.runtime for entry in report.trace]),
    ]
    kept = [
        (title, cells)
        for title, cells in columns
        if title not in ("step", "graph", "by") or len(set(cells)) > 1
    ]
    rows = tuple(zip(*(cells for _, cells in kept), strict=True))
    yield Grid(tuple(title for title, _ in kept), rows)


def _made(entry: TraceEntry) -> str:
    return ", ".join(f"{fact.name}: {fact}" for fact in entry.outputs)
