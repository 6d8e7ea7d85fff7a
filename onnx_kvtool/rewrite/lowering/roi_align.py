"""RoiAlign-16, for opsets below 16."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.emit import AttributeValue, Emitter
from onnx_kvtool.rewrite.engine.rule import LoweringContext, Refusal, Replacement

__all__ = ["lower_roi_align_16"]


def lower_roi_align_16(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Drop `coordinate_transformation_mode` where it names what RoiAlign-10 does.

    Refuses `half_pixel`. Boxes shifted by half a pixel are not enough: version 10 also widens
    boxes smaller than one pixel, which the mode does not.
    """
    view = NodeView(node, context.opset_of(node))
    mode = view.string("coordinate_transformation_mode")
    if mode != "output_half_pixel":
        raise Refusal(
            "attribute-value",
            f"`coordinate_transformation_mode={mode}` does not exist before opset 16, and version "
            "10 widens boxes smaller than one pixel",
            help="export with `output_half_pixel` (`aligned=False`)",
            lowest_opset=16,
        )
    kept = ("mode", "output_height", "output_width", "sampling_ratio", "spatial_scale")
    attributes: dict[str, AttributeValue] = {}
    for name in kept:
        value = view.attribute(name)
        if isinstance(value, (int, float, str)):
            attributes[name] = value
    inputs = [view.required(name) for name in ("X", "rois", "batch_indices")]
    dtype = inputs[0].dtype or ir.DataType.UNDEFINED
    return Replacement((em.op("RoiAlign", *inputs, attributes=attributes, dtype=dtype),))
