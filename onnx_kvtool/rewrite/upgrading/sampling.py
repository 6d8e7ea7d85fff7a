"""Operators that sample images: Resize, Upsample, GridSample, RoiAlign."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.constants import const_tensor
from onnx_kvtool.core.messages.forms import SparseInitializer
from onnx_kvtool.emit.emitter import AttributeValue, Emitter
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.upgrading.forms import again

__all__ = [
    "upgrade_grid_sample_20",
    "upgrade_resize_11_13",
    "upgrade_roi_align_16",
    "upgrade_upsample_9_10",
]

_FLOAT = ir.DataType.FLOAT

_HALF_PIXEL_OF = {"floor": "round_prefer_ceil", "round_prefer_floor": "ceil"}
"""For a rounding of (x + 0.5) / scale the equal one of (x + 0.5) / scale - 0.5."""


def upgrade_upsample_9_10(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Resize at x / scale, rounded down.

    Version 7 has the scales as an attribute. They are at least 1.
    """
    view = NodeView(node, context.opset_of(node))
    scales = view.input("scales") if len(view.facts.inputs) > 1 else None
    if scales is None:
        given = np.asarray(view.attribute("scales"), np.float32)
        scales = em.constant(given, "scales")
    if em.opset < 10:
        return again(em, node, [view.required("X"), scales], without=("scales",))
    mode = _mode(view)
    return Replacement((_resize(em, view.required("X"), scales, mode, "floor"),))


def upgrade_resize_11_13(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Say to version 11 what version 10 does, and to version 13 what an empty `scales` means.

    Version 10 resizes at x / scale. Its text leaves open how that is rounded; its examples and
    onnxruntime (1.31) round down where a dimension grows, and up where it shrinks.

    Version 13 lacks `tf_half_pixel_for_nn`, which is x_original = (x + 0.5) / scale: half a pixel
    more than `half_pixel`, so that the one rounded down is the other rounded to the nearest.

    Refuses `tf_half_pixel_for_nn` with another rounding or mode.
    """
    opset = context.opset_of(node)
    view = NodeView(node, opset)
    data = view.required("X")
    if opset >= 11:
        return _from_11(view, node, em)
    scales, mode = view.required("scales"), _mode(view)
    if mode != "nearest":
        return Replacement((_resize(em, data, scales, mode, "floor"),))
    known = _numbers(scales)
    if known is not None and (known >= 1).all():
        return Replacement((_resize(em, data, scales, mode, "floor"),))
    if known is not None and (known <= 1).all():
        return Replacement((_resize(em, data, scales, mode, "ceil"),))
    one = em.constant(np.ones(1, np.float32), "one")
    grown = _resize(em, data, em.op("Max", scales, one, dtype=_FLOAT), mode, "floor")
    shrunk = _resize(em, grown, em.op("Min", scales, one, dtype=_FLOAT), mode, "ceil")
    return Replacement((shrunk,))


def _from_11(view: NodeView, node: ir.Node, em: Emitter) -> Replacement:
    roi, scales, sizes = (view.input(name) for name in ("roi", "scales", "sizes"))
    if em.opset < 13:
        return again(em, node, list(node.inputs))
    changed: dict[str, AttributeValue] = {}
    if view.string("coordinate_transformation_mode") == "tf_half_pixel_for_nn":
        rounding = view.string("nearest_mode")
        if view.string("mode") != "nearest" or rounding not in _HALF_PIXEL_OF:
            raise Refusal(
                "attribute-value",
                f"`tf_half_pixel_for_nn` does not exist from opset 13 on, and with "
                f"`mode={view.string('mode')}` and `nearest_mode={rounding}` nothing is equal",
            )
        changed = {
            "coordinate_transformation_mode": "half_pixel",
            "nearest_mode": _HALF_PIXEL_OF[rounding],
        }
    inputs = [view.required("X"), roi, None if sizes is not None else scales, sizes]
    return again(em, node, inputs, attributes=changed)


def _numbers(scales: ir.Value) -> np.ndarray | None:
    """Return the values of scales that the file itself fixes; None for others."""
    tensor = None if scales.is_graph_input() else const_tensor(scales)
    if tensor is None or isinstance(tensor, (ir.ExternalTensor, SparseInitializer)):
        return None
    return np.asarray(tensor.numpy())


def _mode(view: NodeView) -> str:
    mode = view.string("mode")
    if mode not in ("nearest", "linear"):
        raise MalformedNode("attribute-value", f"`mode={mode}` is not `nearest` or `linear`")
    return mode


def _resize(em: Emitter, data: ir.Value, scales: ir.Value, mode: str, rounding: str) -> ir.Value:
    dtype = data.dtype or ir.DataType.UNDEFINED
    if em.opset < 11:
        return em.op("Resize", data, scales, attributes={"mode": mode}, dtype=dtype)
    nothing = em.constant(np.zeros(0, np.float32), "no_roi") if em.opset < 13 else None
    attributes = {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
    if mode == "nearest":
        attributes["nearest_mode"] = rounding
    return em.op("Resize", data, nothing, scales, attributes=attributes, dtype=dtype)


_NEW_NAMES = {"bilinear": "linear", "bicubic": "cubic", "nearest": "nearest"}


def upgrade_grid_sample_20(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Give the mode the name that holds for any number of spatial dimensions."""
    view = NodeView(node, context.opset_of(node))
    mode = view.string("mode")
    if mode not in _NEW_NAMES:
        raise MalformedNode("attribute-value", f"`mode={mode}` is no mode of GridSample-16")
    return again(em, node, list(node.inputs), attributes={"mode": _NEW_NAMES[mode]})


def upgrade_roi_align_16(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Name what version 10 does: no shift by half a pixel, which version 16 has by default."""
    mode = {"coordinate_transformation_mode": "output_half_pixel"}
    return again(em, node, list(node.inputs), attributes=mode)
