"""Constant and ConstantOfShape, all versions."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import read_integers
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.room import require_room

__all__ = ["constant_1", "constant_11", "constant_12", "constant_of_shape"]


def constant_1(*, value: Array) -> tuple[Array]:
    """Return `value`, read-only, as the node keeps it for the next run."""
    return (_read_only(value),)


def constant_11(*, value: Array | None, sparse_value: Array | None) -> tuple[Array]:
    """Return the attribute that is given; see `constant_12`."""
    return (_one({"value": value, "sparse_value": sparse_value}),)


def constant_12(
    *,
    value: Array | None,
    sparse_value: Array | None,
    value_float: float | None,
    value_floats: tuple[float, ...] | None,
    value_int: int | None,
    value_ints: tuple[int, ...] | None,
    value_string: str | None,
    value_strings: tuple[str, ...] | None,
) -> tuple[Array]:
    """Return the attribute that is given.

    Args:
        value: Any array.
        sparse_value: Any array, made dense.
        value_float: Becomes a float32 of rank 0.
        value_floats: Become (N,), float32.
        value_int: Becomes an int64 of rank 0.
        value_ints: Become (N,), int64.
        value_string: Becomes a string of rank 0.
        value_strings: Become (N,), strings as objects.

    Returns:
        One array, read-only, as the node keeps it for the next run.

    Raises:
        KernelError: If none or more than one is given.
    """
    numbers = {
        "value_float": (value_float, np.float32),
        "value_floats": (value_floats, np.float32),
        "value_int": (value_int, np.int64),
        "value_ints": (value_ints, np.int64),
        "value_string": (value_string, object),
        "value_strings": (value_strings, object),
    }
    arrays: dict[str, Array | None] = {
        name: None if given is None else np.array(given, dtype)
        for name, (given, dtype) in numbers.items()
    }
    return (_one({"value": value, "sparse_value": sparse_value, **arrays}),)


def constant_of_shape(input: Array, *, value: Array | None) -> tuple[Array]:
    """Return an array of one value.

    Args:
        input: (N,), int64, the shape, sizes of 0 or more; empty for a scalar.
        value: One element, of any dtype; None for a float32 0.

    Returns:
        One array.

    Raises:
        KernelError: If `input` is of another dtype or rank, or holds negative numbers; if `value`
            is not one element.
    """
    sizes = read_integers(input, "input")
    if any(size < 0 for size in sizes):
        raise KernelError(f"`input` {sizes} holds a negative size")
    require_room(sizes, np.dtype(np.float32) if value is None else value.dtype)
    if value is None:
        return (np.zeros(sizes, np.float32),)
    if value.size != 1:
        raise KernelError(f"`value` has shape {value.shape}, expected one element")
    return (np.full(sizes, value.reshape(())[()], value.dtype),)


def _one(attributes: dict[str, Any]) -> Array:
    given = [name for name, value in attributes.items() if value is not None]
    if len(given) != 1:
        names = ", ".join(f"`{name}`" for name in attributes)
        found = " and ".join(f"`{name}`" for name in given) or "none"
        raise KernelError(f"{found} of the attributes are given, expected exactly one of {names}")
    return _read_only(attributes[given[0]])


def _read_only(value: Array) -> Array:
    view = value.view()
    view.flags.writeable = False
    return view
