"""Contents of values: the shape, and the elements as functions of their coordinates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.model_io import external_data
from onnx_kvtool.ops.traits import WHOLE_TYPES
from onnx_kvtool.symbolic.expressions import ZERO, Expr, Exprs, coordinate, integer
from onnx_kvtool.symbolic.simplification import Facts, substitute

MOST_PARTS = 64
"""Longest axis along which the elements are described one by one."""


class IndexMap(NamedTuple):
    """The shape and the elements of a value.

    Attributes:
        shape: Size of each axis, an expression without coordinates; None when the rank is unknown.
        dtype: Element type; None when unknown.
        axis: The axis along which the elements have no common expression; None when they have.
        parts: One expression of all elements, over the coordinates of the value. With an `axis`,
            one expression per place along it, over the other coordinates. () when nothing is known.
    """

    shape: Exprs | None
    dtype: ir.DataType | None
    axis: int | None = None
    parts: Exprs = ()

    @staticmethod
    def whole(shape: Sequence[Expr], dtype: ir.DataType | None, element: Expr) -> IndexMap:
        """Return a map whose elements all have one expression."""
        shape = tuple(shape)
        ones = {i: ZERO for i in element.axes if shape[i].number == 1}
        return IndexMap(shape, dtype, None, (substitute(element, ones, Facts(shape)),))

    @staticmethod
    def stacked(
        shape: Sequence[Expr], dtype: ir.DataType | None, axis: int, parts: Sequence[Expr]
    ) -> IndexMap:
        """Return a map with one expression per place along `axis`, and one for all if possible."""
        shape = tuple(shape)
        if not parts:
            return IndexMap.whole(shape, dtype, ZERO)
        step = (parts[1] - parts[0]).number if len(parts) > 1 else 0
        if step is not None and all(
            part == parts[0] + step * i for i, part in enumerate(parts[1:], 1)
        ):
            return IndexMap.whole(shape, dtype, parts[0] + coordinate(axis) * step)
        return IndexMap(shape, dtype, axis, tuple(parts))

    @property
    def facts(self) -> Facts:
        """What is known of the coordinates."""
        return Facts(self.shape or ())

    @property
    def known(self) -> bool:
        """Whether anything is known of the elements."""
        return bool(self.parts)

    @property
    def element(self) -> Expr | None:
        """The one expression of all elements; None when unknown or if it differs along `axis`."""
        return self.parts[0] if self.parts and self.axis is None else None

    def along(self, axis: int) -> Exprs | None:
        """Return one expression per place along `axis`, over the other coordinates.

        None when the elements are unknown, differ along another axis, there is no such axis, or it
        has no fixed size of at most `MOST_PARTS`.
        """
        if self.shape is None or not self.parts or axis >= len(self.shape):
            return None
        if self.axis is not None:
            return self.parts if self.axis == axis else None
        size = self.shape[axis].number
        if size is None or size > MOST_PARTS:
            return None
        (element,) = self.parts
        facts = self.facts
        return tuple(substitute(element, {axis: integer(k)}, facts) for k in range(size))

    def vector(self) -> Exprs | None:
        """Return the elements one by one, for a value of rank 1 and known small size."""
        return self.along(0) if self.shape is not None and len(self.shape) == 1 else None

    def scalar(self) -> Expr | None:
        """Return the only element, of a value whose sizes are all 1 or that has rank 0."""
        if self.shape is None or any(size.number != 1 for size in self.shape):
            return None
        return self.element

    def component(self, place: int) -> IndexMap | None:
        """Return the map of `value[..., place]`, one component of an index tuple per place.

        None when `along` of the last axis is.

        Raises:
            IndexError: If the value has fewer than `place + 1` components.
        """
        if not self.shape:
            return None
        parts = self.along(len(self.shape) - 1)
        if parts is None:
            return None
        return IndexMap.whole(self.shape[:-1], self.dtype, parts[place])


# Computing a fact of a value from the facts of what it is computed from, without recursion.


F = TypeVar("F")


def fill(
    value: ir.Value,
    memo: dict[ir.Value, F],
    operands: Callable[[ir.Value], Iterable[ir.Value]],
    compute: Callable[[ir.Value], F],
) -> F:
    """Return the fact of `value`, and put it and all that it needs into `memo`.

    Each value is computed once, after its operands; the work is linear in the edges between them,
    and chains may be as long as the graph.

    Args:
        value: The value that is asked about.
        memo: Facts known so far.
        operands: The values whose facts `compute` looks up in `memo`.
        compute: The fact of one value. In a graph with a cycle, which is not valid, the fact of one
            value on it is missing from `memo`.
    """
    stack = [value]
    begun: set[ir.Value] = set()
    while stack:
        top = stack[-1]
        if top not in memo and top not in begun:
            begun.add(top)
            missing = [v for v in operands(top) if v not in memo and v not in begun]
            if missing:
                stack.extend(missing)
                continue
        stack.pop()
        if top not in memo:
            memo[top] = compute(top)
    return memo[value]


# The elements of tensors in a file.


def elements(tensor: ir.TensorProtocol) -> NDArray[Any] | None:
    """Return the elements of a tensor; None if they cannot be read.

    The data does not fit the shape, the type is undefined, the file is missing or must not be
    opened, or the tensor is sparse.
    """
    try:
        return np.asarray(external_data.array(tensor))
    except KvtoolError:
        return None


# Small integer tensors with possibly unknown elements.


LARGEST = 4096
"""Most elements of a value that is folded; larger tensors are weights, and never read."""


class Partial(NamedTuple):
    """An integer tensor with possibly unknown elements.

    Attributes:
        numbers: int64, of the value's shape; an unknown element has any number.
    """

    numbers: NDArray[np.int64]
    known: NDArray[np.bool_]

    @staticmethod
    def whole(array: Any) -> Partial:
        """Return a tensor whose elements are all known."""
        numbers = np.asarray(array).astype(np.int64)
        return Partial(numbers, np.ones(numbers.shape, np.bool_))

    @property
    def complete(self) -> bool:
        """Whether every element is known."""
        return bool(self.known.all())


def tensor_integers(tensor: ir.TensorProtocol) -> Partial | None:
    """Return the elements of a small embedded integer tensor; None for any other tensor."""
    if tensor.dtype not in WHOLE_TYPES or isinstance(tensor, ir.ExternalTensor):
        return None
    array = None if tensor.size > LARGEST else elements(tensor)
    return None if array is None else Partial.whole(array)
