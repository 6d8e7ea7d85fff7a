"""What an evaluation gave, in lines and tables for people."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_kvtool.core.words import counted
from onnx_kvtool.evaluation.report import EvalReport, Summary, Update, plain, type_facts
from onnx_kvtool.report.blocks import VERDICT_STYLES, Block, Grid, Line, Marked, named, runs
from onnx_kvtool.report.proof_text import outputs_table

# Arrays as lines of text, with the elements that matter marked.


_WHOLE = 1000
"""Most elements of an array that is shown whole."""

_EDGE = 3
"""Indices that are shown at either end of a longer axis."""

_MARKED = 8
"""Indices of an axis that are shown, beside its ends, because something there is marked."""

_MARK = "*"

Mask = npt.NDArray[np.bool_]


def array_lines(array: npt.NDArray[Any], marks: Mask | None = None) -> list[Marked]:
    """Return an array as nested brackets, a line for each row along its last axis.

    Args:
        array: Any dtype and shape. Of more than 1000 elements, the ends of each axis are shown and
            the first indices with a mark; `...` stands for the rest.
        marks: Elements that get a `*` in front and are highlighted; None for none.
    """
    if array.ndim == 0:
        mark = _MARK if marks is not None and bool(marks) else ""
        text = f"{mark}{_text(array[()])}"
        return [Marked(f"  {text}", ((2, 2 + len(text)),) if mark else ())]
    shown = [_shown(array, marks, axis) for axis in range(array.ndim)]
    cells = array[np.ix_(*[[i for i in axis if i is not None] for axis in shown])]
    width = max((len(_text(cell)) for cell in cells.ravel()), default=0)
    width += 0 if marks is None else len(_MARK)
    return _rows(array, marks, shown, width, "  ")


def excerpt(array: npt.NDArray[Any]) -> str:
    """Return the first and the last elements of an array in one line, in their order."""
    flat = array.ravel()
    if flat.size <= 2 * _EDGE:
        return " ".join(_text(element) for element in flat)
    first, last = ([_text(e) for e in part] for part in (flat[:_EDGE], flat[-_EDGE:]))
    return " ".join([*first, "...", *last])


def ranges(indices: Sequence[int]) -> str:
    """Return ascending indices as text: `0, 3-5`."""
    ends = (dict.fromkeys((run[0], run[-1])) for run in runs(indices))
    return ", ".join("-".join(map(str, each)) for each in ends)


def _shown(array: npt.NDArray[Any], marks: Mask | None, axis: int) -> list[int | None]:
    """Return the indices of an axis that are shown, None where some are left out."""
    size = array.shape[axis]
    if array.size <= _WHOLE or size <= 2 * _EDGE:
        return list(range(size))
    kept = {*range(_EDGE), *range(size - _EDGE, size)}
    if marks is not None:
        kept.update(np.unique(np.nonzero(marks)[axis])[:_MARKED].tolist())
    found: list[int | None] = []
    for index in sorted(kept):
        before = found[-1] if found else -1
        if before is not None and index != before + 1:
            found.append(None)
        found.append(index)
    return found


def _rows(
    array: npt.NDArray[Any],
    marks: Mask | None,
    shown: list[list[int | None]],
    width: int,
    before: str,
) -> list[Marked]:
    """Return the lines of an array with at least one axis; `before` stands before the first."""
    before += "["
    if array.ndim == 1:
        return [_row(array, marks, shown[0], width, before)]
    lines: list[Marked] = []
    for index in shown[0]:
        if index is None:
            lines.append(Marked(f"{before}..."))
            continue
        inner = None if marks is None else marks[index]
        lines += _rows(array[index], inner, shown[1:], width, before)
        before = " " * len(before)
    *most, last = lines or [Marked(before)]
    return [*most, Marked(f"{last.text}]", last.spans)]


def _row(
    array: npt.NDArray[Any], marks: Mask | None, shown: list[int | None], width: int, text: str
) -> Marked:
    spans = list[tuple[int, int]]()
    for place, index in enumerate(shown):
        text += " " if place else ""
        if index is None:
            text += "..."
            continue
        is_marked = marks is not None and bool(marks[index])
        cell = (_MARK if is_marked else "") + _text(array[index])
        if is_marked:
            spans.append((len(text) + width - len(cell), len(text) + width))
        text += cell.rjust(width)
    return Marked(f"{text}]", tuple(spans))


def _text(element: Any) -> str:
    """Return one element; a float with as many digits as it needs, but at most six."""
    return json.dumps(element) if isinstance(element, str) else _number(plain(element))


def blocks(report: EvalReport) -> Iterator[Block]:
    """Yield what was asked for: values, caches before and after, the trace, the comparison."""
    yield Line("ran", _headline(report))
    if not all(fact.given for fact in report.inputs):
        rows = ((i.name, str(i), "given" if i.given else "drawn") for i in report.inputs)
        yield Grid("input, type, value", rows)
    for update in report.updates:
        yield from _update(update)
    yield from _outputs(report)
    if report.trace:
        yield from _trace(report)
    if (found := report.comparison) is not None:
        text = f"{report.runtime}, compared with {found.runtime}"
        yield Line(found.status, text, VERDICT_STYLES[found.status])
        yield outputs_table(found.outputs)


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


def _outputs(report: EvalReport) -> Iterator[Block]:
    """Yield small values whole, and a table of the others; none that an update shows."""
    shown = {name for update in report.updates for name in (update.before, update.after)}
    large = []
    for output in report.outputs:
        name, kind = output.type.name, str(output.type)
        if name in shown:
            continue
        value = report.values.get(name)
        if value is None and output.values is not None:  # read from JSON
            value = np.array(output.values, object)
        if output.items is not None:
            yield Line(name, kind)
            values = value if isinstance(value, list) else [item.values for item in output.items]
            rows = [
                (item.type.name, str(item.type), excerpt(np.asarray(v)) if v is not None else "")
                for item, v in zip(output.items, values, strict=True)
            ]
            if rows:
                yield Grid("element, type, elements", rows)
        elif output.values is None and output.type.dtype is not None:
            elements = excerpt(value) if isinstance(value, np.ndarray) else ""
            large.append((name, kind, _range(output), elements))
        else:
            yield Line(name, ", ".join(filter(None, (kind, _range(output)))))
            if isinstance(value, np.ndarray):
                yield from array_lines(value)
    if large:
        yield Grid("output, type, range, elements", large)


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
    rows = [
        (
            str(entry.step),
            entry.location.graph,
            entry.location.node_label or "",
            entry.location.op or "",
            ", ".join(f"{fact.name}: {fact}" for fact in entry.outputs),
            f"{entry.seconds * 1e3:.3f}",
            entry.runtime,
        )
        for entry in report.trace
    ]
    columns = zip(["step", "graph", "node", "operator", "outputs", "ms", "by"], *rows, strict=True)
    kept = [c for c in columns if c[0] not in ("step", "graph", "by") or len({*c[1:]}) > 1]
    titles, *shown = zip(*kept, strict=True)
    yield Grid(titles, shown)
