"""Writing elements or slices to places in one pass: reductions, duplicates, buffers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.indices import Indices
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["check_reduction", "destination", "find_duplicates", "has_duplicates", "write"]

_REDUCTIONS: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
_SHOWN = 3
# With slices of _WIDE elements a round per repetition of a place beats one element at a time, for
# as long as there are few rounds.
_WIDE = 64
_ROUNDS = 16


def check_reduction(reduction: str, allowed: tuple[str, ...], dtype: np.dtype[np.generic]) -> None:
    """Check that a reduction is one of those of the version and has a meaning for the dtype.

    Raises:
        KernelError: If `reduction` is not in `allowed`; if it is not `none` for strings; if it is
            `max` or `min` for complex numbers, which have no order.
    """
    if reduction not in allowed:
        names = ", ".join(f"`{name}`" for name in allowed)
        raise KernelError(f"`reduction` is `{reduction}`, expected one of {names}")
    if reduction == "none":
        return
    if dtype.kind == "O":
        raise KernelError(f"`reduction` is `{reduction}`, which strings do not have")
    if dtype.kind == "c" and reduction in ("max", "min"):
        raise KernelError(f"`reduction` is `{reduction}`, which {dtype} does not have")


def destination(array: Array, in_place: bool, *sources: Array) -> Array:
    """Return the array to write into: `array` itself if allowed and harmless, else a copy.

    Args:
        array: The input that is to be overwritten.
        in_place: Whether it may be.
        sources: What is read while writing. A source that may share memory with `array` forces a
            copy, as one write could change what a later one reads; so does a read-only array.
    """
    shared = any(np.may_share_memory(array, source) for source in sources)
    if in_place and array.flags.writeable and not shared:
        return array
    return np.array(array, copy=True, order="C")


def write(target: Array, places: Indices, updates: Array, reduction: str) -> None:
    """Write slices to places; where a place occurs twice, in the order of `updates`.

    Reductions are carried out in the dtype of `target`, rounding after each step, the value that
    was there first. `add` and `mul` of bool are or and and, `max` and `min` as well. NaN wins in
    `max` and `min`; integers wrap around.

    Args:
        target: (R, W), contiguous; W of 1 for elements.
        places: (N,), from 0 to R - 1.
        updates: (N, W), of the dtype of `target`.
        reduction: `none`, `add`, `mul`, `max` or `min`.

    Raises:
        KernelError: If `reduction` is another string.
    """
    if target.size == 0 or updates.size == 0:
        return
    if reduction == "none":
        _rows(target)[places] = _rows(updates)
        return
    if reduction not in _REDUCTIONS:
        raise KernelError(f"`reduction` is `{reduction}`, which has no kernel")
    with np.errstate(all="ignore"):  # overflow and NaN are results like others
        _reduce(target, places, updates, _REDUCTIONS[reduction])


def _reduce(target: Array, places: Indices, updates: Array, function: np.ufunc) -> None:
    width = target.shape[1]
    limit = 0 if width == 1 else 1 if width < _WIDE else _ROUNDS
    rounds = _rounds(places, len(target), limit)
    if rounds is None:
        if width > 1:  # ufunc.at is fast in one dimension only
            places = np.add.outer(places * width, np.arange(width)).reshape(-1)
        function.at(target.reshape(-1), places, updates.reshape(-1))
        return
    rows = _rows(target)
    for chosen in rounds:
        there, new = places[chosen], updates[chosen]
        old = rows[there].view(target.dtype).reshape(new.shape)
        rows[there] = _rows(function(old, new, out=old))


def _rounds(places: Indices, count: int, limit: int) -> list[Indices | slice] | None:
    """Return the entries of `places` in rounds that hold no place twice; None above `limit` rounds.

    The n-th round holds the entries whose place n earlier ones have, so that slices are reduced
    many at a time and yet in order.
    """
    if limit == 0:
        return None
    if not has_duplicates(places, count):
        return [slice(None)]
    if limit == 1:
        return None
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    entries = np.arange(len(places))
    is_first = np.concatenate(([True], ordered[1:] != ordered[:-1]))
    earlier = entries - np.maximum.accumulate(np.where(is_first, entries, 0))
    last = int(earlier.max())
    return None if last >= limit else [order[earlier == n] for n in range(last + 1)]


def _rows(matrix: Array) -> Array:
    """Return an (N, W) array as (N,) of its rows, so that numpy moves a row at once."""
    if matrix.shape[1] == 1:
        return matrix.reshape(-1)
    if matrix.dtype.kind == "O":  # references have to be counted
        return matrix
    matrix = np.ascontiguousarray(matrix)
    return matrix.view(np.dtype((np.void, matrix.shape[1] * matrix.itemsize))).reshape(-1)


def has_duplicates(places: Indices, count: int) -> bool:
    """Return whether a place occurs twice, in time linear in `places` and `count`.

    Args:
        places: (N,), from 0 to `count` - 1.
        count: Number of places that there are.
    """
    if len(places) > count:
        return True
    if len(places) * 16 < count:  # sorting few places is cheaper than marking among many
        ordered = np.sort(places)
        return bool((ordered[1:] == ordered[:-1]).any())
    marked = np.zeros(count, np.bool_)
    marked[places] = True
    return int(np.count_nonzero(marked)) != len(places)


def find_duplicates(
    places: Indices,
    count: int,
    source: Callable[[int], str],
    target: Callable[[int], str],
) -> str | None:
    """Say which updates write to the same place; None if none do.

    Args:
        places: (N,), from 0 to `count` - 1.
        count: Number of places that there are.
        source: Names the n-th entry of `places`.
        target: Names a place.

    Returns:
        One sentence without full stop, with the first few pairs of entries.
    """
    if not has_duplicates(places, count):
        return None
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    # Each entry whose place an earlier one has, beside the last earlier one.
    (again,) = np.nonzero(ordered[1:] == ordered[:-1])
    again = again[np.argsort(order[again + 1], kind="stable")]
    pairs = [
        f"{source(int(order[n]))} and {source(int(order[n + 1]))} both name "
        f"{target(int(ordered[n]))}"
        for n in again[:_SHOWN]
    ]
    more = f" (and {len(again) - _SHOWN} more)" if len(again) > _SHOWN else ""
    return (
        f"{'; '.join(pairs)}{more}: the specification leaves open which update wins, the last one "
        "was taken"
    )
