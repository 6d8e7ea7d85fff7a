"""Random arrays of every element type."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.runtime.sessions import Array

__all__ = ["any_bits", "moderate", "token_ids"]


def moderate(rng: np.random.Generator, dtype: ir.DataType, shape: tuple[int, ...]) -> Array:
    """Return values that are safe to compute with.

    Floats are normal with a deviation of 1 (magnitudes for types without a sign), integers lie in
    [0, 4), booleans and strings are random.
    """
    if dtype == ir.DataType.BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype == ir.DataType.STRING:
        return _strings(rng, shape)
    if dtype.is_integer():
        return _cast(rng.integers(0, 4, shape), dtype)
    if dtype in (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128):
        return _cast(rng.normal(size=shape) + 1j * rng.normal(size=shape), dtype)
    values = rng.normal(size=shape)
    return _cast(np.abs(values) if dtype == ir.DataType.FLOAT8E8M0 else values, dtype)


def any_bits(rng: np.random.Generator, dtype: ir.DataType, shape: tuple[int, ...]) -> Array:
    """Return values that are as different as the type allows, for data that is only moved.

    As `moderate`, but integers cover the range of their type, so that rows hardly ever agree.
    """
    if not dtype.is_integer():
        return moderate(rng, dtype, shape)
    low, high = int(dtype.min), int(dtype.max)
    wide = np.int64 if low < 0 else np.uint64
    return _cast(rng.integers(low, high, shape, wide, endpoint=True), dtype)


def token_ids(
    rng: np.random.Generator, dtype: ir.DataType, shape: tuple[int, ...], rows: int | None
) -> Array:
    """Return integers that index a table of `rows` rows; in [0, 4) when that is not known."""
    return _cast(rng.integers(0, 4 if rows is None else max(rows, 1), shape), dtype)


def _cast(values: object, dtype: ir.DataType) -> Array:
    # A scalar draw is no array.
    return np.asarray(values).astype(dtype.numpy())


def _strings(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    numbers = rng.integers(0, 1_000_000, shape)
    strings = np.empty(shape, dtype=object)
    for index in np.ndindex(shape):
        strings[index] = f"s{numbers[index]}"
    return strings
