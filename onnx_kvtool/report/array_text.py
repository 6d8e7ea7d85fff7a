"""Arrays as lines of text, with the elements that matter marked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_kvtool.evaluation.summary import plain
from onnx_kvtool.report.blocks import Marked

__all__ = ["array_lines", "excerpt", "ranges"]

_WHOLE = 1000
"""Elements up to which all of an array is shown."""

_EDGE = 3
"""Indices that are shown at either end of a longer axis."""

_MARKED = 8
"""Indices of an axis that are shown, beside its ends, because something there is marked."""

_MARK = "*"

Mask = npt.NDArray[np.bool_]
Piece = tuple[str, tuple[tuple[int, int], ...]]


def array_lines(array: npt.NDArray[Any], marks: Mask | None = None) -> list[Marked]:
    """Return an array as nested brackets, a line for each row along its last axis.

    Args:
        array: Any dtype and shape. Of more than 1000 elements, the ends of each axis are shown and
            the first indices at which something is marked; `...` stands for the rest.
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
    rows = _rows(array, marks, shown, width)
    return [Marked(f"  {text}", tuple((b + 2, e + 2) for b, e in spans)) for text, spans in rows]


def excerpt(array: npt.NDArray[Any]) -> str:
    """Return the first and the last elements of an array in one line, in their order."""
    flat = array.ravel()
    if flat.size <= 2 * _EDGE:
        return " ".join(_text(element) for element in flat)
    first, last = ([_text(e) for e in part] for part in (flat[:_EDGE], flat[-_EDGE:]))
    return " ".join([*first, "...", *last])


def ranges(indices: Sequence[int]) -> str:
    """Return ascending indices as text: `0, 3-5`."""
    parts: list[list[int]] = []
    for index in indices:
        if parts and parts[-1][-1] == index - 1:
            parts[-1] = [parts[-1][0], index]
        else:
            parts.append([index])
    return ", ".join("-".join(map(str, part)) for part in parts)


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
    array: npt.NDArray[Any], marks: Mask | None, shown: list[list[int | None]], width: int
) -> list[Piece]:
    """Return the lines of an array with at least one axis."""
    if array.ndim == 1:
        return [_row(array, marks, shown[0], width)]
    lines: list[Piece] = []
    for index in shown[0]:
        if index is None:
            lines.append(("...", ()))
            continue
        inner = None if marks is None else marks[index]
        lines += _rows(array[index], inner, shown[1:], width)
    if not lines:
        return [("[]", ())]
    framed = [(f" {text}", tuple((b + 1, e + 1) for b, e in spans)) for text, spans in lines]
    first, last = framed[0], framed[-1]
    framed[0] = (f"[{first[0][1:]}", first[1])
    framed[-1] = (f"{framed[-1][0]}]", last[1])
    return framed


def _row(array: npt.NDArray[Any], marks: Mask | None, shown: list[int | None], width: int) -> Piece:
    text, spans = "[", list[tuple[int, int]]()
    for cell, is_marked in _cells(array, marks, shown):
        text += "" if text == "[" else " "
        if cell is None:
            text += "..."
            continue
        padded = cell.rjust(width)
        if is_marked:
            spans.append((len(text) + width - len(cell), len(text) + width))
        text += padded
    return f"{text}]", tuple(spans)


def _cells(
    array: npt.NDArray[Any], marks: Mask | None, shown: list[int | None]
) -> Iterator[tuple[str | None, bool]]:
    for index in shown:
        if index is None:
            yield None, False
        else:
            is_marked = marks is not None and bool(marks[index])
            yield (_MARK if is_marked else "") + _text(array[index]), is_marked


def _text(element: Any) -> str:
    """Return one element; a float with as many digits as it needs, but at most six."""
    value = plain(element)
    if isinstance(element, str):
        return json.dumps(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value).lower() if isinstance(value, bool) else str(value)
