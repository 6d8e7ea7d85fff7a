"""Normalisations: BatchNormalization, GroupNormalization, and Softmax with its relatives."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.upgrade_changes import further_outputs
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.lowering.reshape import never_empty, reshape_literally
from onnx_kvtool.rewrite.upgrading.forms import again, fixed, number_like
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = [
    "upgrade_batch_normalization_9_14",
    "upgrade_group_normalization_21",
    "upgrade_softmax_13",
]


def upgrade_batch_normalization_9_14(
    context: LoweringContext, node: ir.Node, em: Emitter
) -> Replacement:
    """Write `spatial=0` in plain arithmetic; else leave out what the later version lacks.

    Without `spatial`, scale, bias, mean and variance are (C, D1, ...), one for each element of a
    sample, and Y = (X - mean) / Sqrt(var + epsilon) * scale + B, where the batch broadcasts.

    Refuses further outputs, which are those of a training step.
    """
    opset = context.opset_of(node)
    view = NodeView(node, opset)
    if further_outputs(node):
        raise Refusal(
            "changed-meaning",
            "further outputs are those of a training step, which opset 14 gives in another form",
            help="export the model for inference",
        )
    if "spatial" not in view.facts.attributes or view.integer("spatial") != 0:
        return again(em, node, list(node.inputs), without=("spatial",), outputs=1)
    data, scale, bias = view.required("X"), view.required("scale"), view.required("B")
    mean, variance = view.required("mean"), view.required("var")
    epsilon = view.attribute("epsilon")
    assert isinstance(epsilon, float)
    dtype = data.dtype or ir.DataType.UNDEFINED
    small = number_like(em, epsilon, data, "epsilon")
    deviation = em.op("Sqrt", em.op("Add", variance, small, dtype=dtype), dtype=dtype)
    normal = em.op("Div", em.op("Sub", data, mean, dtype=dtype), deviation, dtype=dtype)
    result = em.op("Add", em.op("Mul", normal, scale, dtype=dtype), bias, dtype=dtype)
    return Replacement((result, *[None] * (len(node.outputs) - 1)))


def upgrade_group_normalization_21(
    context: LoweringContext, node: ir.Node, em: Emitter
) -> Replacement:
    """Repeat scale and bias, which are per group, (num_groups,), for each channel: (C,).

    Version 18 computes in the type of X; `stash_type` says so to version 21, which would compute
    in float32.

    Refuses an unknown element type.
    """
    view = NodeView(node, context.opset_of(node))
    data, groups = view.required("X"), view.integer("num_groups")
    if data.dtype is None:
        raise Refusal("unknown-element-type", f"the type of `{data.name}` is unknown")
    dims = dims_of(data)
    channels = dims[1] if dims is not None and len(dims) > 1 else None
    if isinstance(channels, int):
        target = fixed([groups, channels // groups], em, "per_group")
    else:
        count = em.op("Shape", data, attributes={"start": 1, "end": 2}, hint="channels")  # (1,)
        each = em.op("Div", count, fixed([groups], em, "groups"))
        target = em.op("Concat", fixed([groups], em, "groups"), each, attributes={"axis": 0})

    def spread(value: ir.Value) -> ir.Value:
        dtype = value.dtype or ir.DataType.UNDEFINED
        column = em.op("Reshape", value, fixed([groups, 1], em, "column"), dtype=dtype)
        repeated = em.op("Expand", column, target, dtype=dtype)  # (num_groups, C / num_groups)
        return em.op("Reshape", repeated, fixed([-1], em, "flat"), dtype=dtype)

    inputs = [data, spread(view.required("scale")), spread(view.required("bias"))]
    plain = data.dtype == ir.DataType.FLOAT
    stash = {} if plain else {"stash_type": data.dtype.value}
    return again(em, node, inputs, attributes=stash)


def upgrade_softmax_13(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Flatten the input at `axis` and reshape the result, as the operator does itself below 13.

    On the last axis both versions mean the same; it is written out, since the default differs.
    """
    view = NodeView(node, context.opset_of(node))
    data, axis, dims = view.required("input"), view.integer("axis"), dims_of(view.required("input"))
    if dims is not None and not -len(dims) <= axis < max(len(dims), 1):
        raise MalformedNode("axis-out-of-range", f"`axis` is {axis} for a rank of {len(dims)}")
    if axis == -1 or (dims is not None and axis == len(dims) - 1):
        return again(em, node, [data], attributes={"axis": axis})
    dtype = data.dtype or ir.DataType.UNDEFINED
    flat = em.op("Flatten", data, attributes={"axis": axis}, dtype=dtype)
    along = again(em, node, [flat], attributes={"axis": -1}).outputs[0]
    if along is None:
        raise MalformedNode("output", f"`{node.op_type}` has no output")
    along.shape = None
    shape = em.op("Shape", data)
    return Replacement((reshape_literally(em, along, shape, empty=not never_empty(data)),))
