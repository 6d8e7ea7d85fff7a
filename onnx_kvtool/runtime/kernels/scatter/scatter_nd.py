"""ScatterND-11, -13, -16 and -18."""

from __future__ import annotations

import math

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.indices import check_index_dtype, subscript
from onnx_kvtool.runtime.kernels.kernel import Array, Context
from onnx_kvtool.runtime.kernels.places import position, slice_places
from onnx_kvtool.runtime.kernels.scatter.writing import (
    check_reduction,
    destination,
    find_duplicates,
    write,
)

__all__ = ["scatter_nd_11", "scatter_nd_16", "scatter_nd_18"]


def scatter_nd_11(
    data: Array,
    indices: Array,
    updates: Array,
    *,
    context: Context | None = None,
    in_place: bool = False,
) -> tuple[Array]:
    """Write `updates` into a copy of `data`; versions before there was a reduction.

    As `scatter_nd_18` with reduction `none`.
    """
    return _scatter(data, indices, updates, "none", ("none",), context, in_place)


def scatter_nd_16(
    data: Array,
    indices: Array,
    updates: Array,
    *,
    reduction: str,
    context: Context | None = None,
    in_place: bool = False,
) -> tuple[Array]:
    """Write or reduce `updates` into a copy of `data`; `max` and `min` came with version 18."""
    allowed = ("none", "add", "mul")
    return _scatter(data, indices, updates, reduction, allowed, context, in_place)


def scatter_nd_18(
    data: Array,
    indices: Array,
    updates: Array,
    *,
    reduction: str,
    context: Context | None = None,
    in_place: bool = False,
) -> tuple[Array]:
    """Write or reduce `updates` into a copy of `data`, one tuple of indices per slice.

    `output[indices[i]] = f(output[indices[i]], updates[i])` for each position i of
    `indices.shape[:-1]`. The order is left open by the text; it is row-major here, with one
    rounding to the dtype per update, as in onnxruntime on one thread. Two updates of one slice with
    reduction `none`: the last one wins, and `context` is told the positions.

    Args:
        data: (D0, ..., Dr-1), r of 1 or more, any dtype, strings as objects.
        indices: (I0, ..., k), rank q of 1 or more, int64; k from 0 to r. Component j lies in -Dj to
            Dj - 1. With k of 0 each tuple is empty and its slice is the whole of `data`.
        updates: `indices.shape[:-1] + data.shape[k:]`, dtype of `data`.
        reduction: `none`, `add`, `mul`, `max` or `min`; see `scatter_elements_18` for bool and NaN.
            Strings have `none` alone: the text defines no sum of them, although onnxruntime
            concatenates for `add`.
        context: Receives the warning about duplicates; None to leave them unchecked.
        in_place: Whether `data` may be overwritten and returned. It is not if it is read-only or
            may share memory with another operand.

    Returns:
        One array, `output`, with the shape and dtype of `data`.

    Raises:
        KernelError: If ranks, shapes or dtypes do not fit; if an index is out of range; if
            `reduction` is unknown, or not `none` for strings, or an order of complex numbers.
    """
    allowed = ("none", "add", "mul", "max", "min")
    return _scatter(data, indices, updates, reduction, allowed, context, in_place)


def _scatter(
    data: Array,
    indices: Array,
    updates: Array,
    reduction: str,
    allowed: tuple[str, ...],
    context: Context | None,
    in_place: bool,
) -> tuple[Array]:
    depth = _check_shapes(data, indices, updates)
    check_reduction(reduction, allowed, data.dtype)
    places = slice_places(indices, data.shape)
    count, width = math.prod(data.shape[:depth]), math.prod(data.shape[depth:])
    if reduction == "none" and context is not None and updates.size:
        found = find_duplicates(
            places,
            count,
            lambda n: subscript("indices", position(n, indices.shape[:-1])),
            lambda n: subscript("data", position(n, data.shape[:depth])),
        )
        if found:
            context.warn(found)
    output = destination(data, in_place, updates, indices)
    flat = output if output.flags.c_contiguous else np.ascontiguousarray(output)
    write(flat.reshape(count, width), places, updates.reshape(len(places), width), reduction)
    if flat is not output:
        output[...] = flat
    return (output,)


def _check_shapes(data: Array, indices: Array, updates: Array) -> int:
    """Return how many leading axes of `data` a tuple indexes, if the operands fit each other."""
    check_index_dtype(indices, only_int64=True)
    if updates.dtype != data.dtype:
        raise KernelError(f"`updates` is of dtype {updates.dtype}, expected {data.dtype} as `data`")
    for name, value in (("data", data), ("indices", indices)):
        if value.ndim == 0:
            raise KernelError(f"`{name}` has rank 0, expected at least 1")
    depth: int = indices.shape[-1]
    shapes = f"`data` has shape {data.shape} and `indices` {indices.shape}"
    if depth > data.ndim:
        raise KernelError(
            f"`indices` holds tuples of {depth}, expected at most {data.ndim}, the rank of `data`: "
            f"{shapes}"
        )
    rank = indices.ndim + data.ndim - depth - 1
    if updates.ndim != rank:
        raise KernelError(
            f"`updates` has shape {updates.shape} of rank {updates.ndim}, expected rank {rank} = "
            f"{indices.ndim} + {data.ndim} - {depth} - 1: {shapes}"
        )
    expected = indices.shape[:-1] + data.shape[depth:]
    if updates.shape != expected:
        raise KernelError(f"`updates` has shape {updates.shape}, expected {expected}: {shapes}")
    return depth
