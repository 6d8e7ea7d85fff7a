"""Sequences of tensors."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.core.words import counted
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Array, Body, Lines, Value

# Operators on sequences and optionals that onnx.reference cannot compute; it runs the others.


_Sequence = list[Value]


def optional(input: Value = None, *, type: object = None) -> tuple[Value]:
    """Return an optional with `input`; an empty one if that is absent.

    Args:
        input: A tensor or sequence; None if absent.
        type: The type of an absent input; for type inference only.
    """
    return (input,)


def sequence_insert(
    input_sequence: _Sequence, tensor: Value, position: Array | None = None
) -> tuple[_Sequence]:
    """Return the sequence with one more element.

    Args:
        input_sequence: N elements.
        tensor: The new element, of the type of the others.
        position: int32 or int64, one element, in [-N, N]: its place in the result; None for the
            end.

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


def sequence_map(
    input_sequence: list[Value], *additional_inputs: Value, body: Body
) -> tuple[Value, ...]:
    """Run a body on each element of a sequence.

    Args:
        input_sequence: N elements.
        additional_inputs: Sequences of N elements: each run gets one element; or tensors: each run
            gets the whole.
        body: (element, additional...) to outputs.

    Returns:
        One sequence of N elements per output of the body.

    Raises:
        KernelError: If the sequences differ in length.
    """
    size = len(input_sequence)
    for position, other in enumerate(additional_inputs):
        if isinstance(other, list) and len(other) != size:
            raise KernelError(
                f"`additional_inputs`[{position}] has {counted(len(other), 'element')}, expected "
                f"{size} as `input_sequence`"
            )
    results: list[list[Value]] = [[] for _ in body.outputs]
    for index, element in enumerate(input_sequence):
        others = [v[index] if isinstance(v, list) else v for v in additional_inputs]
        for result, value in zip(results, body(element, *others), strict=True):
            result.append(value)
    return tuple(results)


def _position(position: Array, low: int, high: int) -> int:
    if position.size != 1:
        raise KernelError(f"`position` has shape {position.shape}, expected one element")
    where = int(position.reshape(-1)[0])
    if not low <= where <= high:
        allowed = f"{low} to {high}" if low <= high else "none: the sequence is empty"
        raise KernelError(f"`position` is {where}, expected {allowed}")
    return where


# Sequences and optionals; onnx.reference runs the others.


LINES: Lines = {
    "Optional": {15: optional},
    "SequenceInsert": {11: sequence_insert},
    "SequenceMap": {17: sequence_map},
}
"""Operators of this module with their kernels, oldest first."""
