"""What operators do to small integer tensors of which some elements are unknown."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

__all__ = ["FOLDERS", "Partial"]


@dataclass(frozen=True, slots=True)
class Partial:
    """An integer tensor of which some elements may be unknown.

    Attributes:
        numbers: int64, of the value's shape; an unknown element holds any number.
        known: bool, of the same shape.
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

    def both(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Partial:
        """Return the tensor after a movement that applies to numbers and mask alike."""
        return Partial(change(self.numbers), change(self.known))


_Inputs = Sequence[Partial | None]
_Attributes = Mapping[str, Any]
_Folder = Callable[[ir.Node, _Inputs, _Attributes], Partial | None]


def _constant(node: ir.Node, inputs: _Inputs, attributes: _Attributes) -> Partial | None:
    if "value_int" in attributes:
        return Partial.whole(attributes["value_int"])
    if "value_ints" in attributes:
        return Partial.whole(list(attributes["value_ints"]))
    tensor = attributes.get("value")
    if tensor is None or isinstance(tensor, ir.ExternalTensor) or tensor.size > 4096:
        return None
    array = np.asarray(tensor.numpy())
    return Partial.whole(array) if array.dtype in (np.int64, np.int32, np.bool_) else None


def _shape(node: ir.Node, inputs: _Inputs, attributes: _Attributes) -> Partial | None:
    value = node.inputs[0]
    if value is None or value.shape is None:
        return None
    numbers = [d if isinstance(d, int) else 0 for d in value.shape]
    known = [isinstance(d, int) for d in value.shape]
    part = slice(attributes.get("start", 0), attributes.get("end"))
    return Partial(np.asarray(numbers, np.int64)[part], np.asarray(known, np.bool_)[part])


def _size(node: ir.Node, inputs: _Inputs, attributes: _Attributes) -> Partial | None:
    value, operand = node.inputs[0], inputs[0]
    if operand is not None:
        return Partial.whole(operand.numbers.size)
    if value is None or value.shape is None or not all(isinstance(d, int) for d in value.shape):
        return None
    return Partial.whole(math.prod(d for d in value.shape if isinstance(d, int)))


def _same(node: ir.Node, inputs: _Inputs, attributes: _Attributes) -> Partial | None:
    return inputs[0]


def _cast(node: ir.Node, inputs: _Inputs, attributes: _Attributes) -> Partial | None:
    operand, to = inputs[0], ir.DataType(attributes["to"])
    if operand is None:
        return None
    if to == ir.DataType.BOOL:
        return Partial((operand.numbers != 0).astype(np.int64), operand.known)
    if to == ir.DataType.INT64:
        return operand
    if to == ir.DataType.INT32:
        narrow = operand.numbers.astype(np.int32).astype(np.int64)
        return Partial(narrow, operand.known & (narrow == operand.numbers))
    return None


def _axes(node: ir.Node, inputs: _Inputs, attributes: _Attributes) -> tuple[int, ...] | None:
    """Return the axes of Squeeze or Unsqueeze: an input from opset 13 on, an attribute below."""
    if "axes" in attributes:
        return tuple(attributes["axes"])
    axes = inputs[1] if len(inputs) > 1 else None
    return tuple(int(a) for a in axes.numbers.ravel()) if axes and axes.complete else None


def _squeeze(node: ir.Node, inputs: _Inputs, attributes: _Attributes) -> Partial | None:
    operand = inputs[0]
    if operand is None:
        return None
    axes = _axes(node, inputs, attributes)
    if axes is None and len(node.inputs) > 1 and node.inputs[1] is not None:
        return None
    return operand.both(lambda a: np.squeeze(a, axis=axes))


def _unsqueeze(node: ir.Node, inputs: _Inputs, attributes: _Attributes) -> Partial | None:
    operand, axes = inputs[0], _axes(node, inputs, attributes)
    if operand is None or axes is None:
        return None
    return operand.both(lambda a: np.expand_dims(a, axis=axes))


def _reshape(node: ir.Node, inputs: _Inputs, attributes: _Attributes) -> Partial | None:
    operand, shape = inputs[0], inputs[1]
    if operand is None or shape is None or not shape.complete or (shape.numbers == 0).any():
        return None
    return operand.both(lambda a: a.reshape(shape.numbers))


def _concat(node: ir.Node, inputs: _Inputs, attributes: _Attributes) -> Partial | None:
    # An operand of which nothing is known still counts when it is known to be one vector of n.
    parts: list[Partial] = []
    for value, operand in zip(node.inputs, inputs, strict=True):
        if operand is not None:
            parts.append(operand)
            continue
        if value is None or value.shape is None or len(value.shape) != 1:
            return None
        length = value.shape[0]
        if not isinstance(length, int) or length > 64:
            return None
        parts.append(Partial(np.zeros(length, np.int64), np.zeros(length, np.bool_)))
    axis = attributes["axis"]
    return Partial(
        np.concatenate([p.numbers for p in parts], axis=axis),
        np.concatenate([p.known for p in parts], axis=axis),
    )


def _gather(node: ir.Node, inputs: _Inputs, attributes: _Attributes) -> Partial | None:
    operand, indices = inputs[0], inputs[1]
    if operand is None or indices is None or not indices.complete:
        return None
    axis = attributes.get("axis", 0)
    size = operand.numbers.shape[axis] if operand.numbers.ndim else 0
    if ((indices.numbers < -size) | (indices.numbers >= size)).any():
        return None
    return operand.both(lambda a: np.take(a, indices.numbers, axis=axis))


def _slice(node: ir.Node, inputs: _Inputs, attributes: _Attributes) -> Partial | None:
    operand = inputs[0]
    if operand is None or operand.numbers.ndim != 1 or len(inputs) < 3:
        return None
    given = [p if p is not None and p.complete else None for p in inputs[1:]]
    if any(p is None for p, v in zip(given, node.inputs[1:], strict=True) if v is not None):
        return None
    start, end = given[0], given[1]
    step = given[3] if len(given) > 3 else None
    if start is None or end is None:
        return None
    one = slice(
        int(start.numbers.ravel()[0]),
        int(end.numbers.ravel()[0]),
        int(step.numbers.ravel()[0]) if step is not None else 1,
    )
    return operand.both(lambda a: a[one])


def _range(node: ir.Node, inputs: _Inputs, attributes: _Attributes) -> Partial | None:
    numbers = [int(p.numbers.ravel()[0]) for p in inputs if p is not None and p.complete]
    if len(numbers) != 3 or numbers[2] == 0 or abs(numbers[1] - numbers[0]) > 4096:
        return None
    return Partial.whole(np.arange(*numbers, dtype=np.int64))


def _where(node: ir.Node, inputs: _Inputs, attributes: _Attributes) -> Partial | None:
    condition, yes, no = inputs
    if condition is None or yes is None or no is None or not condition.complete:
        return None
    chosen = condition.numbers != 0
    return Partial(np.where(chosen, yes.numbers, no.numbers), np.where(chosen, yes.known, no.known))


def _elementwise(compute: Callable[..., NDArray[Any]]) -> _Folder:
    def fold(node: ir.Node, inputs: _Inputs, attributes: _Attributes) -> Partial | None:
        operands = [p for p in inputs if p is not None]
        if len(operands) != len(inputs) or not operands:
            return None
        known = operands[0].known
        for operand in operands[1:]:
            known = known & operand.known
        with np.errstate(all="ignore"):
            numbers = np.asarray(compute(*(p.numbers for p in operands))).astype(np.int64)
        return Partial(numbers, np.broadcast_to(known, numbers.shape))

    return fold


def _divide(node: ir.Node, inputs: _Inputs, attributes: _Attributes) -> Partial | None:
    a, b = inputs
    if a is None or b is None or not b.complete or (b.numbers == 0).any():
        return None
    quotient = np.abs(a.numbers) // np.abs(b.numbers)  # ONNX truncates towards zero
    numbers = quotient * np.sign(a.numbers) * np.sign(b.numbers)
    return Partial(numbers, np.broadcast_to(a.known, numbers.shape))


def _modulo(node: ir.Node, inputs: _Inputs, attributes: _Attributes) -> Partial | None:
    a, b = inputs
    if a is None or b is None or not b.complete or (b.numbers == 0).any():
        return None
    numbers = (np.fmod if attributes.get("fmod", 0) else np.mod)(a.numbers, b.numbers)
    return Partial(numbers, np.broadcast_to(a.known, numbers.shape))


FOLDERS: Mapping[str, _Folder] = {
    "Constant": _constant,
    "Shape": _shape,
    "Size": _size,
    "Identity": _same,
    "Cast": _cast,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Reshape": _reshape,
    "Concat": _concat,
    "Gather": _gather,
    "Slice": _slice,
    "Range": _range,
    "Where": _where,
    "Add": _elementwise(np.add),
    "Sub": _elementwise(np.subtract),
    "Mul": _elementwise(np.multiply),
    "Div": _divide,
    "Mod": _modulo,
    "Neg": _elementwise(np.negative),
    "Equal": _elementwise(np.equal),
    "Less": _elementwise(np.less),
    "Greater": _elementwise(np.greater),
    "Not": _elementwise(np.logical_not),
    "And": _elementwise(np.logical_and),
    "Or": _elementwise(np.logical_or),
}
