"""What operators do to small integer tensors with some unknown elements.

The rules of `symbolic` say more, but only of runs that do not fail, and nothing of tables without a
pattern. What is folded here replaces nodes: an index out of range, or a sum that leaves int32, is
unknown. Where the output is larger than the input, its size is looked at before it is made.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from onnx_kvtool.ops.traits import SIZE_TYPES
from onnx_kvtool.ops.view import counted_axes, counted_axis
from onnx_kvtool.symbolic.contents import LARGEST, Partial, tensor_integers
from onnx_kvtool.symbolic.dimensions import dims_of, product

_LEAST, _MOST = -(2**63), 2**63 - 1

Inputs = Sequence[Partial | None]
Attributes = Mapping[str, Any]
FoldRule = Callable[[ir.Node, Inputs, Attributes], Partial | None]
"""The elements of the output of a node, from those of its inputs and its attributes.

It is asked for a node that some version of its operator allows: required inputs and attributes are
there, attributes are of their types, and defaults are bound. None where nothing is known. What does
not fit the type of the output counts as unknown later.

Raises:
    MalformedNode, ValueError, IndexError, OverflowError: If the node fails, or may do so.
"""

_Array = NDArray[Any]


def constant(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Constant: integers that the file itself holds."""
    for name in ("value_int", "value_ints"):
        if name in attributes:
            return Partial.whole(attributes[name])
    tensor = attributes.get("value")
    return None if tensor is None else tensor_integers(tensor)


def shape(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Shape: sizes that are numbers are known, others are not."""
    dims = dims_of(node.inputs[0])
    if dims is None:
        return None
    dims = dims[attributes.get("start") : attributes.get("end")]
    numbers = [d if isinstance(d, int) else 0 for d in dims]
    known = [isinstance(d, int) for d in dims]
    return Partial(np.asarray(numbers, np.int64), np.asarray(known, np.bool_))


def size(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Size: the number of elements, where each size is a number."""
    operand, dims = inputs[0], dims_of(node.inputs[0])
    if operand is not None:
        return Partial.whole(operand.numbers.size)
    count = None if dims is None else product(dims)
    return None if count is None or count > _MOST else Partial.whole(count)


def identity(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Identity: its input."""
    return inputs[0]


def cast(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Cast among int64, int32 and bool."""
    operand, to = inputs[0], attributes["to"]
    if operand is None:
        return None
    if to == ir.DataType.BOOL:
        return Partial((operand.numbers != 0).astype(np.int64), operand.known)
    return operand if to in SIZE_TYPES else None


def cast_like(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """CastLike, where the type of the other input is known."""
    like = node.inputs[1]
    return None if like is None else cast(node, inputs, {"to": like.dtype})


# Operators that need to know every element of some inputs.


def _numbers(node: ir.Node, inputs: Inputs, first: int = 0) -> list[_Array | None] | None:
    """Return the elements of each input from `first` on, None for one that is left out.

    None if an element is unknown.
    """
    pairs = list(zip(node.inputs, inputs, strict=True))[first:]
    if any(value is not None and (p is None or not p.complete) for value, p in pairs):
        return None
    return [None if p is None else p.numbers for _, p in pairs]


def _of_known(compute: Callable[..., _Array | None]) -> FoldRule:
    """Return the rule of an operator that is folded where all elements of its inputs are known."""

    def fold(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
        numbers = _numbers(node, inputs)
        found = None if numbers is None else compute(attributes, *numbers)
        return None if found is None else Partial.whole(found)

    return fold


@_of_known
def range_(attributes: Attributes, start: _Array, limit: _Array, delta: _Array) -> _Array | None:
    """Range of constants, up to `LARGEST` apart."""
    first, end, step = start.item(), limit.item(), delta.item()
    if abs(end - first) > LARGEST:
        return None
    return np.asarray(range(first, end, step), np.int64)


@_of_known
def constant_of_shape(attributes: Attributes, shape: _Array) -> _Array | None:
    """ConstantOfShape of an integer or a bool, up to `LARGEST` elements."""
    tensor, sizes = attributes.get("value"), _sizes(shape)
    if math.prod(sizes) > LARGEST or tensor is None:
        return None  # without a value it is one of floats
    filling = tensor_integers(tensor)
    return None if filling is None else np.full(sizes, filling.numbers.item())


def _sizes(sizes: _Array) -> list[int]:
    """Return a vector of sizes, none below 0."""
    if sizes.ndim != 1 or sizes.size > 32 or (sizes < 0).any():
        raise ValueError("these are no sizes")
    return [int(n) for n in sizes]


@_of_known
def cumulative_sum(attributes: Attributes, a: _Array, axis: _Array) -> _Array:
    """CumSum along a constant axis."""
    along = counted_axis(axis.item(), a.ndim)
    a = np.flip(a, along) if attributes["reverse"] else a
    result = np.cumsum(a, axis=along)
    if attributes["exclusive"]:
        result = result - a
    return np.flip(result, along) if attributes["reverse"] else result


@_of_known
def non_zero(attributes: Attributes, a: _Array) -> _Array | None:
    """NonZero of at least one axis."""
    return np.asarray(np.nonzero(a)) if a.ndim else None


def reduce_(compute: Callable[..., Any]) -> FoldRule:
    """Return the rule of a reduction."""

    @_of_known
    def fold(attributes: Attributes, a: _Array, given: _Array | None = None) -> _Array:
        axes = attributes.get("axes", () if given is None else given.ravel().tolist())
        if not axes and not attributes.get("noop_with_empty_axes"):
            axes = range(a.ndim)
        # Python's integers do not wrap.
        found = compute(
            a.astype(object), axis=counted_axes(axes, a.ndim), keepdims=bool(attributes["keepdims"])
        )
        return np.asarray(found, object).astype(np.int64)

    return fold


# Operators that move elements.


def _moving(move: Callable[..., _Array | None]) -> FoldRule:
    """Return the rule of an operator that moves the elements of its first input.

    `move` gets their places, from 1 on, the attributes, and the elements of the other inputs. At
    place 0 stands a zero.
    """

    def fold(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
        operand, others = inputs[0], _numbers(node, inputs, 1)
        if operand is None or others is None:
            return None
        places = np.arange(1, operand.numbers.size + 1).reshape(operand.numbers.shape)
        moved = move(places, attributes, *others)
        if moved is None or moved.size > LARGEST:
            return None
        return Partial(np.append(0, operand.numbers)[moved], np.append(True, operand.known)[moved])

    return fold


@_moving
def squeeze(a: _Array, attributes: Attributes, given: _Array | None = None) -> _Array:
    """Squeeze; an axis of another size than 1 fails."""
    axes = attributes.get("axes", given)
    return np.squeeze(a, None if axes is None else counted_axes(np.ravel(axes).tolist(), a.ndim))


@_moving
def unsqueeze(a: _Array, attributes: Attributes, given: _Array | None = None) -> _Array:
    """Unsqueeze, up to the rank that numpy holds."""
    axes = np.ravel(attributes.get("axes", given)).tolist()
    return np.expand_dims(a, counted_axes(axes, a.ndim + len(axes)))


@_moving
def reshape(a: _Array, attributes: Attributes, shape: _Array | None = None) -> _Array | None:
    """Reshape to constants; none is 0, and one may be -1."""
    if shape is None or (shape == 0).any() or (shape < -1).any():
        return None  # Reshape-1 has an attribute
    (_,) = shape.shape
    return a.reshape(shape.tolist())


@_moving
def flatten(a: _Array, attributes: Attributes) -> _Array | None:
    """Flatten."""
    axis = attributes["axis"]
    if not -a.ndim <= axis <= a.ndim:
        return None
    return a.reshape(math.prod(a.shape[:axis]), math.prod(a.shape[axis:]))


@_moving
def transpose(a: _Array, attributes: Attributes) -> _Array | None:
    """Transpose."""
    order = attributes.get("perm", range(a.ndim)[::-1])
    return np.transpose(a, order) if sorted(order) == list(range(a.ndim)) else None


@_moving
def expand(a: _Array, attributes: Attributes, shape: _Array) -> _Array:
    """Expand."""
    return np.broadcast_to(a, np.broadcast_shapes(a.shape, tuple(_sizes(shape))))


@_moving
def tile(
    a: _Array, attributes: Attributes, repeats: _Array, axis: _Array | None = None
) -> _Array | None:
    """Tile, up to `LARGEST` elements."""
    times = _sizes(repeats)
    if axis is not None or len(times) != a.ndim or a.size * math.prod(times) > LARGEST:
        return None  # Tile-1 is of one axis
    return np.tile(a, times)


@_moving
def gather(a: _Array, attributes: Attributes, indices: _Array) -> _Array | None:
    """Gather at constants; one that lies outside of the axis fails, also where nothing is taken."""
    axis = counted_axis(attributes["axis"], a.ndim)
    if ((indices < -a.shape[axis]) | (indices >= a.shape[axis])).any():
        return None
    return np.take(a, indices, axis=axis)


@_moving
def slice_(a: _Array, attributes: Attributes, *inputs: _Array | None) -> _Array | None:
    """Slice between constants; inputs from opset 10 on, attributes below."""
    given = inputs or [attributes.get(name) for name in ("starts", "ends", "axes")]
    numbers: list[Any] = [None if one is None else np.ravel(one).tolist() for one in given]
    starts, ends, axes, steps = (*numbers, None, None)[:4]
    places = counted_axes(range(len(starts)) if axes is None else axes, a.ndim)
    parts = [slice(None)] * a.ndim
    for place, start, end, step in zip(
        places, starts, ends, [1] * len(starts) if steps is None else steps, strict=True
    ):
        if step < 0 and start < -a.shape[place]:
            return None  # ONNX begins at the first element, Python before it
        parts[place] = slice(start, end, step)
    return a[tuple(parts)]


@_moving
def trilu(a: _Array, attributes: Attributes, diagonal: _Array | None = None) -> _Array | None:
    """Trilu with a constant diagonal."""
    if a.ndim < 2:
        return None
    keep = np.triu if attributes["upper"] else np.tril
    return keep(a, 0 if diagonal is None else diagonal.item())


def concat(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Concat, also beside vectors with only their length known."""
    # An unknown operand still counts when it is known to be one vector of n.
    parts: list[Partial] = []
    for value, operand in zip(node.inputs, inputs, strict=True):
        if operand is not None:
            parts.append(operand)
            continue
        (length,) = dims_of(value) or (None,)
        if not isinstance(length, int) or length > 64:
            return None
        parts.append(Partial(np.zeros(length, np.int64), np.zeros(length, np.bool_)))
    # The text of Concat-1 has a default that its schema lacks.
    axis = counted_axis(attributes.get("axis", 1), parts[0].numbers.ndim)
    return Partial(
        np.concatenate([p.numbers for p in parts], axis=axis),
        np.concatenate([p.known for p in parts], axis=axis),
    )


# Operators that compute element by element, with broadcasting.


def _fits(*operands: Partial) -> bool:
    """Return whether values broadcast to no more elements than are folded."""
    return math.prod(np.broadcast_shapes(*(p.numbers.shape for p in operands))) <= LARGEST


def where(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Where by constants."""
    condition, yes, no = inputs
    if condition is None or yes is None or no is None or not condition.complete:
        return None
    if not _fits(condition, yes, no):
        return None
    chosen = condition.numbers != 0
    return Partial(np.where(chosen, yes.numbers, no.numbers), np.where(chosen, yes.known, no.known))


def elementwise(compute: Callable[..., _Array]) -> FoldRule:
    """Return the rule of an operator whose operands broadcast."""

    def fold(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
        operands = [p for p in inputs if p is not None]
        # Before version 7 attributes said how operands are broadcast.
        if len(operands) != len(inputs) or attributes or not _fits(*operands):
            return None
        with np.errstate(all="ignore"):
            numbers = np.asarray(compute(*(p.numbers for p in operands))).astype(np.int64)
        known = functools.reduce(np.logical_and, (p.known for p in operands))
        return Partial(numbers, np.broadcast_to(known, numbers.shape))

    return fold


def _by_constants(compute: Callable[..., _Array]) -> FoldRule:
    """Return the rule of an operator whose second operand is constant and nowhere 0."""

    def fold(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
        a, b = inputs
        if a is None or b is None or not b.complete or (b.numbers == 0).any() or not _fits(a, b):
            return None
        numbers = compute(a.numbers, b.numbers, attributes)
        return Partial(numbers, np.broadcast_to(a.known, numbers.shape))

    return fold


def _absolute(a: _Array) -> _Array:
    if (a == _LEAST).any():
        raise ValueError("it has no absolute value")
    return np.abs(a)


@_by_constants
def divide(a: _Array, b: _Array, attributes: Attributes) -> _Array:
    """Div, rounded towards zero."""
    if attributes:
        raise ValueError("they say how operands are broadcast")
    return _absolute(a) // _absolute(b) * np.sign(a) * np.sign(b)


@_by_constants
def modulo(a: _Array, b: _Array, attributes: Attributes) -> _Array:
    """Mod, with the sign that `fmod` sets."""
    return (np.fmod if attributes["fmod"] else np.mod)(a, b)


def clip(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Clip between constants; where they contradict each other the upper one holds."""
    operand, bounds = inputs[0], _numbers(node, inputs, 1)
    if attributes or operand is None or bounds is None:
        return None  # before version 11 they were numbers of the node, and floats
    numbers = operand.numbers
    for bound, apply in zip(bounds, (np.maximum, np.minimum), strict=False):
        if bound is not None:
            numbers = apply(numbers, bound.item())
    return Partial(numbers, operand.known)


def of_all(compute: np.ufunc) -> FoldRule:
    """Return the rule of an operator that takes any number of operands and broadcasts them."""
    return elementwise(lambda *numbers: functools.reduce(compute, numbers))


absolute = elementwise(_absolute)
