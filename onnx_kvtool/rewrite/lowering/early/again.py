"""What the rules have in common: the same operator once more, and guards."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.storage import stored_tensor
from onnx_kvtool.emit import forms
from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Refusal, Replacement
from onnx_kvtool.emit.forms import known_dims, size
from onnx_kvtool.ops.schema import op_facts
from onnx_kvtool.ops.traits import FLOAT_TYPES
from onnx_kvtool.symbolic.dimensions import Dim

_D = ir.DataType
_INT64 = _D.INT64


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


def known_rank(value: ir.Value, op_type: str, lowest: int) -> tuple[Dim, ...]:
    """Return the dimensions of a value; its rank must be known.

    Raises:
        Refusal: If it is not.
    """
    return known_dims(value, f"{op_type} cannot be lowered below opset {lowest}: ", lowest)


def element_type(value: ir.Value, op_type: str, lowest: int) -> ir.DataType:
    """Return the element type of a value, which has to be known.

    Raises:
        Refusal: If it is not.
    """
    if value.dtype is None or value.dtype == _D.UNDEFINED:
        raise Refusal(
            "unknown-element-type",
            f"the element type of `{value.name}` is unknown, and {op_type} before opset {lowest} "
            "depends on it",
            lowest_opset=lowest,
        )
    return value.dtype


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
    behind = em.op("Less", index, em.constant([0], "zero"), hint="is_negative")
    once = em.op("Cast", behind, to=_INT64.value, hint="is_negative")
    return em.op("Add", index, em.op("Mul", once, length), hint="index")


def inside_or_behind(em: Emitter, index: ir.Value, length: ir.Value) -> ir.Value:
    """Return indices counted from the front, and `length` for those before the first element.

    These must not be counted from the back once more, as runtimes do at every opset.
    """
    front = from_front(em, index, length)
    below = em.op("Less", front, em.constant([0], "zero"))
    once = em.op("Cast", below, to=_INT64.value, hint="is_outside")
    missing = em.op("Mul", once, em.op("Sub", length, front), hint="missing")
    return em.op("Add", front, missing, hint="index")


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


def clamped(em: Emitter, value: ir.Value, low: ir.Value, high: ir.Value) -> ir.Value:
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
    known = [[dims[axis] for axis in group] for group in groups]
    if all(isinstance(dim, int) for group in known for dim in group):
        return em.constant([math.prod(group) for group in known], "sizes")  # type: ignore[arg-type]
    parts = [product(em, value, dims, group) for group in groups]
    if len(parts) == 1:
        return parts[0]
    return em.op("Concat", *parts, axis=0, hint="sizes")


def product(em: Emitter, value: ir.Value, dims: tuple[Dim, ...], axes: Sequence[int]) -> ir.Value:
    """Return the product of some sizes of a value: (1,), int64."""
    known, left = 1, []
    for axis in axes:
        dim = dims[axis]
        if isinstance(dim, int):
            known *= dim
        else:
            left.append(em.op("Reshape", size(em, dim, value, axis), em.constant([1], "one")))
    if not left:
        return em.constant([known], "size")
    result = left[0]
    for factor in left[1:]:
        result = em.op("Mul", result, factor, hint="size")
    return result if known == 1 else em.op("Mul", result, em.constant([known], "size"))
