"""Multidirectional broadcasting, with a message that names the axis that does not fit.

Not that of `symbolic.broadcasting`: inference is tested against the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.room import require_room

__all__ = ["broadcast_shape", "check_operands"]


def broadcast_shape(shapes: Sequence[tuple[int, ...]], names: Sequence[str]) -> tuple[int, ...]:
    """Return the shape that all shapes broadcast to, aligned at their last axes.

    Args:
        shapes: At least one.
        names: Formal names of the inputs, for the message.

    Raises:
        KernelError: If two shapes have different sizes along one axis and neither is 1.
    """
    rank = max(len(shape) for shape in shapes)
    result = [1] * rank
    owner = [0] * rank
    for number, shape in enumerate(shapes):
        for back, size in enumerate(reversed(shape), start=1):
            if size == 1 or size == result[-back]:
                continue
            if result[-back] != 1:
                other = owner[-back]
                raise KernelError(
                    f"`{names[other]}` with shape {shapes[other]} and `{names[number]}` with shape "
                    f"{shape} do not broadcast: axis {-back} has sizes {result[-back]} and {size}"
                )
            result[-back], owner[-back] = size, number
    return tuple(result)


def check_operands(operands: Sequence[Array], names: Sequence[str]) -> None:
    """Check that operands have one dtype and shapes that broadcast, with room for the result.

    Raises:
        KernelError: If they do not.
    """
    first = operands[0]
    for name, operand in zip(names[1:], operands[1:], strict=True):
        if operand.dtype != first.dtype:
            raise KernelError(
                f"`{name}` is of dtype {operand.dtype}, expected {first.dtype} as `{names[0]}`"
            )
    if any(operand.shape != first.shape for operand in operands):
        shape = broadcast_shape([operand.shape for operand in operands], names)
        require_room(shape, first.dtype)
