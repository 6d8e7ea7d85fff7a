"""Conversion of arrays between all element types, as Cast defines it."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.conversion.formats import FORMATS, is_float, is_integer
from onnx_kvtool.runtime.kernels.conversion.integers import beyond_integers, to_integers
from onnx_kvtool.runtime.kernels.conversion.rounding import as_doubles, round_to
from onnx_kvtool.runtime.kernels.conversion.scale_format import ROUND_MODES, round_to_scale
from onnx_kvtool.runtime.kernels.conversion.strings import from_strings, to_strings
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["convert", "element_dtype"]


def convert(
    x: Array,
    dtype: np.dtype[np.generic],
    *,
    saturate: bool = True,
    round_mode: str = "up",
    warn: Callable[[str], None] | None = None,
) -> Array:
    """Return an array in another element type, by the text and the tables of Cast-25.

    Numbers are rounded once, from their exact value. To bool, all but zeros are true, NaN included.
    See `round_to`, `round_to_scale`, `to_integers`, `to_strings` and `from_strings` for what
    happens at the edges of each kind.

    Args:
        x: Of any dtype but the complex ones, any shape; strings as objects.
        dtype: The dtype of the result.
        saturate: As the attribute of Cast; concerns float 8 and float8e8m0 only.
        round_mode: As the attribute of Cast; concerns float8e8m0 only.
        warn: Called with a sentence if the text leaves an element undefined; it names the first.

    Returns:
        An array of the shape of `x`; `x` itself if it has the dtype already.

    Raises:
        KernelError: If one of the dtypes is complex or unknown, if `round_mode` is another string
            than its three, or if a string is no number.
    """
    tell = warn if warn is not None else _ignore
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
        return _parse(x, dtype, saturate, round_mode, tell)
    with np.errstate(all="ignore"):
        if dtype == np.object_:
            return to_strings(x)
        if dtype == np.bool_:
            return np.asarray(as_doubles(x) != 0)
        if is_integer(dtype):
            _tell_beyond(x, dtype, tell)
            return to_integers(x, dtype)
        if dtype == ml_dtypes.float8_e8m0fnu:
            doubles = as_doubles(x)
            negative = (doubles < 0) | ((doubles == 0) & np.signbit(doubles))
            _tell_first(x, negative, dtype, tell)
            return round_to_scale(doubles, round_mode, saturate=saturate)
        if dtype in FORMATS and FORMATS[dtype].overflow == "largest" and is_float(x.dtype):
            _tell_first(x, np.isnan(as_doubles(x)), dtype, tell)
        return round_to(x, dtype, saturate=saturate)


def element_dtype(element_type: int, name: str) -> np.dtype[np.generic]:
    """Return the dtype of an element type of ONNX.

    Args:
        element_type: A number of `onnx.TensorProto.DataType`.
        name: The attribute that gave it, for the message.

    Raises:
        KernelError: If the number is none of an element type that numpy and ml_dtypes hold.
    """
    try:
        return np.dtype(ir.DataType(element_type).numpy())
    except (ValueError, TypeError) as e:
        raise KernelError(f"`{name}` is {element_type}, expected the number of a data type") from e


def _parse(
    x: Array,
    dtype: np.dtype[np.generic],
    saturate: bool,
    round_mode: str,
    tell: Callable[[str], None],
) -> Array:
    """Return numbers from strings; through float64 to the types that have rules of their own."""
    direct = dtype in (np.float16, np.float32, np.float64, ml_dtypes.bfloat16)
    if direct or is_integer(dtype) or dtype == np.bool_:
        numbers, undefined = from_strings(x, dtype)
        if undefined is not None:
            tell(undefined)
        return numbers
    numbers, _ = from_strings(x, np.dtype(np.float64), to_round=True)
    return convert(numbers, dtype, saturate=saturate, round_mode=round_mode, warn=tell)


def _tell_beyond(x: Array, dtype: np.dtype[np.generic], tell: Callable[[str], None]) -> None:
    if is_float(x.dtype):
        _tell_first(x, beyond_integers(x, dtype), dtype, tell)


def _tell_first(
    x: Array, undefined: Array, dtype: np.dtype[np.generic], tell: Callable[[str], None]
) -> None:
    count = int(np.count_nonzero(undefined))
    if count == 0:
        return
    index = np.unravel_index(int(np.argmax(undefined)), undefined.shape)
    place = [int(i) for i in index]
    others = f" (and {count - 1} more)" if count > 1 else ""
    tell(f"`input`{place} is {x[index]!s}{others}: what it becomes as {dtype} is undefined")


def _ignore(_: str) -> None:
    return None
