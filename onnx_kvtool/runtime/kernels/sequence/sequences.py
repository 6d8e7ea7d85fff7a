"""Sequence operators of opset 11: making, reading and editing lists of tensors."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Array, Value

__all__ = [
    "sequence_at",
    "sequence_construct",
    "sequence_empty",
    "sequence_erase",
    "sequence_insert",
    "sequence_length",
]

_Sequence = list[Value]


def sequence_construct(*inputs: Value) -> tuple[_Sequence]:
    """Return a sequence of the inputs, which may differ in shape but not in type."""
    return (list(inputs),)


def sequence_empty(*, dtype: int | None = None) -> tuple[_Sequence]:
    """Return a sequence that holds nothing; its element type matters to type inference only."""
    return ([],)


def sequence_length(input_sequence: _Sequence) -> tuple[Array]:
    """Return the number of elements, int64, of shape ()."""
    return (np.asarray(len(input_sequence), np.int64),)


def sequence_at(input_sequence: _Sequence, position: Array) -> tuple[Value]:
    """Return one element.

    Args:
        input_sequence: N elements.
        position: int32 or int64, one element, in [-N, N - 1]; negative counts from the back.

    Raises:
        KernelError: If `position` is out of range or has another number of elements.
    """
    size = len(input_sequence)
    return (input_sequence[_position(position, -size, size - 1)],)


def sequence_insert(
    input_sequence: _Sequence, tensor: Value, position: Array | None = None
) -> tuple[_Sequence]:
    """Return the sequence with one more element.

    Args:
        input_sequence: N elements.
        tensor: The new element, of the type of the others.
        position: int32 or int64, one element, in [-N, N]: the element before which it is put;
            None for the end.

    Raises:
        KernelError: If `position` is out of range, or `tensor` is of another type.
    """
    size = len(input_sequence)
    first = input_sequence[0] if size else tensor
    if isinstance(tensor, np.ndarray) and tensor.dtype != first.dtype:
        raise KernelError(f"`tensor` is of dtype {tensor.dtype}, expected {first.dtype}")
    where = size if position is None else _position(position, -size, size)
    where = where + size if where < 0 else where
    return ([*input_sequence[:where], tensor, *input_sequence[where:]],)


def sequence_erase(input_sequence: _Sequence, position: Array | None = None) -> tuple[_Sequence]:
    """Return the sequence without one element.

    Args:
        input_sequence: N elements.
        position: int32 or int64, one element, in [-N, N - 1]; None for the last.

    Raises:
        KernelError: If `position` is out of range, as it always is for an empty sequence.
    """
    size = len(input_sequence)
    if position is None and size == 0:
        raise KernelError("`input_sequence` is empty, expected an element to erase")
    where = size - 1 if position is None else _position(position, -size, size - 1) % size
    return ([*input_sequence[:where], *input_sequence[where + 1 :]],)


def _position(position: Array, low: int, high: int) -> int:
    if position.size != 1:
        raise KernelError(f"`position` has shape {position.shape}, expected one element")
    where = int(position.reshape(-1)[0])
    if not low <= where <= high:
        allowed = f"{low} to {high}" if low <= high else "none: the sequence is empty"
        raise KernelError(f"`position` is {where}, expected {allowed}")
    return where
