"""SequenceMap-17."""

from __future__ import annotations

from onnx_kvtool.core.quantity import counted
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Body, Value

__all__ = ["sequence_map"]


def sequence_map(
    input_sequence: list[Value], *additional_inputs: Value, body: Body
) -> tuple[Value, ...]:
    """Run a body on each element of a sequence.

    Args:
        input_sequence: N elements.
        additional_inputs: Sequences of N elements, gone through together with the first, or
            tensors, given to each run as they are.
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
