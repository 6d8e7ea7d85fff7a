"""Scan-8 and Scan-9 to Scan-25."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnx_kvtool.core.quantity import counted
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.control.stacking import Stack
from onnx_kvtool.runtime.kernels.kernel import Array, Body, Value

__all__ = ["scan_8", "scan_9"]


def scan_9(
    *initial_state_and_scan_inputs: Array,
    body: Body,
    num_scan_inputs: int,
    scan_input_axes: tuple[int, ...] | None = None,
    scan_input_directions: tuple[int, ...] | None = None,
    scan_output_axes: tuple[int, ...] | None = None,
    scan_output_directions: tuple[int, ...] | None = None,
) -> tuple[Value, ...]:
    """Run a body once per element along an axis of its inputs.

    Args:
        initial_state_and_scan_inputs: N states, then M inputs that are gone through.
        body: (states..., elements...) to (states..., scan outputs...).
        num_scan_inputs: M.
        scan_input_axes: Axis of each scan input; None for 0. Negative ones count from the back.
        scan_input_directions: 1 goes through a scan input backwards; None for 0.
        scan_output_axes: Axis along which each scan output is stacked; None for 0.
        scan_output_directions: 1 puts the last element first; None for 0.

    Returns:
        The states after the last element, then the scan outputs.

    Raises:
        KernelError: If an axis or direction is out of range, lists have other lengths than there
            are inputs or outputs, or the scan inputs have different sizes along their axes.
    """
    values = initial_state_and_scan_inputs
    if not 1 <= num_scan_inputs <= len(values):
        raise KernelError(
            f"`num_scan_inputs` is {num_scan_inputs}, expected 1 to {len(values)}, the inputs"
        )
    count = len(values) - num_scan_inputs
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
    directions: tuple[int, ...] | None = None,
) -> tuple[Value, ...]:
    """Run a body once per row of a batch and per element of the row.

    Args:
        sequence_lens: (B,), int64: elements of each row; None for all.
        initial_state_and_scan_inputs: N states (B, ...), then M inputs (B, S, ...).
        body: (states..., elements...) to (states..., scan outputs...), without the batch axis.
        num_scan_inputs: M.
        directions: 1 goes through a scan input backwards; None for 0.

    Returns:
        The states (B, ...), then the scan outputs (B, S, ...), zero behind the end of a row.

    Raises:
        KernelError: As `scan_9`; also if batch sizes differ or a length is out of range.
    """
    values = initial_state_and_scan_inputs
    if not 1 <= num_scan_inputs <= len(values):
        raise KernelError(
            f"`num_scan_inputs` is {num_scan_inputs}, expected 1 to {len(values)}, the inputs"
        )
    count = len(values) - num_scan_inputs
    backwards = _directions("directions", directions, num_scan_inputs)
    batch, size = values[-1].shape[:2]
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
        padded = [_padded(stack.result(), size) for stack in stacks]
        rows.append([*states, *padded])
    return tuple(np.stack(column) for column in zip(*rows, strict=True))


def _run(
    body: Body, states: Sequence[Value], scanned: Sequence[Array], outputs: int
) -> tuple[list[Value], list[Stack]]:
    """Return the last states and the scan outputs; each scanned array has its axis in front."""
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
        if not -array.ndim <= axis < array.ndim:
            raise KernelError(
                f"a scan input axis is {axis}, expected {-array.ndim} to {array.ndim - 1}"
            )
        moved = np.moveaxis(array, axis, 0)
        found.append(moved[::-1] if is_backwards else moved)
    return found


def _listed(name: str, values: tuple[int, ...] | None, count: int) -> tuple[int, ...]:
    if values is None:
        return (0,) * count
    if len(values) != count:
        raise KernelError(f"`{name}` has {counted(len(values), 'element')}, expected {count}")
    return values


def _directions(name: str, values: tuple[int, ...] | None, count: int) -> tuple[bool, ...]:
    listed = _listed(name, values, count)
    if any(value not in (0, 1) for value in listed):
        raise KernelError(f"`{name}` is {list(listed)}, expected zeros and ones")
    return tuple(bool(value) for value in listed)


def _padded(array: Array, size: int) -> Array:
    result = np.zeros((size, *array.shape[1:]), array.dtype)
    result[: len(array)] = array
    return result
