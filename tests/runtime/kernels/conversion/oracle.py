"""Rounding by definition: decode every code of a type and take the nearest, in exact rationals."""

from __future__ import annotations

import bisect
import functools
from dataclasses import dataclass
from fractions import Fraction

import ml_dtypes
import numpy as np

__all__ = ["TYPES", "NarrowType"]


@dataclass(frozen=True)
class NarrowType:
    """One type by the widths of its fields, after the OCP and IEEE texts.

    Attributes:
        exponent: Bits of the exponent.
        mantissa: Bits of the mantissa.
        bias: Bias of the exponent.
        specials: Codes without sign that hold no number: {code: "inf" or "nan"}.
        unsigned_zero: Whether the code of -0 is the NaN.
    """

    dtype: np.dtype
    exponent: int
    mantissa: int
    bias: int
    specials: dict[int, str]
    unsigned_zero: bool = False

    @property
    def bits(self) -> int:
        return self.exponent + self.mantissa

    @property
    def largest(self) -> int:
        return _table(self)[1][-1]

    def finite(self) -> list[tuple[Fraction, int]]:
        """Return the numbers from 0 up with their codes."""
        codes = (code for code in range(1 << self.bits) if code not in self.specials)
        return [(self.decode(code), code) for code in codes]

    def decode(self, code: int) -> Fraction:
        exponent, mantissa = divmod(code, 1 << self.mantissa)
        unit = Fraction(2) ** (max(exponent, 1) - self.bias - self.mantissa)
        return (mantissa + ((1 << self.mantissa) if exponent else 0)) * unit

    def nearest(self, x: float | int) -> int | None:
        """Return the code of |x| to the nearest even; None if it rounds beyond the largest.

        The code after the largest number stands for the number that would be next if the
        exponent went on: what rounds to it is beyond.
        """
        values, found = _table(self)
        magnitude = in_units(abs(x))
        at = bisect.bisect_right(values, magnitude) - 1
        if at == len(values) - 1:
            return None
        below, above = magnitude - values[at], values[at + 1] - magnitude
        # Codes count up with the numbers, so evenness of the place is that of the mantissa.
        place = at + (above < below or (above == below and at % 2 == 1))
        return None if place == len(found) else found[place]

    def __hash__(self) -> int:
        return hash(self.dtype)


def in_units(value: Fraction | float) -> int:
    """Return a number in units of 2^-1100, in which every float is whole and compares fast."""
    numerator, denominator = value.as_integer_ratio()
    return numerator << (1101 - denominator.bit_length())


@functools.cache
def _table(kind: NarrowType) -> tuple[list[int], list[int]]:
    values = [in_units(value) for value, _ in kind.finite()]
    return [*values, 2 * values[-1] - values[-2]], [code for _, code in kind.finite()]


def _ieee(dtype: object, exponent: int, mantissa: int) -> NarrowType:
    top = ((1 << exponent) - 1) << mantissa
    specials = {top: "inf"} | {top + i: "nan" for i in range(1, 1 << mantissa)}
    return NarrowType(np.dtype(dtype), exponent, mantissa, (1 << (exponent - 1)) - 1, specials)


TYPES = {
    "float16": _ieee(np.float16, 5, 10),
    "bfloat16": _ieee(ml_dtypes.bfloat16, 8, 7),
    "float8e5m2": _ieee(ml_dtypes.float8_e5m2, 5, 2),
    "float8e4m3fn": NarrowType(np.dtype(ml_dtypes.float8_e4m3fn), 4, 3, 7, {0x7F: "nan"}),
    "float8e4m3fnuz": NarrowType(np.dtype(ml_dtypes.float8_e4m3fnuz), 4, 3, 8, {}, True),
    "float8e5m2fnuz": NarrowType(np.dtype(ml_dtypes.float8_e5m2fnuz), 5, 2, 16, {}, True),
    "float6e2m3": NarrowType(np.dtype(ml_dtypes.float6_e2m3fn), 2, 3, 1, {}),
    "float6e3m2": NarrowType(np.dtype(ml_dtypes.float6_e3m2fn), 3, 2, 3, {}),
    "float4e2m1": NarrowType(np.dtype(ml_dtypes.float4_e2m1fn), 2, 1, 1, {}),
}
