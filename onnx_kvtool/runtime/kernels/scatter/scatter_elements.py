"""ScatterElements-11, -13, -16 and -18, and Scatter-9."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axis
from onnx_kvtool.runtime.kernels.indices import check_index_dtype, subscript
from onnx_kvtool.runtime.kernels.kernel import Array, Context
from onnx_kvtool.runtime.kernels.places import element_places, position
from onnx_kvtool.runtime.kernels.scatter.writing import (
    check_reduction,
    destination,
    find_duplicates,
    write,
)

__all__ = ["scatter_elements_11", "scatter_elements_16", "scatter_elements_18"]


def scatter_elements_11(
    data: Array,
    indices: Array,
    updates: Array,
    *,
    axis: int,
    context: Context | None = None,
    in_place: bool = False,
) -> tuple[Array]:
    """Write `updates` into a copy of `data`; versions before there was a reduction.

    As `scatter_elements_18` with reduction `none`. Scatter-9 says nothing about negative indices;
    they count from the back there too, as in onnxruntime and in ScatterElements-11.
    """
    return _scatter(data, indices, updates, axis, "none", ("none",), context, in_place)


def scatter_elements_16(
    data: Array,
    indices: Array,
    updates: Array,
    *,
    axis: int,
    reduction: str,
    context: Context | None = None,
    in_place: bool = False,
) -> tuple[Array]:
    """Write or reduce `updates` into a copy of `data`; `max` and `min` came with version 18."""
    allowed = ("none", "add", "mul")
    return _scatter(data, indices, updates, axis, reduction, allowed, context, in_place)


def scatter_elements_18(
    data: Array,
    indices: Array,
    updates: Array,
    *,
    axis: int,
    reduction: str,
    context: Context | None = None,
    in_place: bool = False,
) -> tuple[Array]:
    """Write or reduce `updates` into a copy of `data`, one index along one axis per element.

    For a matrix and axis 0: `output[indices[i, j], j] = f(output[indices[i, j], j],
    updates[i, j])`. The order of updates to the same element is left open by the text; they are
    taken in row-major order, one rounding to the dtype each, as onnxruntime does. Two updates of
    one element with reduction `none`: the last one wins, and `context` is told the positions.

    Args:
        data: (D0, ..., Dn), rank 1 or more, any dtype, strings as objects.
        indices: (I0, ..., In), int32 or int64, in elements along `axis`, -s to s - 1 where s is
            the size of `axis` in `data`. Other dimensions are at most those of `data`; that of
            `axis` may be larger. May be empty.
        updates: Shape of `indices`, dtype of `data`.
        axis: Axis of `data`, counted from the back if negative.
        reduction: `none`, `add`, `mul`, `max` or `min`. Of bool, `add` and `max` are or, `mul` and
            `min` are and, as in onnxruntime and numpy. NaN wins in `max` and `min`, as in numpy.
        context: Receives the warning about duplicates; None to leave them unchecked.
        in_place: Whether `data` may be overwritten and returned. It is not if it is read-only or
            may share memory with another operand.

    Returns:
        One array, `output`, with the shape and dtype of `data`.

    Raises:
        KernelError: If ranks, shapes or dtypes do not fit; if `axis` or an index is out of range;
            if `reduction` is unknown, or not `none` for strings, or an order of complex numbers.
    """
    allowed = ("none", "add", "mul", "max", "min")
    return _scatter(data, indices, updates, axis, reduction, allowed, context, in_place)


def _scatter(
    data: Array,
    indices: Array,
    updates: Array,
    axis: int,
    reduction: str,
    allowed: tuple[str, ...],
    context: Context | None,
    in_place: bool,
) -> tuple[Array]:
    axis = _check_shapes(data, indices, updates, axis)
    check_reduction(reduction, allowed, data.dtype)
    places = element_places(indices, data.shape, axis)
    if reduction == "none" and context is not None and updates.size:
        found = find_duplicates(
            places,
            data.size,
            lambda n: subscript("indices", position(n, indices.shape)),
            lambda n: subscript("data", position(n, data.shape)),
        )
        if found:
            context.warn(found)
    output = destination(data, in_place, updates, indices)
    flat = output if output.flags.c_contiguous else np.ascontiguousarray(output)
    write(flat.reshape(-1, 1), places, updates.reshape(-1, 1), reduction)
    if flat is not output:
        output[...] = flat
    return (output,)


def _check_shapes(data: Array, indices: Array, updates: Array, axis: int) -> int:
    """Return the axis counted from the front, if the operands fit each other."""
    check_index_dtype(indices)
    if updates.dtype != data.dtype:
        raise KernelError(f"`updates` is of dtype {updates.dtype}, expected {data.dtype} as `data`")
    if data.ndim == 0:
        raise KernelError("`data` has rank 0, expected at least 1")
    if indices.ndim != data.ndim:
        raise KernelError(
            f"`indices` has rank {indices.ndim}, expected {data.ndim} as `data`: "
            f"shapes {indices.shape} and {data.shape}"
        )
    if updates.shape != indices.shape:
        raise KernelError(
            f"`updates` has shape {updates.shape}, expected {indices.shape} as `indices`"
        )
    axis = count_axis(axis, data.ndim)
    for dim, (got, limit) in enumerate(zip(indices.shape, data.shape, strict=True)):
        if dim != axis and got > limit and indices.size:
            raise KernelError(
                f"`indices` has size {got} in dimension {dim}, expected at most {limit} as `data`: "
                f"shapes {indices.shape} and {data.shape}, axis {axis}"
            )
    return axis
