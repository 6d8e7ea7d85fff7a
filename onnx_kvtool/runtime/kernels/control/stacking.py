"""Outputs that grow by one element per iteration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Array, Body, Value

__all__ = ["Stack"]


class Stack:
    """One scan output.

    Args:
        body: The body that makes its elements.
        position: Which output of the body it is.
    """

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
        """Return all elements along a new axis.

        Without any, the shape is the one that the body declares, with 0 for what it leaves open.

        Args:
            axis: Position of the new axis in the result; negative counts from the back.
            backwards: Whether the last element comes first.

        Raises:
            KernelError: If `axis` is out of range, or there is no element and the body declares no
                type.
        """
        if not self._elements:
            empty = self._body.empty(self._position)
            return np.zeros(_insert(empty.shape, axis), empty.dtype)
        rank = self._elements[0].ndim + 1
        if not -rank <= axis < rank:
            raise KernelError(f"a scan output axis is {axis}, expected {-rank} to {rank - 1}")
        elements: Sequence[Array] = self._elements[::-1] if backwards else self._elements
        return np.stack(elements, axis=axis)


def _insert(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    rank = len(shape) + 1
    if not -rank <= axis < rank:
        raise KernelError(f"a scan output axis is {axis}, expected {-rank} to {rank - 1}")
    position = axis % rank
    return (*shape[:position], 0, *shape[position:])
