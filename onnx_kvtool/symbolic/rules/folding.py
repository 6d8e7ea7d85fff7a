"""What operators do to small integer tensors with some unknown elements.

The rules of `symbolic` say more, but only of runs that do not fail, and nothing of tables without a
pattern. What is folded here replaces nodes: an index out of range, or a sum that leaves int32, is
unknown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from onnx_kvtool.ops.view import counted_axes, counted_axis
from onnx_kvtool.symbolic.contents import LARGEST, Partial, elements
from onnx_kvtool.symbolic.dimensions import dims_of, product

_MOST_AXES = 32
"""Highest rank that is folded: numpy below 2.0 holds no more axes."""

LEAST, MOST = -(2**63), 2**63 - 1


Inputs = Sequence[Partial | None]
Attributes = Mapping[str, Any]
FoldRule = Callable[[ir.Node, Inputs, Attributes], Partial | None]
"""The elements of the output of a node, from those of its inputs and its attributes.

It is asked for a node that some version of its operator allows: required inputs and attributes are
there, attributes are of their types, and defaults are bound. None where nothing is known.
"""


def constant(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Constant: integers that the file itself holds."""
    if "value_int" in attributes:
        return Partial.whole(attributes["value_int"])
    if "value_ints" in attributes:
        return Partial.whole(list(attributes["value_ints"]))
    tensor = attributes.get("value")
    if tensor is None or isinstance(tensor, ir.ExternalTensor) or tensor.size > LARGEST:
        return None
    array = elements(tensor)
    if array is None or array.dtype not in (np.int64, np.int32, np.bool_):
        return None
    return Partial.whole(array)


def shape(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Shape: sizes that are numbers are known, others are not."""
    value = node.inputs[0]
    if value is None or value.shape is None:
        return None
    dims = dims_of(value) or ()
    numbers = [d if isinstance(d, int) else 0 for d in dims]
    known = [isinstance(d, int) for d in dims]
    part = slice(attributes.get("start"), attributes.get("end"))
    return Partial(np.asarray(numbers, np.int64)[part], np.asarray(known, np.bool_)[part])


def size(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Size: the number of elements, where each size is a number."""
    operand, dims = inputs[0], dims_of(node.inputs[0])
    if operand is not None:
        return Partial.whole(operand.numbers.size)
    count = None if dims is None else product(dims)
    return None if count is None or count > MOST else Partial.whole(count)


def identity(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Identity: its input."""
    return inputs[0]


def cast(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Cast among int64, int32 and bool; what does not fit int32 is unknown."""
    operand, to = inputs[0], attributes["to"]
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


def cast_like(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """CastLike, where the type of the other input is known."""
    like = node.inputs[1]
    return None if like is None else cast(node, inputs, {"to": like.dtype})


def _axes(node: ir.Node, inputs: Inputs, attributes: Attributes) -> tuple[int, ...] | None:
    """Return the axes of Squeeze or Unsqueeze: an input from opset 13 on, an attribute below."""
    if "axes" in attributes:
        return tuple(attributes["axes"])
    axes = inputs[1] if len(inputs) > 1 else None
    return tuple(int(a) for a in axes.numbers.ravel()) if axes and axes.complete else None


def squeeze(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Squeeze; None where an axis has another size than 1."""
    operand = inputs[0]
    if operand is None:
        return None
    axes = _axes(node, inputs, attributes)
    if axes is None and len(node.inputs) > 1 and node.inputs[1] is not None:
        return None
    shape = operand.numbers.shape
    if axes is not None:
        axes = counted_axes(axes, len(shape))
        if any(shape[axis] != 1 for axis in axes):
            return None
    return operand.both(lambda a: np.squeeze(a, axis=axes))


def unsqueeze(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Unsqueeze, up to the rank that numpy holds."""
    operand, axes = inputs[0], _axes(node, inputs, attributes)
    if operand is None or axes is None or operand.numbers.ndim + len(axes) > _MOST_AXES:
        return None
    axes = counted_axes(axes, operand.numbers.ndim + len(axes))
    return operand.both(lambda a: np.expand_dims(a, axis=axes))


def reshape(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Reshape to constants; none is 0, and one may be -1."""
    if len(inputs) < 2:
        return None  # Reshape-1, whose shape is an attribute
    operand, shape = inputs
    if operand is None or shape is None or not shape.complete or shape.numbers.ndim != 1:
        return None
    sizes = [int(n) for n in shape.numbers]
    if len(sizes) > _MOST_AXES or sizes.count(-1) > 1 or any(n == 0 or n < -1 for n in sizes):
        return None
    count, given = operand.numbers.size, math.prod(n for n in sizes if n != -1)
    if count % given if -1 in sizes else count != given:
        return None
    return operand.both(lambda a: a.reshape(sizes))


def concat(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Concat, also beside vectors with only their length known."""
    # An unknown operand still counts when it is known to be one vector of n.
    parts: list[Partial] = []
    for value, operand in zip(node.inputs, inputs, strict=True):
        if operand is not None:
            parts.append(operand)
            continue
        dims = dims_of(value)
        if dims is None or len(dims) != 1:
            return None
        (length,) = dims
        if not isinstance(length, int) or length > 64:
            return None
        parts.append(Partial(np.zeros(length, np.int64), np.zeros(length, np.bool_)))
    # The text of Concat-1 has a default that its schema lacks.
    axis = counted_axis(attributes.get("axis", 1), parts[0].numbers.ndim)
    others = {p.numbers.shape[:axis] + p.numbers.shape[axis + 1 :] for p in parts}
    if len(others) > 1 or len({p.numbers.ndim for p in parts}) > 1:
        return None
    return Partial(
        np.concatenate([p.numbers for p in parts], axis=axis),
        np.concatenate([p.known for p in parts], axis=axis),
    )


def gather(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Gather at constants; None where one lies outside of the axis."""
    operand, indices = inputs[0], inputs[1]
    if operand is None or indices is None or not indices.complete:
        return None
    axis = counted_axis(attributes["axis"], operand.numbers.ndim)
    if operand.numbers.ndim + indices.numbers.ndim > _MOST_AXES:
        return None
    size = operand.numbers.shape[axis]
    if ((indices.numbers < -size) | (indices.numbers >= size)).any():
        return None
    return operand.both(lambda a: np.take(a, indices.numbers, axis=axis))


def range_(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Range of constants, up to `LARGEST` apart."""
    given = [None if p is None or not p.complete else p.number for p in inputs]
    start, limit, delta = given
    if start is None or limit is None or not delta or abs(limit - start) > LARGEST:
        return None
    return Partial.whole(np.asarray(range(start, limit, delta), np.int64))


def where(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Where by constants."""
    condition, yes, no = inputs
    if condition is None or yes is None or no is None or not condition.complete:
        return None
    if not broadcasts(condition, yes, no):
        return None
    chosen = condition.numbers != 0
    return Partial(np.where(chosen, yes.numbers, no.numbers), np.where(chosen, yes.known, no.known))


def elementwise(compute: Callable[..., NDArray[Any]]) -> FoldRule:
    """Return the rule of an operator whose operands broadcast."""

    def fold(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
        operands = [p for p in inputs if p is not None]
        # Before version 7 attributes said how operands are broadcast.
        if len(operands) != len(inputs) or not operands or attributes:
            return None
        if not broadcasts(*operands):
            return None
        known = operands[0].known
        for operand in operands[1:]:
            known = known & operand.known
        with np.errstate(all="ignore"):
            numbers = np.asarray(compute(*(p.numbers for p in operands))).astype(np.int64)
        return Partial(numbers, np.broadcast_to(known, numbers.shape))

    return fold


def broadcasts(*operands: Partial) -> bool:
    """Return whether values broadcast, to no more elements than are folded."""
    try:
        shape = np.broadcast_shapes(*(operand.numbers.shape for operand in operands))
    except ValueError:
        return False
    return math.prod(shape) <= LARGEST


def _by_constants(compute: Callable[..., Any]) -> FoldRule:
    """Return the rule of an operator whose second operand is constant and nowhere 0."""

    def fold(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
        a, b = inputs
        if a is None or b is None or not b.complete or (b.numbers == 0).any():
            return None
        numbers = compute(a.numbers, b.numbers, attributes) if broadcasts(a, b) else None
        return (
            None if numbers is None else Partial(numbers, np.broadcast_to(a.known, numbers.shape))
        )

    return fold


@_by_constants
def divide(a: NDArray[Any], b: NDArray[Any], attributes: Attributes) -> Any:
    """Div, rounded towards zero."""
    if attributes or (a == LEAST).any() or (b == LEAST).any():
        return None  # has no absolute value
    return np.abs(a) // np.abs(b) * np.sign(a) * np.sign(b)


@_by_constants
def modulo(a: NDArray[Any], b: NDArray[Any], attributes: Attributes) -> Any:
    """Mod, with the sign that `fmod` sets."""
    return (np.fmod if attributes["fmod"] else np.mod)(a, b)


add = elementwise(np.add)
subtract = elementwise(np.subtract)
multiply = elementwise(np.multiply)
negate = elementwise(np.negative)
equal = elementwise(np.equal)
less = elementwise(np.less)
less_or_equal = elementwise(np.less_equal)
greater = elementwise(np.greater)
greater_or_equal = elementwise(np.greater_equal)
not_ = elementwise(np.logical_not)
and_ = elementwise(np.logical_and)
or_ = elementwise(np.logical_or)
xor = elementwise(np.logical_xor)
