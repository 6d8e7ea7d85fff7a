"""Operators whose attributes became inputs: axes, bounds, sizes, pads, a ratio."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.upgrading.forms import again, fixed, number_like

__all__ = [
    "upgrade_axes_13_18",
    "upgrade_clip_11",
    "upgrade_dft_20",
    "upgrade_dropout_10_12",
    "upgrade_pad_11",
    "upgrade_slice_10",
    "upgrade_split_13_18",
    "upgrade_top_k_10",
]


def upgrade_axes_13_18(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Give the axes as an input: (n,), int64.

    It came with opset 13 for Squeeze, Unsqueeze and ReduceSum, with 18 for the other reductions.
    An empty list of a reduction means all axes in every version and is left out.

    Refuses an empty list of Squeeze: releases differ on whether it drops no dimension or each one
    of size 1.
    """
    view = NodeView(node, context.opset_of(node))
    data, axes = view.required("data"), view.attribute("axes")
    if not isinstance(axes, tuple):
        return again(em, node, [data])
    numbers = [int(axis) for axis in axes]
    if not numbers and node.op_type == "Squeeze":
        raise Refusal("empty-axes", "runtimes differ on what an empty list of axes means")
    if not numbers and node.op_type != "Unsqueeze":
        return again(em, node, [data], without=("axes",))
    return again(em, node, [data, fixed(numbers, em, "axes")], without=("axes",))


_NO_LARGER = (ir.DataType.FLOAT, ir.DataType.FLOAT16)


def upgrade_clip_11(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Give the bounds as inputs: ().

    An absent bound is the largest float32 in version 6, and the largest number of the element
    type in version 11. Both cut nothing but infinities for float32 and float16, and the bound stays
    absent; for float64 it is written out.
    """
    view = NodeView(node, context.opset_of(node))
    data = view.required("input")
    bounds: list[ir.Value | None] = []
    for name in ("min", "max"):
        bound = view.attribute(name)
        assert isinstance(bound, float)
        absent = bound == view.facts.attributes[name].default and data.dtype in _NO_LARGER
        bounds.append(None if absent else number_like(em, bound, data, name))
    return again(em, node, [data, *bounds], without=("min", "max"))


def upgrade_dft_20(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Give the axis as an input: (), int64; 1 where version 17 left it out, and 20 takes -2."""
    view = NodeView(node, context.opset_of(node))
    axis = fixed(view.integer("axis"), em, "axis")
    inputs = [view.required("input"), view.input("dft_length"), axis]
    return again(em, node, inputs, without=("axis",))


def upgrade_dropout_10_12(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Give the ratio as an input: (), float32. Without `training_mode` the data passes through.

    Refuses a mask that is read: no text before opset 12 says what it holds in inference.
    """
    view = NodeView(node, context.opset_of(node))
    data = view.required("data")
    if any(o.name and (o.uses() or o.is_graph_output()) for o in node.outputs[1:]):
        raise Refusal(
            "changed-meaning",
            "the mask is read, and what it holds in inference is not defined before opset 12",
            help="export the model for inference",
        )
    if em.opset < 12:
        return again(em, node, [data], outputs=1)
    ratio = em.constant(np.asarray(view.attribute("ratio"), np.float32), "ratio")
    return again(em, node, [data, ratio], without=("ratio",), outputs=1)


def upgrade_pad_11(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Give the pads, (2 * rank,), and a value other than zero, (), as inputs."""
    view = NodeView(node, context.opset_of(node))
    data, pads, value = view.required("data"), view.attribute("pads"), view.attribute("value")
    assert isinstance(pads, tuple) and isinstance(value, float)
    inputs = [data, fixed([int(pad) for pad in pads], em, "pads")]
    if value != 0.0 and view.string("mode") == "constant":
        inputs.append(number_like(em, value, data, "pad_value"))
    return again(em, node, inputs, without=("pads", "value"))


def upgrade_slice_10(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Give starts, ends and axes as inputs: (n,), int64."""
    view = NodeView(node, context.opset_of(node))
    inputs: list[ir.Value | None] = [view.required("data")]
    for name in ("starts", "ends", "axes"):
        numbers = view.attribute(name)
        if isinstance(numbers, tuple):
            inputs.append(fixed([int(number) for number in numbers], em, name))
        elif name != "axes":
            raise MalformedNode("attribute", f"attribute `{name}` of Slice is required and absent")
    return again(em, node, inputs, without=("starts", "ends", "axes"))


def upgrade_split_13_18(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Give the sizes as an input, (outputs,), int64; without sizes, the number of equal parts."""
    view = NodeView(node, context.opset_of(node))
    data = view.required("input")
    sizes = view.attribute("split") if "split" in view.facts.attributes else None
    lengths = view.input("split") if len(view.facts.inputs) > 1 else None
    if isinstance(sizes, tuple) and sizes:
        lengths = fixed([int(size) for size in sizes], em, "split")
    if lengths is not None:
        return again(em, node, [data, lengths], without=("split",))
    parts = {"num_outputs": len(node.outputs)} if em.opset >= 18 else {}
    return again(em, node, [data], without=("split",), attributes=parts)


def upgrade_top_k_10(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Give `k` as an input: (1,), int64."""
    view = NodeView(node, context.opset_of(node))
    count = fixed([view.integer("k")], em, "k")
    return again(em, node, [view.required("X"), count], without=("k",))
