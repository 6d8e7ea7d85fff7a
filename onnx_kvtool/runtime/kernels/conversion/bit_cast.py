"""BitCast-26."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.conversion.convert import element_dtype
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["bit_cast_26"]


def bit_cast_26(input: Array, *, to: int) -> tuple[Array]:
    """Compute BitCast-26: the same bits as another type of the same width.

    Narrow types hold their bits in the low ones of a byte. A bool counts as 8 bits, as onnx stores
    it and as the backend case to uint8 has it; to bool, every byte but 0 is true, because numpy
    holds no other bits.

    Args:
        input: Any shape, any dtype but strings.
        to: The element type wanted, by its number in `onnx.TensorProto.DataType`.

    Returns:
        An array of the shape of `input`.

    Raises:
        KernelError: If `to` is no type, or one of the types is string, or the widths differ.
    """
    dtype = element_dtype(to, "to")
    if np.object_ in (input.dtype, dtype):
        raise KernelError("strings have no bits to cast")
    source, target = ir.DataType.from_numpy(input.dtype), ir.DataType(to)
    if source.bitwidth != target.bitwidth:
        raise KernelError(
            f"`input` has elements of {source.bitwidth} bits ({source}), "
            f"expected {target.bitwidth} as `to` ({target})"
        )
    if input.dtype == dtype:
        return (input,)
    if source.bitwidth >= 8:
        whole = np.ascontiguousarray(input).reshape(input.shape)
        return ((whole != 0) if target == ir.DataType.BOOL else whole.view(dtype),)
    codes = np.ascontiguousarray(input).reshape(input.shape).view(np.uint8)
    codes = codes & np.uint8((1 << source.bitwidth) - 1)
    if target in (ir.DataType.INT4, ir.DataType.INT2):
        half = 1 << (target.bitwidth - 1)
        return (((codes.astype(np.int8) ^ half) - half).astype(dtype),)
    if target in (ir.DataType.UINT4, ir.DataType.UINT2):
        return (codes.astype(dtype),)
    return (codes.view(dtype),)
