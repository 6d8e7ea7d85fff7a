"""Cast, CastLike and BitCast, and the conversion of values between dtypes."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.conversion.rounding import (
    INTEGER_RANGES,
    OVERFLOW,
    ROUND_MODES,
    as_doubles,
    beyond_integers,
    is_float,
    is_integer,
    round_to,
    round_to_scale,
    to_integers,
)
from onnx_kvtool.runtime.kernels.kernel import Array, Context, Dtype, Lines

# Conversion between numbers and strings.


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_SPECIAL = {"inf": np.inf, "+inf": np.inf, "-inf": -np.inf, "nan": np.nan}


def to_strings(x: Array) -> Array:
    """Return numbers in plain notation, never with an exponent.

    Floats are written with the fewest digits that give the same number of their type back, those of
    ml_dtypes with the digits of float32. Whole ones end in `.0`, as in onnx.reference. Special ones
    are `INF`, `-INF` and `NaN`, the spellings that Cast reads. Booleans are `1` and `0`, as in
    onnxruntime 1.31; the text does not say.
    """
    if x.dtype == np.bool_ or is_integer(x.dtype):
        wide = x.astype(np.uint64 if x.dtype == np.uint64 else np.int64)
        texts = [str(number) for number in wide.reshape(-1).tolist()]
    else:
        floats = x if x.dtype in (np.float16, np.float64) else x.astype(np.float32)
        texts = [_write_float(number) for number in floats.reshape(-1)]
    result = np.empty(x.shape, object)
    result.reshape(-1)[:] = texts
    return result


def _write_float(number: np.floating[Any]) -> str:
    if np.isnan(number):
        return "NaN"
    if np.isinf(number):
        return "-INF" if number < 0 else "INF"
    return np.format_float_positional(number, unique=True, trim="0")


def from_strings(
    x: Array, dtype: Dtype, tell: Callable[[str], None], *, to_round: bool = False
) -> Array:
    """Return the numbers in strings, rounded once to their type.

    Decimal literals with or without an exponent are read, and INF, +INF, -INF and NaN in any case,
    with white space around them. For integers, a fraction is cut off, as in the example of Cast
    (`100.5` to 100), although the text also calls the result undefined. For bool, zero is false.

    Args:
        x: An array of str objects, any shape.
        dtype: An integer type, bool, float16, bfloat16, float32 or float64.
        tell: Called with a sentence on the first undefined element, if there is one.
        to_round: Whether the caller rounds the result, in float64, further; numbers stay on their
            side of every midpoint of a narrower type then.

    Returns:
        A new array of the shape of `x`.

    Raises:
        KernelError: If a string is no number, which the text leaves undefined, or no number that
            the integer type has.
    """
    result = np.zeros(x.shape, dtype)
    undefined = None
    for index in np.ndindex(x.shape):
        text = str(x[index])
        where = f"`input`{list(index)} is {text!r}"
        stripped = text.strip()
        if stripped.lower() in _SPECIAL:
            if is_integer(dtype):
                raise KernelError(f"{where}, which {dtype} cannot represent")
            result[index] = np.asarray(_SPECIAL[stripped.lower()]).astype(dtype)
        elif _NUMBER.fullmatch(stripped) is None:
            raise KernelError(f"{where}, expected a decimal number, INF, -INF or NaN")
        elif is_float(dtype):
            exact_side = to_round or dtype != np.float64
            near = _nearest_side(stripped) if exact_side else np.asarray(float(stripped))
            result[index] = round_to(near, dtype)
        else:
            _, _, exponent = stripped.lower().partition("e")
            if len(exponent) > 4:  # more digits than any type has, and too many to write out
                raise KernelError(f"{where}, expected an exponent of at most 3 digits")
            exact = Fraction(stripped)
            if dtype == np.bool_:
                result[index] = exact != 0
                continue
            number = int(exact)
            least, highest = INTEGER_RANGES[dtype]
            if not least <= number <= highest:
                expected = f"expected {least} to {highest}"
                raise KernelError(f"{where}, which {dtype} cannot represent: {expected}")
            result[index] = number
            if exact.denominator != 1 and undefined is None:
                undefined = f"{where}: a fraction cast to {dtype} is undefined, taken as truncated"
    if undefined is not None:
        tell(undefined)
    return result


def _nearest_side(text: str) -> Array:
    """Return a decimal number in float64, nudged so that rounding it further rounds the text."""
    value = float(text)
    if not 1e-300 < abs(value) < 1e300:
        return np.asarray(value)
    error = Fraction(text) - Fraction(value)
    bits = np.asarray(value).view(np.int64)
    if error == 0 or bits & 1:
        return np.asarray(value)
    # Odd last bits never lie on a midpoint of a narrower type.
    return np.asarray(np.nextafter(value, np.inf if error > 0 else -np.inf))


# Conversion of arrays between all element types, as Cast defines it.


def convert(
    x: Array,
    dtype: Dtype,
    *,
    saturate: bool = True,
    round_mode: str = "up",
    warn: Callable[[str], None] | None = None,
) -> Array:
    """Return an array in another element type, by the text and the tables of Cast-25.

    Numbers are rounded once, from their exact value. To bool, all but zeros are true, NaN included.
    For the limits of each kind see `round_to`, `round_to_scale`, `to_integers`, `to_strings` and
    `from_strings`.

    `saturate` and `round_mode` are the attributes of Cast. `saturate` concerns float 8 and
    float8e8m0 only, `round_mode` float8e8m0 only. `warn` is called with a sentence that names the
    first undefined element. The result is `x` itself if it has the dtype already.

    Raises:
        KernelError: If one of the dtypes is complex or unknown, if `round_mode` is another string
            than its three, or if a string is no number.
    """
    tell = warn or (lambda _: None)
    if round_mode not in ROUND_MODES:
        raise KernelError(f"`round_mode` is `{round_mode}`, expected `up`, `down` or `nearest`")
    if x.dtype.kind == "U":
        x = x.astype(object)
    for one in (x.dtype, dtype):
        if not (is_float(one) or is_integer(one) or one in (np.bool_, np.object_)):
            raise KernelError(f"elements of dtype {one} cannot be cast")
    if x.dtype == dtype:
        return x
    if x.dtype == np.object_:
        direct = (np.float16, np.float32, np.float64, ml_dtypes.bfloat16, np.bool_)
        if dtype in direct or is_integer(dtype):
            return from_strings(x, dtype, tell)
        # Types with their own rules are rounded from float64.
        x = from_strings(x, np.dtype(np.float64), tell, to_round=True)
    if dtype == np.object_:
        return to_strings(x)
    if dtype == np.bool_:
        return np.asarray(as_doubles(x) != 0)
    if is_integer(dtype):
        if is_float(x.dtype):
            _tell_first(x, beyond_integers(x, dtype), dtype, tell)
        return to_integers(x, dtype)
    if dtype == ml_dtypes.float8_e8m0fnu:
        doubles = as_doubles(x)
        negative = (doubles < 0) | ((doubles == 0) & np.signbit(doubles))
        _tell_first(x, negative, dtype, tell)
        return round_to_scale(doubles, round_mode, saturate=saturate)
    if OVERFLOW.get(dtype) == "largest" and is_float(x.dtype):
        _tell_first(x, np.isnan(as_doubles(x)), dtype, tell)
    return round_to(x, dtype, saturate=saturate)


def element_dtype(element_type: int, name: str) -> Dtype:
    """Return the dtype of an element type of ONNX.

    Raises:
        KernelError: If it is no element type of numpy or ml_dtypes.
    """
    try:
        return np.dtype(ir.DataType(element_type).numpy())
    except (ValueError, TypeError) as e:
        raise KernelError(f"`{name}` is {element_type}, expected the number of a data type") from e


def _tell_first(x: Array, undefined: Array, dtype: Dtype, tell: Callable[[str], None]) -> None:
    count = int(np.count_nonzero(undefined))
    if count == 0:
        return
    index = np.unravel_index(int(np.argmax(undefined)), undefined.shape)
    place = [int(i) for i in index]
    others = f" (and {count - 1} more)" if count > 1 else ""
    tell(f"`input`{place} is {x[index]!s}{others}: what it becomes as {dtype} is undefined")


# Cast and CastLike.


def cast_6(
    input: Array, *, to: int, saturate: int = 1, round_mode: str = "up", context: Context
) -> Array:
    """Compute Cast from version 6 on: see `convert` for every pair of types.

    Versions before 19 have no float 8 types, those before 24 no float8e8m0; the defaults of the
    attributes that they lack have no effect on the types that they have.

    Raises:
        KernelError: As `convert`, or if `to` is the number of no type.
    """
    dtype = element_dtype(to, "to")
    warn = context.warn
    return convert(input, dtype, saturate=saturate != 0, round_mode=round_mode, warn=warn)


def cast_like_15(
    input: Array,
    target_type: Array,
    *,
    saturate: int = 1,
    round_mode: str = "up",
    context: Context,
) -> Array:
    """Compute CastLike from version 15 on: Cast to the dtype of `target_type`, of any shape."""
    dtype, warn = target_type.dtype, context.warn
    return convert(input, dtype, saturate=saturate != 0, round_mode=round_mode, warn=warn)


# BitCast-26.


def bit_cast_26(input: Array, *, to: int) -> Array:
    """Compute BitCast-26: the same bits as another type of the same width.

    Narrow types use the low bits of a byte. A bool has 8 bits, as onnx stores it and as in the
    backend case to uint8. For bool, every byte but 0 is true, since numpy has no other values.

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
        return input
    if source.bitwidth >= 8:
        whole = np.ascontiguousarray(input).reshape(input.shape)
        return (whole != 0) if target == ir.DataType.BOOL else whole.view(dtype)
    quantized = np.ascontiguousarray(input).reshape(input.shape).view(np.uint8)
    quantized = quantized & np.uint8((1 << source.bitwidth) - 1)
    if target in (ir.DataType.INT4, ir.DataType.INT2):
        half = 1 << (target.bitwidth - 1)
        return ((quantized.astype(np.int8) ^ half) - half).astype(dtype)
    if target in (ir.DataType.UINT4, ir.DataType.UINT2):
        return quantized.astype(dtype)
    return quantized.view(dtype)


LINES: Lines = {
    "Cast": {6: cast_6},
    "CastLike": {15: cast_like_15},
    "BitCast": {26: bit_cast_26},
}
"""Operators of this module with their kernels, oldest first."""
