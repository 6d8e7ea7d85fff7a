"""Element types that numpy lacks, as onnxruntime lays them out in memory."""

from __future__ import annotations

import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.sessions import Array

__all__ = ["EXTENDED", "ExtendedType", "pack", "unpack"]

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class ExtendedType:
    """One element type.

    Attributes:
        element_type: Its number in `onnx.TensorProto.DataType`.
        dtype: Its dtype in ml_dtypes, where each element takes a whole byte or more.
        bits: Bits per element in onnxruntime's memory; 4-bit elements lie two to a byte, the
            first in the low half.
    """

    element_type: int
    dtype: np.dtype[np.generic]
    bits: int


EXTENDED: dict[str, ExtendedType] = {
    f"tensor({name})": ExtendedType(element_type, np.dtype(dtype), bits)
    for name, element_type, dtype, bits in (
        ("bfloat16", 16, ml_dtypes.bfloat16, 16),
        ("float8e4m3fn", 17, ml_dtypes.float8_e4m3fn, 8),
        ("float8e4m3fnuz", 18, ml_dtypes.float8_e4m3fnuz, 8),
        ("float8e5m2", 19, ml_dtypes.float8_e5m2, 8),
        ("float8e5m2fnuz", 20, ml_dtypes.float8_e5m2fnuz, 8),
        ("uint4", 21, ml_dtypes.uint4, 4),
        ("int4", 22, ml_dtypes.int4, 4),
    )
}
"""Those that onnxruntime has, by its name for the type of a value."""


def pack(array: Array, type_: ExtendedType) -> Bytes:
    """Return the bytes of `array` as onnxruntime lays them out, as a flat array."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if type_.bits != 4:
        return flat
    nibbles = flat & np.uint8(0xF)
    if nibbles.size % 2:
        nibbles = np.append(nibbles, np.uint8(0))
    packed: Bytes = nibbles[0::2] | (nibbles[1::2] << np.uint8(4))
    return packed


def unpack(data: Bytes, shape: tuple[int, ...], type_: ExtendedType) -> Array:
    """Return the array of `shape` whose bytes in onnxruntime's memory are `data`."""
    if type_.bits != 4:
        return data.copy().view(type_.dtype).reshape(shape)
    halves = np.stack([data & np.uint8(0xF), data >> np.uint8(4)], axis=-1)
    nibbles = halves.reshape(-1)[: math.prod(shape)]
    if type_.dtype == ml_dtypes.int4:
        signed = nibbles.astype(np.int8)
        return np.where(signed > 7, signed - 16, signed).astype(type_.dtype).reshape(shape)
    return nibbles.astype(type_.dtype).reshape(shape)
