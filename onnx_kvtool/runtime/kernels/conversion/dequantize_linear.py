"""DequantizeLinear."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.conversion.convert import element_dtype
from onnx_kvtool.runtime.kernels.conversion.granularity import plan_spread
from onnx_kvtool.runtime.kernels.conversion.rounding import as_doubles, round_to
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["dequantize_linear_10"]


def dequantize_linear_10(
    x: Array,
    x_scale: Array,
    x_zero_point: Array | None = None,
    *,
    axis: int = 1,
    block_size: int | None = 0,
    output_dtype: int | None = 0,
) -> tuple[Array]:
    """Compute DequantizeLinear from version 10 on: (x - x_zero_point) * x_scale.

    The difference is exact; it and the scale are rounded to the type of the result, in which the
    product rounds once, as "the output type also determines the precision of the multiplication"
    has it. onnx.reference 1.23.2 multiplies in float32 whatever the type.

    Args:
        x: Codes, any shape.
        x_scale: Per tensor, per axis or blocked; see `plan_spread`.
        x_zero_point: Of the shape of `x_scale` and the dtype of `x`; None is 0.
        axis: The axis of per-axis and blocked quantization, from the back if negative.
        block_size: Elements per scale along `axis`; 0 for none.
        output_dtype: Type of the result by its number; 0 is that of `x_scale`.

    Returns:
        Numbers of the shape of `x`.

    Raises:
        KernelError: If the shapes or dtypes do not fit; if `axis` is out of range; if `x` is int32
            and a zero point is not 0; if the result would be float8e8m0.
    """
    spread = plan_spread(x, x_scale, x_zero_point, axis, block_size or 0, "x")
    dtype = element_dtype(output_dtype, "output_dtype") if output_dtype else x_scale.dtype
    if dtype == ml_dtypes.float8_e8m0fnu:
        raise KernelError(
            "`y` would be of dtype float8_e8m0fnu as `x_scale`, expected a wider float",
            help="give `output_dtype`",
        )
    difference = as_doubles(x)
    if x_zero_point is not None:
        if x_zero_point.dtype != x.dtype:
            raise KernelError(
                f"`x_zero_point` is of dtype {x_zero_point.dtype}, expected {x.dtype} as `x`"
            )
        if x.dtype == np.int32 and np.any(x_zero_point):
            raise KernelError("`x_zero_point` is not 0, expected 0 as `x` is of dtype int32")
        difference = np.asarray(difference - as_doubles(spread(x_zero_point)))
    with np.errstate(all="ignore"):
        factor: npt.NDArray[Any] = round_to(difference, dtype)
        scale: npt.NDArray[Any] = round_to(spread(x_scale), dtype)
        return (np.asarray(factor * scale),)
