"""QuantizeLinear and DequantizeLinear, with their scales and zero points."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from onnx_kvtool.ops.operators import scale_misfit
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axis
from onnx_kvtool.runtime.kernels.conversion.cast import element_dtype
from onnx_kvtool.runtime.kernels.conversion.rounding import (
    INTEGER_RANGES,
    OVERFLOW,
    as_doubles,
    round_to,
    to_integers,
)
from onnx_kvtool.runtime.kernels.kernel import Array, Context, Dtype, Lines

# The scales and zero points of QuantizeLinear and DequantizeLinear, broadcast to the input.


def _broadcast(
    x: Array, scale: Array, zero_point: Array | None, axis: int, block_size: int, prefix: str
) -> Callable[[Array], Array]:
    """Return what brings scales or zero points into a shape that broadcasts to that of `x`.

    The scale is per tensor, which does not read `axis`, per axis, or blocked; else `block_size` is
    0. See `ops.quantization`.

    Raises:
        KernelError: If the text does not allow a shape, or if `axis` is outside the rank.
    """
    names = (f"{prefix}_scale", f"{prefix}_zero_point")
    zero_dims = None if zero_point is None else zero_point.shape
    problem = scale_misfit(x.shape, scale.shape, zero_dims, axis, block_size, names)
    if problem is not None:
        raise KernelError(problem.text, help=problem.help)
    if not block_size and scale.size == 1:
        return lambda values: values.reshape(())
    along = count_axis(axis, x.ndim, of="x")
    if not block_size:
        return lambda values: values.reshape([-1 if i == along else 1 for i in range(x.ndim)])
    block_of = np.arange(x.shape[along]) // block_size
    return lambda values: np.take(values, block_of, axis=along)


# QuantizeLinear and DynamicQuantizeLinear.


def quantize_linear_10(
    x: Array,
    y_scale: Array,
    y_zero_point: Array | None = None,
    *,
    axis: int = 1,
    saturate: int = 1,
    block_size: int | None = 0,
    output_dtype: int | None = 0,
    precision: int | None = 0,
    context: Context,
) -> Array:
    """Compute QuantizeLinear from version 10 on: saturate(round(x / y_scale) + y_zero_point).

    The division rounds once, in the type of `precision` or else of `y_scale`. A float8e8m0 scale
    divides in float32 and an int32 scale in float64, since these types have no quotients. For
    integer types the quotient is rounded to even before the zero point is added. For float 8 and
    narrower types the sum is rounded, by the tables of Cast. NaN becomes the least integer.

    A scale is for the tensor, for one element of `axis`, or for `block_size` elements along `axis`.
    Without a zero point the result has the type `output_dtype`; 0 is uint8.

    Raises:
        KernelError: If the shapes do not fit; if `axis` is out of range; if `output_dtype` is not
            the type of the zero point, or no type to quantize to.
    """
    spread = _broadcast(x, y_scale, y_zero_point, axis, block_size or 0, "y")
    dtype = _output_dtype(y_zero_point, output_dtype or 0)
    division = _division_dtype(y_scale.dtype, precision or 0)
    numerator = round_to(x, division)
    denominator = round_to(spread(y_scale), division)
    quotient = as_doubles(np.asarray(numerator / denominator))
    zero = 0.0 if y_zero_point is None else as_doubles(spread(y_zero_point))
    if dtype in OVERFLOW:
        return round_to(np.asarray(quotient + zero), dtype, saturate=saturate != 0)
    if np.isnan(quotient).any():
        context.warn(f"`x` has NaN, which {dtype} cannot represent: taken as its least number")
    low, high = INTEGER_RANGES[dtype]
    moved = np.clip(np.rint(quotient) + zero, low, high)
    whole = np.where(np.isnan(moved), low, moved).astype(np.int64)
    return np.asarray(whole).astype(dtype)


def dynamic_quantize_linear_11(x: Array, *, context: Context) -> tuple[Array, Array, Array]:
    """Compute DynamicQuantizeLinear-11: `y`, `y_scale` and `y_zero_point` for uint8.

    All steps are in float32, as in the function body of the schema. If `x` is empty or all zero,
    its scale of 0 leaves the result undefined; the scale is then 1 and the zero point 0, as in
    onnxruntime 1.31. NaN or infinity in `x` makes the scale NaN or infinite, and the quantized
    values meaningless.
    """
    zero = np.float32(0)
    low = np.min(x, initial=zero)
    high = np.max(x, initial=zero)
    point: Array
    if low == high:
        context.warn("`x` has no range, which leaves the scale undefined: taken as 1")
        scale, point = np.float32(1), np.asarray(0, np.uint8)
    else:
        scale = np.float32((high - low) / np.float32(255))
        exact = np.asarray(np.rint(np.clip(zero - low / scale, 0, 255)))
        point = to_integers(exact, np.dtype(np.uint8))
    y_scale, y_zero_point = np.asarray(scale), point
    y = quantize_linear_10(x, y_scale, y_zero_point, context=context)
    return y, y_scale, y_zero_point


def _output_dtype(zero_point: Array | None, output_dtype: int) -> Dtype:
    wanted = element_dtype(output_dtype, "output_dtype") if output_dtype else None
    if zero_point is not None and wanted not in (None, zero_point.dtype):
        raise KernelError(
            f"`output_dtype` is {wanted}, expected {zero_point.dtype} as `y_zero_point`"
        )
    dtype = zero_point.dtype if zero_point is not None else wanted or np.dtype(np.uint8)
    if OVERFLOW.get(dtype, "infinity") == "infinity" and dtype not in INTEGER_RANGES:
        raise KernelError(f"`y` would be of dtype {dtype}, expected an integer or float 8 type")
    return dtype


def _division_dtype(scale: Dtype, precision: int) -> Dtype:
    if precision:
        return element_dtype(precision, "precision")
    if scale == np.int32:
        return np.dtype(np.float64)
    return np.dtype(np.float32) if scale == ml_dtypes.float8_e8m0fnu else scale


# DequantizeLinear.


def dequantize_linear_10(
    x: Array,
    x_scale: Array,
    x_zero_point: Array | None = None,
    *,
    axis: int = 1,
    block_size: int | None = 0,
    output_dtype: int | None = 0,
) -> Array:
    """Compute DequantizeLinear from version 10 on: (x - x_zero_point) * x_scale.

    The difference is exact. It and the scale are rounded to the type of the result, and so is the
    product: "the output type also determines the precision of the multiplication". onnx.reference
    1.23.2 multiplies in float32 for every type.

    A scale is for the tensor, for one element of `axis`, or for `block_size` elements along `axis`.
    The result has the type `output_dtype`; 0 is that of `x_scale`.

    Raises:
        KernelError: If the shapes do not fit; if `axis` is out of range; if `x` is int32 and a zero
            point is not 0; if the result would be float8e8m0.
    """
    spread = _broadcast(x, x_scale, x_zero_point, axis, block_size or 0, "x")
    dtype = element_dtype(output_dtype, "output_dtype") if output_dtype else x_scale.dtype
    if dtype == ml_dtypes.float8_e8m0fnu:
        raise KernelError(
            "`y` would be of dtype float8_e8m0fnu as `x_scale`, expected a wider float",
            help="give `output_dtype`",
        )
    # Differences of integers of 16 bits and fewer are exact in float32.
    is_narrow = "int" in x.dtype.name and x.dtype.itemsize <= 2
    difference = x.astype(np.float32 if is_narrow else np.float64)
    if x_zero_point is not None:
        if x.dtype == np.int32 and np.any(x_zero_point):
            raise KernelError("`x_zero_point` is not 0, expected 0 as `x` is of dtype int32")
        zero = spread(x_zero_point.astype(difference.dtype))
        np.subtract(difference, zero, out=difference)
    factor = round_to(difference, dtype)
    scale = round_to(spread(x_scale), dtype)
    return np.multiply(factor, scale, out=factor)


LINES: Lines = {
    "QuantizeLinear": {10: quantize_linear_10},
    "DequantizeLinear": {10: dequantize_linear_10},
    "DynamicQuantizeLinear": {11: dynamic_quantize_linear_11},
}
"""Operators of this module with their kernels, oldest first."""
