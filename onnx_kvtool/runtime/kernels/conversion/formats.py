"""The floating-point types that are narrower than float32, as facts to round by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import ml_dtypes
import numpy as np

__all__ = ["FORMATS", "INTEGER_RANGES", "Format", "is_float", "is_integer"]

Overflow = Literal["infinity", "float8", "largest"]


@dataclass(frozen=True, slots=True)
class Format:
    """One format with a sign, an exponent and a mantissa.

    Attributes:
        dtype: Its dtype in numpy or ml_dtypes.
        mantissa: Explicit bits of the mantissa.
        min_exponent: Exponent of the smallest normal number; below it, numbers are subnormal.
        largest: The largest finite number.
        overflow: What becomes of numbers that round to more than that: infinity; by the tables of
            Cast for float 8, where the attribute `saturate` decides; or always the largest number,
            for the formats that have nothing beyond it.
        infinite: Whether it has infinities.
    """

    dtype: np.dtype[np.generic]
    mantissa: int
    min_exponent: int
    largest: float
    overflow: Overflow
    infinite: bool = False


FORMATS: dict[np.dtype[np.generic], Format] = {
    entry.dtype: entry
    for entry in (
        Format(np.dtype(np.float16), 10, -14, 65504.0, "infinity", infinite=True),
        Format(np.dtype(ml_dtypes.bfloat16), 7, -126, 0xFF * 2.0**120, "infinity", infinite=True),
        Format(np.dtype(ml_dtypes.float8_e4m3fn), 3, -6, 448.0, "float8"),
        Format(np.dtype(ml_dtypes.float8_e4m3fnuz), 3, -7, 240.0, "float8"),
        Format(np.dtype(ml_dtypes.float8_e5m2), 2, -14, 57344.0, "float8", infinite=True),
        Format(np.dtype(ml_dtypes.float8_e5m2fnuz), 2, -15, 57344.0, "float8"),
        Format(np.dtype(ml_dtypes.float6_e2m3fn), 3, 0, 7.5, "largest"),
        Format(np.dtype(ml_dtypes.float6_e3m2fn), 2, -2, 28.0, "largest"),
        Format(np.dtype(ml_dtypes.float4_e2m1fn), 1, 0, 6.0, "largest"),
    )
}
"""By dtype. float8_e8m0fnu, which has neither sign nor mantissa, is in `scale_format`."""

INTEGER_RANGES: dict[np.dtype[np.generic], tuple[int, int]] = {
    np.dtype(ml_dtypes.int2): (-2, 1),
    np.dtype(ml_dtypes.uint2): (0, 3),
    np.dtype(ml_dtypes.int4): (-8, 7),
    np.dtype(ml_dtypes.uint4): (0, 15),
    **{
        np.dtype(kind): (int(np.iinfo(kind).min), int(np.iinfo(kind).max))
        for kind in (
            np.int8,
            np.uint8,
            np.int16,
            np.uint16,
            np.int32,
            np.uint32,
            np.int64,
            np.uint64,
        )
    },
}
"""The least and the greatest number of each integer type."""


def is_float(dtype: np.dtype[np.generic]) -> bool:
    """Return whether a dtype is a real floating-point type, of numpy or of ml_dtypes."""
    return dtype.kind == "f" or dtype in FORMATS or dtype == ml_dtypes.float8_e8m0fnu


def is_integer(dtype: np.dtype[np.generic]) -> bool:
    """Return whether a dtype is an integer type, of numpy or of ml_dtypes; bool is none."""
    return dtype in INTEGER_RANGES
