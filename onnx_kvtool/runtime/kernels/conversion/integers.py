"""Conversion to integer types."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.kernels.conversion.formats import INTEGER_RANGES, is_integer
from onnx_kvtool.runtime.kernels.conversion.rounding import as_doubles
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["beyond_integers", "to_integers"]


def to_integers(x: Array, dtype: np.dtype[np.generic]) -> Array:
    """Return numbers as an integer type.

    Integers lose their higher bits, as Cast says. Floats are truncated towards zero; where the
    result is out of range, which Cast leaves undefined, they do what numpy and onnxruntime 1.31
    do on x86-64, on every machine: through int32 for types of up to 32 bits but uint32 and through
    int64 for the rest, whose least number stands for all that does not fit (NaN and infinities
    too), and the higher bits are discarded. So 9.0 is -7 as int4, as the backend cases of Cast
    expect.

    Args:
        x: Of any real dtype or bool, any shape.
        dtype: A key of `INTEGER_RANGES`.

    Returns:
        A new array of the shape of `x`.
    """
    if x.dtype == np.bool_ or is_integer(x.dtype):
        return x.astype(dtype)
    if not _leaves(x, dtype):
        return as_doubles(x).astype(np.uint64 if dtype == np.uint64 else np.int64).astype(dtype)
    whole = np.trunc(as_doubles(x))
    if dtype == np.uint64:
        upper = (whole >= 2.0**63) & (whole < 2.0**64)
        result = _through(np.where(upper, 0.0, whole), 64).astype(np.uint64)
        result[upper] = whole[upper].astype(np.uint64)
        return result
    _, highest = INTEGER_RANGES[dtype]
    return _through(whole, 64 if highest >= 2**31 else 32).astype(dtype)


def beyond_integers(x: Array, dtype: np.dtype[np.generic]) -> Array:
    """Return where floats have no place in an integer type: NaN, infinite or out of range."""
    if not _leaves(x, dtype):
        return np.zeros(x.shape, np.bool_)
    whole = np.trunc(as_doubles(x))
    least, highest = INTEGER_RANGES[dtype]
    # highest + 1 is a power of two, and so exact, where highest itself may not be.
    return np.asarray(~((whole >= float(least)) & (whole < float(highest + 1))))


def _leaves(x: Array, dtype: np.dtype[np.generic]) -> bool:
    """Return whether any element is beyond an integer type; the extremes tell, NaN included."""
    if x.size == 0:
        return False
    doubles = as_doubles(x)
    low, high = np.trunc(doubles.min()), np.trunc(doubles.max())
    least, highest = INTEGER_RANGES[dtype]
    return not bool(low >= float(least) and high < float(highest + 1))


def _through(whole: Array, bits: int) -> Array:
    """Return whole floats as int64, or as the least integer of `bits` bits if out of its range."""
    edge = 2.0 ** (bits - 1)
    values = whole.astype(np.float64)
    fits = (values >= -edge) & (values < edge)
    return np.asarray(np.where(fits, values, -edge)).astype(np.int64)
