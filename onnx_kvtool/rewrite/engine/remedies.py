"""Other forms of one node, for limits of releases that have a remedy of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.constants import const_tensor
from onnx_kvtool.emit.emitter import Emitter, Replacement
from onnx_kvtool.emit.forms import where
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.other_forms import (
    begun_within,
    constant_scalar,
    counted_axes,
    padded,
    recast,
    set_indices_apart,
    shifted,
    written_to_copy,
)
from onnx_kvtool.rewrite.engine.unsigned import unsigned
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["REMEDIES"]


def _set_apart(node: ir.Node, em: Emitter, opset: int) -> Replacement:
    """Emit a node again, behind an Identity of what it reads first.

    A runtime that looks for a pattern of nodes then does not find it, and no result changes.
    """
    data = node.inputs[0]
    undefined = ir.DataType.UNDEFINED
    apart = em.op("Identity", data, dtype=undefined if data is None else data.dtype or undefined)
    attributes = {name: given.value for name, given in node.attributes.items()}
    dtypes = [value.dtype or undefined for value in node.outputs]
    again = em.multi(node.op_type, apart, *node.inputs[1:], attributes=attributes, dtypes=dtypes)
    return Replacement(tuple(again))


def _fill_shape(node: ir.Node, em: Emitter, opset: int) -> Replacement | None:
    """Emit a Constant without elements as a ConstantOfShape; None where it has another form."""
    tensor = const_tensor(node.outputs[0])
    if tensor is None or tensor.size or tensor.dtype == ir.DataType.STRING:
        return None
    zero = ir.Tensor(np.zeros(1, tensor.dtype.numpy()), dtype=tensor.dtype)
    shape = em.constant(tensor.shape.numpy(), "shape")
    filled = em.op("ConstantOfShape", shape, attributes={"value": zero}, dtype=tensor.dtype)
    return Replacement((filled,))


def _with_value(node: ir.Node, em: Emitter, opset: int) -> Replacement:
    """Emit a ConstantOfShape with the zero of float32 that it has for a default."""
    zero = {"value": ir.Tensor(np.zeros(1, np.float32))}
    dtype = ir.DataType.FLOAT
    return Replacement((em.op("ConstantOfShape", node.inputs[0], attributes=zero, dtype=dtype),))


def _as_reshape(node: ir.Node, em: Emitter, opset: int) -> Replacement | None:
    """Emit a Flatten as a Reshape to two sizes; None where neither of them is known.

    One is a number, or the first dimension, and what it leaves is the other one.
    """
    data, dims = node.inputs[0], dims_of(node.inputs[0])
    if data is None or dims is None:
        return None
    axis = NodeView(node, opset).integer("axis")
    axis += len(dims) if axis < 0 else 0
    before, behind = dims[:axis], dims[axis:]
    rows, columns = (
        math.prod(d for d in side if isinstance(d, int))
        if all(isinstance(d, int) for d in side)
        else 0
        for side in (before, behind)
    )
    if columns:
        shape = [-1, columns]
    elif rows:
        shape = [rows, -1]
    elif len(before) == 1:
        shape = [0, -1]
    else:
        return None
    dtype = data.dtype or ir.DataType.UNDEFINED
    return Replacement((em.op("Reshape", data, em.constant(shape, "shape"), dtype=dtype),))


def _from_the_front(node: ir.Node, em: Emitter, opset: int) -> Replacement | None:
    """Emit GatherND or ScatterND with indices that count from the front.

    None where it is unknown how many sizes there are to count in.
    """
    view = NodeView(node, opset)
    data, indices = view.required("data"), view.required("indices")
    dims, length = dims_of(data), (dims_of(indices) or (None,))[-1]
    batch = view.integer("batch_dims") if "batch_dims" in view.facts.attributes else 0
    if not isinstance(length, int):
        return None
    numbers = [dim for dim in (dims or ())[batch : batch + length] if isinstance(dim, int)]
    if len(numbers) == length:
        sizes = em.constant(numbers, "sizes")
    else:
        begin, end = em.constant([batch], "begin"), em.constant([batch + length], "end")
        sizes = em.op("Slice", em.op("Shape", data), begin, end)
    below = em.op("Less", indices, em.constant(0, "zero"), dtype=ir.DataType.BOOL)
    turned = em.op("Add", indices, sizes)
    counted = where(em, below, turned, indices, hint="from_the_front")
    attributes = {name: given.value for name, given in node.attributes.items()}
    dtype = data.dtype or ir.DataType.UNDEFINED
    others = (data, counted, *node.inputs[2:])
    return Replacement((em.op(node.op_type, *others, attributes=attributes, dtype=dtype),))


Remedy = Callable[[ir.Node, Emitter, int], Replacement | None]

REMEDIES: Mapping[str, tuple[str, Remedy]] = {
    "backward": ("starts", begun_within),
    "behind": ("set_apart", _set_apart),
    "constant-indices": ("set_apart", set_indices_apart),
    "in-place": ("copy", written_to_copy),
    "merged-names": ("reshape", _as_reshape),
    "narrow-range": ("recast", recast),
    "negative-axes": ("axes", counted_axes),
    "negative-indices": ("from_the_front", _from_the_front),
    "no-value": ("with_value", _with_value),
    "no-elements": ("fill_shape", _fill_shape),
    "other-code-types": ("unsigned", unsigned),
    "overflowing": ("shifted", shifted),
    "promoted": ("recast", recast),
    "same-padding": ("pads", padded),
    "scalar": ("constant", constant_scalar),
}
"""What the report calls the remedy of a condition, and what emits it: None where it does not do."""
