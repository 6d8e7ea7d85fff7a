"""If, Loop and Scan, and sequences of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnx_kvtool.core.words import counted
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axis
from onnx_kvtool.runtime.kernels.kernel import Array, Body, Ints, Lines, Value, Values

# Conditions and counts of control flow.


def single(name: str, value: Value, dtype: type[np.generic] = np.bool_) -> Any:
    """Return a condition, or another single element, as a value of Python. Its rank is any.

    Raises:
        KernelError: If it is no array of one element of the type.
    """
    is_array = isinstance(value, np.ndarray)
    if not is_array or value.dtype != dtype or value.size != 1:
        got = f"{value.dtype} {value.shape}" if is_array else type(value).__name__
        expected = np.dtype(dtype).name
        raise KernelError(f"`{name}` is {got}, expected one element of type {expected}")
    return value.item()


# If-1 to If-25.


def conditional(cond: Value, *, then_branch: Body, else_branch: Body) -> tuple[Value, ...]:
    """Run one of two bodies, and return its outputs.

    Raises:
        KernelError: If `cond` is no boolean of one element.
    """
    return tuple(then_branch() if single("cond", cond) else else_branch())


# Outputs that grow by one element per iteration.


class Stack:
    """One scan output."""

    def __init__(self, body: Body, position: int) -> None:
        self._body = body
        self._position = position
        self._elements: list[Array] = []

    def add(self, element: Value) -> None:
        """Add the element of one iteration.

        Raises:
            KernelError: If it is no tensor, or has another shape or type than the first.
        """
        label = f"output {self._position} of the body"
        if not isinstance(element, np.ndarray):
            raise KernelError(f"{label} is a {type(element).__name__}, expected a tensor")
        if self._elements:
            first = self._elements[0]
            if (element.shape, element.dtype) != (first.shape, first.dtype):
                raise KernelError(
                    f"{label} is {element.dtype} {element.shape} in iteration "
                    f"{len(self._elements)}, expected {first.dtype} {first.shape} as before"
                )
        # A copy: a later iteration may write into the buffer that this one gave back.
        self._elements.append(np.array(element, copy=True))

    def result(self, axis: int = 0, *, backwards: bool = False) -> Array:
        """Return all elements along a new axis of the result; a negative one counts from the back.

        Without any, the shape is the one that the body declares, with 0 for sizes that are open.

        Raises:
            KernelError: If `axis` is out of range, or there is no element and the body declares no
                type.
        """
        elements = self._elements or [self._body.empty(self._position)]
        name, output = "scan_output_axes", f"output {self._position}"
        axis = count_axis(axis, elements[0].ndim + 1, name=name, of=output)
        stacked = np.stack(elements[::-1] if backwards else elements, axis=axis)
        return stacked if self._elements else np.take(stacked, np.arange(0), axis)


# Loop-1 to Loop-25.


def loop(M: Value = None, cond: Value = None, *v_initial: Value, body: Body) -> tuple[Value, ...]:
    """Run a body again and again.

    A state that the body updates in place, such as a cache, is updated without a copy from the
    second iteration on.

    Args:
        M: int64, one element: the most iterations; None for no limit. Below 1 there are none.
        cond: bool, one element: whether to run the first iteration; None for yes.
        v_initial: States before the first iteration, tensors, sequences or optionals.
        body: (iteration number, condition, states...) to (condition, states..., scan outputs...).

    Returns:
        The states after the last iteration, then each scan output stacked along a new first axis;
        without any iteration a scan output has 0 elements.

    Raises:
        KernelError: If `M` is no int64 of one element, a condition no boolean of one element, the
            body has other numbers of inputs or outputs, or a scan output changes shape or type.
    """
    limit = None if M is None else single("M", M, np.int64)
    goes_on = True if cond is None else single("cond", cond)
    states = list(v_initial)
    if len(body.outputs) < 1 + len(states):
        raise KernelError(
            f"the body has {counted(len(body.outputs), 'output')}, expected at least "
            f"{1 + len(states)}: a condition and {counted(len(states), 'state')}"
        )
    stacks = [Stack(body, k) for k in range(1 + len(states), len(body.outputs))]
    iteration = 0
    while goes_on and (limit is None or iteration < limit):
        results = body(
            np.asarray(iteration, np.int64),
            np.asarray(goes_on),
            *states,
            given_up=range(2, 2 + len(states)),
        )
        goes_on = single("the condition that the body returns", results[0])
        states = list(results[1 : 1 + len(states)])
        for stack, element in zip(stacks, results[1 + len(states) :], strict=True):
            stack.add(element)
        iteration += 1
    return (*states, *(stack.result() for stack in stacks))


# Scan-8 and Scan-9 to Scan-25.


def scan_9(
    *initial_state_and_scan_inputs: Array,
    body: Body,
    num_scan_inputs: int,
    scan_input_axes: Ints | None = None,
    scan_input_directions: Ints | None = None,
    scan_output_axes: Ints | None = None,
    scan_output_directions: Ints | None = None,
) -> tuple[Value, ...]:
    """Run a body once per element along an axis of its inputs.

    Args:
        initial_state_and_scan_inputs: N states, then M inputs to scan.
        body: (states..., elements...) to (states..., scan outputs...).
        num_scan_inputs: M.
        scan_input_axes: Axis of each scan input; None for 0. Negative ones count from the back.
        scan_input_directions: 1 scans an input backwards; None for 0.
        scan_output_axes: Axis along which each scan output is stacked; None for 0.
        scan_output_directions: 1 puts the last element first; None for 0.

    Returns:
        The states after the last element, then the scan outputs.

    Raises:
        KernelError: If an axis or direction is out of range, lists have other lengths than there
            are inputs or outputs, or the scan inputs have different sizes along their axes.
    """
    values = initial_state_and_scan_inputs
    count = _states(values, num_scan_inputs)
    outputs = len(body.outputs) - count
    if outputs < 0:
        raise KernelError(
            f"the body has {counted(len(body.outputs), 'output')}, expected at least {count}"
        )
    scanned = _front(
        values[count:],
        _listed("scan_input_axes", scan_input_axes, num_scan_inputs),
        _directions("scan_input_directions", scan_input_directions, num_scan_inputs),
    )
    axes = _listed("scan_output_axes", scan_output_axes, outputs)
    backwards = _directions("scan_output_directions", scan_output_directions, outputs)
    states, stacks = _run(body, values[:count], scanned, outputs)
    stacked = (s.result(a, backwards=b) for s, a, b in zip(stacks, axes, backwards, strict=True))
    return (*states, *stacked)


def scan_8(
    sequence_lens: Array | None = None,
    *initial_state_and_scan_inputs: Array,
    body: Body,
    num_scan_inputs: int,
    directions: Ints | None = None,
) -> tuple[Value, ...]:
    """Run a body once per row of a batch and per element of the row.

    Args:
        sequence_lens: (B,), int64: elements of each row; None for all.
        initial_state_and_scan_inputs: N states (B, ...), then M inputs (B, S, ...).
        body: (states..., elements...) to (states..., scan outputs...), without the batch axis.
        num_scan_inputs: M.
        directions: 1 scans an input backwards; None for 0.

    Returns:
        The states (B, ...), then the scan outputs (B, S, ...), zero after the end of a row.

    Raises:
        KernelError: As `scan_9`; also if an input is absent, the scan inputs differ in their first
            two sizes, batch sizes differ, a length is out of range, or the rows of a result differ.
    """
    values = initial_state_and_scan_inputs
    count = _states(values, num_scan_inputs)
    backwards = _directions("directions", directions, num_scan_inputs)
    if not all(isinstance(value, np.ndarray) for value in values):
        raise KernelError("an input is absent, expected a tensor for each state and scan input")
    shapes = [v.shape for v in values[count:]]
    if min(map(len, shapes)) < 2 or len({shape[:2] for shape in shapes}) > 1:
        raise KernelError(
            f"the scan inputs have shapes {shapes}, expected the same first two sizes: the batch "
            "and the elements of each row"
        )
    batch, size = shapes[0][:2]
    if any(v.shape[:1] != (batch,) for v in values):
        raise KernelError(f"batch sizes differ: {[v.shape[:1] for v in values]}")
    lengths = [size] * batch if sequence_lens is None else sequence_lens.reshape(-1).tolist()
    if len(lengths) != batch or not all(0 <= length <= size for length in lengths):
        raise KernelError(
            f"`sequence_lens` is {lengths}, expected {counted(batch, 'number')} up to {size}"
        )
    rows = []
    for row, length in enumerate(lengths):
        parts = [value[row, :length] for value in values[count:]]
        scanned = _front(parts, (0,) * num_scan_inputs, backwards)
        states, stacks = _run(
            body, [v[row] for v in values[:count]], scanned, len(body.outputs) - count
        )
        found = [stack.result() for stack in stacks]
        rest = [np.zeros((size - length, *array.shape[1:]), array.dtype) for array in found]
        rows.append([*states, *map(np.concatenate, zip(found, rest, strict=True))])
    try:
        return tuple(np.stack(column) for column in zip(*rows, strict=True))
    except ValueError as error:
        raise KernelError("the rows of a state or scan output differ in shape") from error


def _states(values: Sequence[Array], scanned: int) -> int:
    """Return how many of the inputs are states."""
    if not 1 <= scanned <= len(values):
        raise KernelError(
            f"`num_scan_inputs` is {scanned}, expected 1 to {len(values)}, the inputs"
        )
    return len(values) - scanned


def _run(
    body: Body, states: Values, scanned: Sequence[Array], outputs: int
) -> tuple[list[Value], list[Stack]]:
    """Return the last states and the scan outputs; arrays are scanned along their first axis."""
    sizes = {array.shape[0] for array in scanned}
    if len(sizes) != 1:
        raise KernelError(f"the scan inputs have different sizes along their axes: {sorted(sizes)}")
    count = len(states)
    current = list(states)
    stacks = [Stack(body, count + k) for k in range(outputs)]
    for index in range(sizes.pop()):
        elements = [np.asarray(array[index]) for array in scanned]
        results = body(*current, *elements, given_up=range(count))
        current = list(results[:count])
        for stack, element in zip(stacks, results[count:], strict=True):
            stack.add(element)
    return current, stacks


def _front(arrays: Sequence[Array], axes: Sequence[int], backwards: Sequence[bool]) -> list[Array]:
    found = []
    for array, axis, is_backwards in zip(arrays, axes, backwards, strict=True):
        front = count_axis(axis, array.ndim, name="scan_input_axes", of="scan input")
        moved = np.moveaxis(array, front, 0)
        found.append(moved[::-1] if is_backwards else moved)
    return found


def _listed(name: str, values: Ints | None, count: int) -> Ints:
    if values is None:
        return (0,) * count
    if len(values) != count:
        raise KernelError(f"`{name}` has {counted(len(values), 'element')}, expected {count}")
    return values


def _directions(name: str, values: Ints | None, count: int) -> tuple[bool, ...]:
    listed = _listed(name, values, count)
    if any(value not in (0, 1) for value in listed):
        raise KernelError(f"`{name}` is {list(listed)}, expected zeros and ones")
    return tuple(bool(value) for value in listed)


# Sequences of tensors.

# Operators on sequences and optionals that onnx.reference cannot compute; it runs the others.


_Sequence = list[Value]


def optional(input: Value = None, *, type: object = None) -> Value:
    """Return an optional with `input`; an empty one if that is absent."""
    return input


def sequence_insert(
    input_sequence: _Sequence, tensor: Value, position: Array | None = None
) -> _Sequence:
    """Return the sequence with one more element.

    `position` is the place in the result, in [-N, N] for N elements; None for the end.

    Raises:
        KernelError: If `position` is out of range, or `tensor` is of another type.
    """
    size = len(input_sequence)
    first = input_sequence[0] if size else tensor
    if isinstance(tensor, np.ndarray) and tensor.dtype != first.dtype:
        raise KernelError(f"`tensor` is of dtype {tensor.dtype}, expected {first.dtype}")
    where = size
    if position is not None:
        if position.size != 1:
            raise KernelError(f"`position` has shape {position.shape}, expected one element")
        where = int(position.reshape(-1)[0])
        if not -size <= where <= size:
            raise KernelError(f"`position` is {where}, expected {-size} to {size}")
    return [*input_sequence[:where], tensor, *input_sequence[where:]]


def sequence_map(
    input_sequence: list[Value], *additional_inputs: Value, body: Body
) -> tuple[Value, ...]:
    """Run a body on each element of a sequence.

    Each run gets one element of an additional sequence, and the whole of an additional tensor.

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


# Sequences and optionals; onnx.reference runs the others.


LINES: Lines = {
    "Optional": {15: optional},
    "SequenceInsert": {11: sequence_insert},
    "SequenceMap": {17: sequence_map},
    "If": {1: conditional},
    "Loop": {1: loop},
    "Scan": {8: scan_8, 9: scan_9},
}
"""Operators of this module with their kernels, oldest first."""
