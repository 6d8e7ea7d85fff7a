"""What the rules have in common: the same operator once more, and guards."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.storage import stored_tensor
from onnx_kvtool.emit import forms
from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Operand, Replacement
from onnx_kvtool.emit.forms import Term, size
from onnx_kvtool.ops.schema import op_facts
from onnx_kvtool.ops.traits import FLOAT_TYPES
from onnx_kvtool.symbolic.dimensions import Dims

_INT64 = ir.DataType.INT64


def again(
    em: Emitter,
    node: ir.Node,
    inputs: Sequence[ir.Value | None] | None = None,
    attributes: Mapping[str, AttributeValue] | None = None,
) -> Replacement:
    """Emit the operator of a node at the target, without the attributes that it lacks there."""
    facts = op_facts(node.op_type, em.opset)
    assert facts is not None
    lacking = node.attributes.keys() - facts.attributes.keys()
    return forms.again(em, node, inputs, without=lacking, attributes=attributes)


def as_attribute(value: ir.Value) -> float | None:
    """Return a constant of one element that a float32 attribute holds; None for any other."""
    tensor = stored_tensor(value)
    if tensor is None or tensor.size != 1 or value.is_graph_input():
        return None
    if tensor.dtype not in FLOAT_TYPES:
        return None
    number = float(tensor.numpy().reshape(-1)[0])
    with np.errstate(over="ignore"):
        return number if float(np.float32(number)) == number or np.isnan(number) else None


def from_front(index: Term, length: Operand) -> Term:
    """Return `index` counted from the front: `index + length` where it is negative."""
    return added_where(index, index < [0], length)


def inside_or_behind(index: Term, length: Operand) -> Term:
    """Return indices counted from the front, and `length` for those before the first element.

    Runtimes would count these from the back once more, at every opset.
    """
    front = from_front(index, length)
    return replaced_where(front, front < [0], length)


def added_where(number: Term, condition: Term, more: Operand) -> Term:
    """Return int64 numbers, with `more` added where the condition holds."""
    return number + condition.cast(_INT64) * more


def replaced_where(number: Term, condition: Term, other: Operand) -> Term:
    """Return int64 numbers, and `other` where the condition holds; all shapes broadcast."""
    missing = number.em.op("Sub", other, number)
    return added_where(number, condition, missing)


def count_up(em: Emitter, count: Operand) -> Term:
    """Return 0, 1, ... up to below `count`, which is (1,), int64, not negative: (count,), int64."""
    one = ir.Tensor(np.ones(1, np.int64))
    places = em.op("NonZero", em.op("ConstantOfShape", count, value=one))  # (1, count)
    return Term(em, em.op("Squeeze", places, axes=[0]))


def clamped(value: Term, low: Operand, high: Operand) -> Term:
    """Return int64 numbers not below `low`, and then not above `high`, all (1,).

    Max and Min take floats only.
    """
    value = (value < low).op("Where", low, value)
    above = Term(value.em, value.em.op("Less", high, value))
    return above.op("Where", high, value)


def joined_sizes(
    em: Emitter, value: ir.Value, dims: Dims, groups: Sequence[Sequence[int]]
) -> ir.Value:
    """Return products of sizes of a value as a vector: (number of groups,), int64."""
    parts = [product(em, value, dims, group) for group in groups]
    if len(parts) == 1:
        return parts[0].value
    return em.op("Concat", *parts, axis=0) if parts else em.constant([], "sizes")


def product(em: Emitter, value: ir.Value, dims: Dims, axes: Sequence[int]) -> Term:
    """Return the product of some sizes of a value: (1,), int64."""
    known = math.prod(dim for axis in axes if isinstance(dim := dims[axis], int))
    left = [
        Term(em, em.op("Reshape", size(em, value, axis, dims[axis]), [1]))
        for axis in axes
        if not isinstance(dims[axis], int)
    ]
    if not left:
        return Term(em, em.constant([known], "size"))
    result = functools.reduce(operator.mul, left)
    return result if known == 1 else result * [known]
