"""Pad-18 with `axes`, for opsets below 18."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.emit import Emitter
from onnx_kvtool.rewrite.lowering.context import LoweringContext, Replacement
from onnx_kvtool.rewrite.refusal import Refusal

__all__ = ["lower_pad_18"]


def lower_pad_18(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Spread the pads of the given axes over all axes, zero elsewhere.

    pads of all axes = ScatterElements(zeros (2 * rank,), positions of the given axes, pads)

    Refuses an unknown rank, axes that are not constant, an element type or a mode that the
    target lacks.
    """
    view = NodeView(node, context.opset_of(node))
    data, pads, mode = view.required("data"), view.required("pads"), view.string("mode")
    axes = context.folder.integers(view.input("axes"))
    if view.input("axes") is not None and (axes is None or data.shape is None):
        raise Refusal(
            "dynamic-input" if axes is None else "unknown-rank",
            f"Pad has no `axes` before opset 18, and the axes or the rank of `{data.name}` are "
            "unknown",
            help="make the axes constant and declare the shape",
            lowest_opset=18,
        )
    if mode == "wrap" and em.opset < 19:
        raise Refusal("attribute-value", "`mode=wrap` came with opset 19", lowest_opset=19)
    if axes is not None and data.shape is not None:
        rank = len(data.shape)
        first = axes.ravel() % rank
        places = em.constant(np.concatenate([first, first + rank]), "places")
        zeros = em.constant(np.zeros(2 * rank, np.int64), "zeros")
        pads = em.op("ScatterElements", zeros, places, pads, hint="pads")
    inputs = [data, pads]
    if (fill := view.input("constant_value")) is not None:
        inputs.append(fill)
    dtype = data.dtype or ir.DataType.UNDEFINED
    return Replacement((em.op("Pad", *inputs, attributes={"mode": mode}, dtype=dtype),))
