"""What the rules have in common: the same operator once more, and guards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.storage import stored_tensor
from onnx_kvtool.emit import forms
from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Operand, Replacement
from onnx_kvtool.emit.forms import cast, size
from onnx_kvtool.ops.schema import op_facts
from onnx_kvtool.ops.traits import FLOAT_TYPES
from onnx_kvtool.symbolic.dimensions import Dim, fixed_sizes
from onnx_kvtool.symbolic.dimensions import product as elements

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


def from_front(em: Emitter, index: ir.Value, length: ir.Value) -> ir.Value:
    """Return `index` counted from the front: `index + length` where it is negative."""
    return added_where(em, index, em.op("Less", index, [0], hint="is_negative"), length)


def inside_or_behind(em: Emitter, index: ir.Value, length: ir.Value) -> ir.Value:
    """Return indices counted from the front, and `length` for those before the first element.

    Runtimes would count these from the back once more, at every opset.
    """
    front = from_front(em, index, length)
    return replaced_where(em, front, em.op("Less", front, [0], hint="is_outside"), length)


def added_where(
    em: Emitter, number: ir.Value, condition: ir.Value, more: ir.Value, hint: str = "index"
) -> ir.Value:
    """Return int64 numbers, with `more` added where the condition holds."""
    added = em.op("Mul", cast(em, condition, _INT64), more)
    return em.op("Add", number, added, hint=hint)


def replaced_where(em: Emitter, number: ir.Value, condition: ir.Value, other: ir.Value) -> ir.Value:
    """Return int64 numbers, and `other` where the condition holds; all shapes broadcast."""
    return added_where(em, number, condition, em.op("Sub", other, number, hint="missing"))


def count_up(em: Emitter, count: ir.Value) -> ir.Value:
    """Return 0, 1, ... up to below `count`: (count,), int64.

    Args:
        em: Where to build.
        count: (1,), int64, not negative.
    """
    one = ir.Tensor(np.ones(1, np.int64))
    ones = em.op("ConstantOfShape", count, value=one, hint="ones")
    places = em.op("NonZero", ones, hint="places")  # (1, count)
    return em.op("Squeeze", places, axes=[0], hint="counted")


def clamped(em: Emitter, value: ir.Value, low: Operand, high: Operand) -> ir.Value:
    """Return int64 numbers not below `low`, and then not above `high`, all (1,).

    Max and Min take floats only.
    """
    below = em.op("Less", value, low)
    value = em.op("Where", below, low, value)
    above = em.op("Less", high, value)
    return em.op("Where", above, high, value, hint="clamped")


def joined_sizes(
    em: Emitter, value: ir.Value, dims: tuple[Dim, ...], groups: Sequence[Sequence[int]]
) -> ir.Value:
    """Return products of sizes of a value as a vector: (number of groups,), int64."""
    known = fixed_sizes([elements([dims[axis] for axis in group]) for group in groups])
    if known is not None:
        return em.constant(known, "sizes")
    parts = [product(em, value, dims, group) for group in groups]
    return parts[0] if len(parts) == 1 else em.op("Concat", *parts, axis=0, hint="sizes")


def product(em: Emitter, value: ir.Value, dims: tuple[Dim, ...], axes: Sequence[int]) -> ir.Value:
    """Return the product of some sizes of a value: (1,), int64."""
    known, left = 1, []
    for axis in axes:
        dim = dims[axis]
        if isinstance(dim, int):
            known *= dim
        else:
            left.append(em.op("Reshape", size(em, dim, value, axis), [1]))
    if not left:
        return em.constant([known], "size")
    result = left[0]
    for factor in left[1:]:
        result = em.op("Mul", result, factor, hint="size")
    return result if known == 1 else em.op("Mul", result, [known])
