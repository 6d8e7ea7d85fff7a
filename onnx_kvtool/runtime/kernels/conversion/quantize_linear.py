"""QuantizeLinear and DynamicQuantizeLinear."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.conversion.convert import element_dtype
from onnx_kvtool.runtime.kernels.conversion.formats import FORMATS, INTEGER_RANGES
from onnx_kvtool.runtime.kernels.conversion.granularity import plan_spread
from onnx_kvtool.runtime.kernels.conversion.integers import to_integers
from onnx_kvtool.runtime.kernels.conversion.rounding import as_doubles, round_to
from onnx_kvtool.runtime.kernels.kernel import Array, Context

__all__ = ["dynamic_quantize_linear_11", "quantize_linear_10"]


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
) -> tuple[Array]:
    """Compute QuantizeLinear from version 10 on: saturate(round(x / y_scale) + y_zero_point).

    The division rounds once, in the type of `precision`, else in that of `y_scale`; in float32 if
    that is float8e8m0, and in float64 if it is int32, types in which no quotient can be held.
    Integers are rounded to even before the zero point is added; float 8 and narrower types after,
    by the tables of Cast. NaN has no place among integers: it becomes the least one.

    Args:
        x: Any shape; float32, float16, bfloat16 or int32.
        y_scale: Per tensor, per axis or blocked; see `plan_spread`.
        y_zero_point: Of the shape of `y_scale`, of the type of the result; None is 0.
        axis: The axis of per-axis and blocked quantization, from the back if negative.
        saturate: As in Cast; concerns float 8 only.
        block_size: Elements per scale along `axis`; 0 for none.
        output_dtype: Type of the result if there is no zero point; 0 is uint8.
        precision: Type to divide in, by its number; 0 is that of `y_scale`.
        context: Told if `x` has NaN that become integers.

    Returns:
        Codes of the shape of `x`.

    Raises:
        KernelError: If the shapes do not fit; if `axis` is out of range; if `output_dtype` is not
            the type of the zero point, or no type to quantize to.
    """
    spread = plan_spread(x, y_scale, y_zero_point, axis, block_size or 0, "y")
    dtype = _output_dtype(y_zero_point, output_dtype or 0)
    division = _division_dtype(y_scale.dtype, precision or 0)
    with np.errstate(all="ignore"):
        numerator: npt.NDArray[Any] = round_to(x, division)
        denominator: npt.NDArray[Any] = round_to(spread(y_scale), division)
        quotient = as_doubles(np.asarray(numerator / denominator))
        zero = 0.0 if y_zero_point is None else as_doubles(spread(y_zero_point))
        if dtype in FORMATS:
            return (round_to(np.asarray(quotient + zero), dtype, saturate=saturate != 0),)
        if np.isnan(quotient).any():
            context.warn(f"`x` has NaN, which {dtype} cannot hold: taken as its least number")
        low, high = INTEGER_RANGES[dtype]
        moved = np.clip(np.rint(quotient) + zero, low, high)
        whole = np.where(np.isnan(moved), low, moved).astype(np.int64)
    return (np.asarray(whole).astype(dtype),)


def dynamic_quantize_linear_11(x: Array, *, context: Context) -> tuple[Array, Array, Array]:
    """Compute DynamicQuantizeLinear-11: `y`, `y_scale` and `y_zero_point` for uint8.

    All steps are in float32, as the body of the operator's function has them. If `x` is empty or
    all zero, its scale of 0 leaves the result undefined; the scale is then 1 and the zero point
    0, as in onnxruntime 1.31. NaN and infinities in `x` make the scale so, and the codes
    meaningless.

    Args:
        x: float32, any shape.
        context: Told in the undefined case.
    """
    numbers: npt.NDArray[Any] = x
    zero = np.float32(0)
    low = np.min(numbers, initial=zero)
    high = np.max(numbers, initial=zero)
    point: Array
    if low == high:
        context.warn("`x` has no range, which leaves the scale undefined: taken as 1")
        scale, point = np.float32(1), np.asarray(0, np.uint8)
    else:
        with np.errstate(all="ignore"):
            scale = np.float32((high - low) / np.float32(255))
            exact = np.asarray(np.rint(np.clip(zero - low / scale, 0, 255)))
        point = to_integers(exact, np.dtype(np.uint8))
    y_scale, y_zero_point = np.asarray(scale), point
    (y,) = quantize_linear_10(x, y_scale, y_zero_point, context=context)
    return y, y_scale, y_zero_point


def _output_dtype(zero_point: Array | None, output_dtype: int) -> np.dtype[np.generic]:
    wanted = element_dtype(output_dtype, "output_dtype") if output_dtype else None
    if zero_point is not None and wanted not in (None, zero_point.dtype):
        raise KernelError(
            f"`output_dtype` is {wanted}, expected {zero_point.dtype} as `y_zero_point`"
        )
    dtype = zero_point.dtype if zero_point is not None else wanted or np.dtype(np.uint8)
    codes = dtype in FORMATS and FORMATS[dtype].overflow != "infinity"
    if not codes and dtype not in INTEGER_RANGES:
        raise KernelError(f"`y` would be of dtype {dtype}, expected an integer or float 8 type")
    return dtype


def _division_dtype(scale: np.dtype[np.generic], precision: int) -> np.dtype[np.generic]:
    if precision:
        return element_dtype(precision, "precision")
    if scale == np.int32:
        return np.dtype(np.float64)
    return np.dtype(np.float32) if scale == ml_dtypes.float8_e8m0fnu else scale
