"""Conversion to float8e8m0, the powers of two that scale blocks of narrow numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.conversion.rounding import Doubles
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["ROUND_MODES", "round_to_scale"]

ROUND_MODES = ("up", "down", "nearest")
_BIAS = 127
_NAN = 255


def round_to_scale(x: Doubles, round_mode: str, *, saturate: bool) -> Array:
    """Return numbers as float8e8m0, by the table of Cast-24.

    Representable numbers stay what they are, 2^-127 (code 0) included, which onnx.reference 1.23.2
    rounds up; infinity saturates to the largest number as the table has it, where that gives
    NaN. With `saturate` off, what is outside 2^-127 to 2^127 is NaN before it is rounded, also
    where rounding would bring it back. The table has two columns; the other combinations follow
    the same two rules. Where it leaves the result open: -0 is taken as 0, and negative numbers
    give NaN.

    Args:
        x: Numbers of any shape, exact in float64.
        round_mode: `up` away from zero, `down` towards zero, `nearest` with ties up.
        saturate: Whether numbers outside the range, and 0, give its nearer end; else NaN.

    Returns:
        Codes as float8_e8m0fnu, of the shape of `x`.

    Raises:
        KernelError: If `round_mode` is another string.
    """
    fraction, exponent = np.frexp(np.abs(x))  # |x| = fraction * 2^exponent, fraction in [0.5, 1)
    power = exponent - 1
    if round_mode == "up":
        power = power + (fraction > 0.5)
    elif round_mode == "nearest":
        power = power + (fraction >= 0.75)
    elif round_mode != "down":
        raise KernelError(f"`round_mode` is `{round_mode}`, expected `up`, `down` or `nearest`")
    low, high = 2.0**-_BIAS, 2.0**_BIAS
    codes = np.clip(power, -_BIAS, _BIAS) + _BIAS
    codes = np.where(x <= low, 0, codes)
    codes = np.where(x >= high, 2 * _BIAS, codes)
    invalid = np.isnan(x) | (x < 0)
    if not saturate:
        invalid |= (x < low) | (x > high)
    codes = np.where(invalid, _NAN, codes)
    return np.asarray(codes, np.uint8).view(ml_dtypes.float8_e8m0fnu)
