"""ScatterElements and ScatterND, and how updates are written."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.indices import (
    Indices,
    element_axis,
    element_places,
    position,
    slice_places,
    subscript,
)
from onnx_kvtool.runtime.kernels.kernel import Array, Context, Dtype, Lines

# Writing elements or slices to places in one pass: reductions, duplicates, buffers.


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


def _check_reduction(reduction: str, dtype: Dtype, context: Context | None) -> None:
    """Check that the version has a reduction, and that it has a meaning for the dtype.

    Raises:
        KernelError: If the version does not have it; if it is not `none` for strings; if it is
            `max` or `min` for complex numbers, which have no order.
    """
    is_newer = context is None or context.opset >= 18
    allowed = ("none", *_REDUCTIONS) if is_newer else ("none", "add", "mul")
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

    A read-only array is copied, and one that may share memory with a source: a write could change
    what a later one reads.
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

    `target` is (R, W), contiguous, with W of 1 for elements. `places` is (N,), from 0 to R - 1, and
    `updates` (N, W).
    """
    if target.size == 0 or updates.size == 0:
        return
    if reduction == "none":
        _rows(target)[places] = _rows(updates)
        return
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
    """Return whether a place occurs twice, in time linear in `places` and `count`."""
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
    """Name the first few pairs of updates that write to the same place; None if none do."""
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


# ScatterElements-11, -13, -16 and -18, and Scatter-9.


def scatter_elements_11(
    data: Array,
    indices: Array,
    updates: Array,
    *,
    axis: int,
    reduction: str = "none",
    context: Context | None = None,
    in_place: bool = False,
) -> Array:
    """Write or reduce `updates` into a copy of `data`, one index along one axis per element.

    For a matrix and axis 0: `output[indices[i, j], j] = f(output[indices[i, j], j],
    updates[i, j])`. The order of updates to the same element is left open by the text; they are
    taken in row-major order, one rounding to the dtype each, as onnxruntime does. Two updates of
    one element with reduction `none`: the last one wins, and `context` is told the positions.

    Reductions came with version 16, `max` and `min` with 18. Negative indices, of which Scatter-9
    says nothing, count from the back, as in onnxruntime and in ScatterElements-11.

    Dimensions of `indices` are at most those of `data`, except along `axis`. Of bool, `add` and
    `max` are or, `mul` and `min` are and, as in onnxruntime and numpy. NaN wins in `max` and `min`,
    as in numpy.

    Raises:
        KernelError: If ranks or shapes do not fit; if `axis` or an index is out of range; if
            `reduction` is unknown, or not `none` for strings, or an order of complex numbers.
    """
    axis = element_axis(data, indices, axis)
    if updates.shape != indices.shape:
        raise KernelError(
            f"`updates` has shape {updates.shape}, expected {indices.shape} as `indices`"
        )
    _check_reduction(reduction, data.dtype, context)
    places = element_places(indices, data.shape, axis)
    return _written(data, indices, updates, places, data.ndim, reduction, context, in_place)


def _written(
    data: Array,
    indices: Array,
    updates: Array,
    places: Indices,
    depth: int,
    reduction: str,
    context: Context | None,
    in_place: bool,
) -> Array:
    """Return `data` with updates at places; each place indexes the first `depth` axes."""
    shape, width = data.shape[:depth], math.prod(data.shape[depth:])
    named, count = updates.shape[: updates.ndim - data.ndim + depth], math.prod(shape)
    if reduction == "none" and context is not None and updates.size:
        found = find_duplicates(
            places,
            count,
            lambda n: subscript("indices", position(n, named)),
            lambda n: subscript("data", position(n, shape)),
        )
        if found:
            context.warn(found)
    output = destination(data, in_place, updates, indices)
    flat = output if output.flags.c_contiguous else np.ascontiguousarray(output)
    write(flat.reshape(count, width), places, updates.reshape(len(places), width), reduction)
    if flat is not output:
        output[...] = flat
    return output


# ScatterND-11, -13, -16 and -18.


def scatter_nd_11(
    data: Array,
    indices: Array,
    updates: Array,
    *,
    reduction: str = "none",
    context: Context | None = None,
    in_place: bool = False,
) -> Array:
    """Write or reduce `updates` into a copy of `data`, one tuple of indices per slice.

    `output[indices[i]] = f(output[indices[i]], updates[i])` for each position i of
    `indices.shape[:-1]`. The order is left open by the text; it is row-major here, with one
    rounding to the dtype per update, as in onnxruntime on one thread. Two updates of one slice with
    reduction `none`: the last one wins, and `context` is told the positions.

    Reductions came with version 16, `max` and `min` with 18.

    A tuple without elements names the whole of `data`. Strings have `none` alone: the text defines
    no sum of them, although onnxruntime concatenates for `add`. Of bool, `add` and `max` are or,
    `mul` and `min` are and. NaN wins in `max` and `min`.

    Raises:
        KernelError: If ranks or shapes do not fit; if an index is out of range; if `reduction` is
            unknown, or not `none` for strings, or an order of complex numbers.
    """
    for name, value in (("data", data), ("indices", indices)):
        if value.ndim == 0:
            raise KernelError(f"`{name}` has rank 0, expected at least 1")
    depth: int = indices.shape[-1]
    shapes = f"`data` has shape {data.shape} and `indices` {indices.shape}"
    if depth > data.ndim:
        raise KernelError(
            f"`indices` has tuples of {depth}, expected at most {data.ndim}, the rank of `data`: "
            f"{shapes}"
        )
    expected = indices.shape[:-1] + data.shape[depth:]
    if updates.shape != expected:
        raise KernelError(f"`updates` has shape {updates.shape}, expected {expected}: {shapes}")
    _check_reduction(reduction, data.dtype, context)
    places = slice_places(indices, data.shape)
    return _written(data, indices, updates, places, depth, reduction, context, in_place)


LINES: Lines = {
    "Scatter": {9: scatter_elements_11},
    "ScatterElements": dict.fromkeys((11, 16, 18), scatter_elements_11),
    "ScatterND": dict.fromkeys((11, 18), scatter_nd_11),
}
"""Operators of this module with their kernels, oldest first."""
