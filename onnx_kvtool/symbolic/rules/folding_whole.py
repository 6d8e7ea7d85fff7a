"""What further operators do to small integer tensors: parts, fillings, repetitions, reductions.

Where the output is larger than the input, its size is looked at before it is made.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from onnx_kvtool.ops.view import counted_axes, counted_axis, given_input
from onnx_kvtool.symbolic.contents import LARGEST, Partial, elements
from onnx_kvtool.symbolic.rules.folding import (
    LEAST,
    MOST,
    Attributes,
    FoldRule,
    Inputs,
    elementwise,
)


def _sizes(sizes: Partial | None) -> tuple[int, ...] | None:
    """Return a vector of sizes that are all known and not below 0."""
    if sizes is None or not sizes.complete or sizes.numbers.ndim != 1:
        return None
    found = tuple(int(n) for n in sizes.numbers)
    return None if len(found) > 32 or any(n < 0 for n in found) else found


def constant_of_shape(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """ConstantOfShape of an integer or a bool, up to `LARGEST` elements."""
    shape = _sizes(inputs[0])
    tensor = attributes.get("value")
    if shape is None or math.prod(shape) > LARGEST or not isinstance(tensor, ir.TensorProtocol):
        return None  # without a value it is one of floats
    filling = elements(tensor)
    if filling is None or filling.size != 1 or filling.dtype not in (np.int64, np.int32, np.bool_):
        return None
    return Partial.whole(np.full(shape, filling.reshape(()).astype(np.int64)))


def expand(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Expand, up to `LARGEST` elements."""
    operand, shape = inputs[0], _sizes(inputs[1])
    if operand is None or shape is None:
        return None
    try:
        whole = np.broadcast_shapes(operand.numbers.shape, shape)
    except ValueError:
        return None
    if math.prod(whole) > LARGEST:
        return None
    return operand.both(lambda a: np.broadcast_to(a, whole))


def slice_(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Slice between constants; inputs from opset 10 on, attributes below."""
    operand, rest = inputs[0], list(zip(inputs[1:], node.inputs[1:], strict=True))
    if operand is None or any(v is not None and (p is None or not p.complete) for p, v in rest):
        return None
    given = [None if p is None else [int(n) for n in p.numbers.ravel()] for p, _ in rest]
    if not given:
        given = [
            list(attributes[k]) if k in attributes else None for k in ("starts", "ends", "axes")
        ]
    starts, ends, axes, steps = (*given, None, None)[:4]
    if starts is None or ends is None:
        return None
    rank = operand.numbers.ndim
    places = counted_axes(range(len(starts)) if axes is None else axes, rank)
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(places) == len(steps) or 0 in steps:
        return None
    parts = [slice(None)] * rank
    for place, start, end, step in zip(places, starts, ends, steps, strict=True):
        if step < 0 and start < -operand.numbers.shape[place]:
            return None  # ONNX begins at the first element, Python before it
        parts[place] = slice(start, end, step)
    return operand.both(lambda a: a[tuple(parts)])


def tile(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Tile, up to `LARGEST` elements."""
    if len(inputs) != 2:
        return None  # Tile-1, of one axis
    operand, repeats = inputs[0], _sizes(inputs[1])
    if operand is None or repeats is None or len(repeats) != operand.numbers.ndim:
        return None
    if operand.numbers.size * math.prod(repeats) > LARGEST:
        return None
    return operand.both(lambda a: np.tile(a, repeats))


def transpose(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Transpose."""
    operand, order = inputs[0], attributes.get("perm")
    if operand is None:
        return None
    axes = None if order is None else tuple(order)
    if axes is not None and sorted(axes) != list(range(operand.numbers.ndim)):
        return None
    return operand.both(lambda a: np.transpose(a, axes))


def flatten(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Flatten."""
    operand = inputs[0]
    if operand is None:
        return None
    shape, axis = operand.numbers.shape, attributes["axis"]
    if not -len(shape) <= axis <= len(shape):
        return None
    axis = axis + len(shape) if axis < 0 else axis
    rows, columns = math.prod(shape[:axis]), math.prod(shape[axis:])
    return operand.both(lambda a: a.reshape(rows, columns))


def _of_all(compute: np.ufunc) -> FoldRule:
    """Return the rule of an operator that takes any number of operands and broadcasts them."""
    return elementwise(lambda *numbers: functools.reduce(compute, numbers))


largest = _of_all(np.maximum)
smallest = _of_all(np.minimum)
sum_ = _of_all(np.add)


def _signless(compute: Callable[[NDArray[Any]], NDArray[Any]]) -> FoldRule:
    def fold(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
        operand = inputs[0]
        if operand is None or attributes or (operand.numbers == LEAST).any():
            return None  # has no absolute value
        return Partial(compute(operand.numbers), operand.known)

    return fold


absolute = _signless(np.abs)
sign = _signless(np.sign)


def clip(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Clip between constants; where they contradict each other the upper one holds."""
    if attributes:
        return None  # before version 11 they were numbers of the node, and floats
    operand, *bounds = inputs
    if operand is None:
        return None
    numbers = operand.numbers
    for bound, given, apply in zip(bounds, node.inputs[1:], (np.maximum, np.minimum), strict=False):
        if given is None:
            continue
        if bound is None or not bound.complete or bound.numbers.size != 1:
            return None
        numbers = apply(numbers, bound.numbers.reshape(()))
    return Partial(numbers, operand.known)


def reduce_(compute: Callable[..., Any], neutral: int | None) -> FoldRule:
    """Return the rule of a reduction.

    Args:
        compute: Reduces Python's integers, which do not wrap.
        neutral: What no elements are reduced to; None where nothing says so.
    """

    def fold(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
        operand = inputs[0]
        if operand is None or not operand.complete:
            return None
        axes = _reduced(node, inputs, attributes, operand.numbers.ndim)
        if axes is None:
            return None
        if axes == ():
            return operand
        if operand.numbers.size == 0 and neutral is None:
            return None
        result = compute(
            operand.numbers.astype(object), axis=axes, keepdims=bool(attributes["keepdims"])
        )
        result = np.asarray(result, object)
        if any(not LEAST <= n <= MOST for n in result.ravel()):
            return None
        return Partial.whole(result.astype(np.int64))

    return fold


def _reduced(
    node: ir.Node, inputs: Inputs, attributes: Attributes, rank: int
) -> tuple[int, ...] | None:
    """Return the axes of a reduction, () for none at all; None where they are unknown."""
    axes = attributes.get("axes")
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        given = inputs[1]
        if given is None or not given.complete:
            return None
        axes = [int(n) for n in given.numbers.ravel()]
    if not axes:
        return () if attributes.get("noop_with_empty_axes") else tuple(range(rank))
    return counted_axes(axes, rank)


def cumulative_sum(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """CumSum along a constant axis."""
    operand, axis = inputs
    if operand is None or axis is None or not operand.complete or not axis.complete:
        return None
    if axis.number is None or operand.numbers.ndim == 0:
        return None
    along = counted_axis(axis.number, operand.numbers.ndim)
    numbers = operand.numbers
    if attributes["reverse"]:
        numbers = np.flip(numbers, along)
    result = np.cumsum(numbers, axis=along)
    if attributes["exclusive"]:
        result = result - numbers
    return Partial.whole(np.flip(result, along) if attributes["reverse"] else result)


def trilu(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """Trilu with a constant diagonal."""
    operand = inputs[0]
    given = given_input(node, 1)
    diagonal = 0 if given is None else None if inputs[1] is None else inputs[1].number
    if operand is None or operand.numbers.ndim < 2 or diagonal is None:
        return None
    if given is not None and inputs[1] is not None and not inputs[1].complete:
        return None
    keep = (np.triu if attributes["upper"] else np.tril)(np.ones(operand.numbers.shape), diagonal)
    return Partial(np.where(keep != 0, operand.numbers, 0), operand.known | (keep == 0))


def non_zero(node: ir.Node, inputs: Inputs, attributes: Attributes) -> Partial | None:
    """NonZero of at least one axis, if all elements are known."""
    operand = inputs[0]
    if operand is None or not operand.complete or operand.numbers.ndim == 0:
        return None
    places = np.nonzero(operand.numbers)
    return Partial.whole(np.asarray(places, np.int64).reshape(operand.numbers.ndim, -1))
