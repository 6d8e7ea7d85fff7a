"""Resize-19, for opsets below 19 and below 13."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.schema import op_facts
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.lowering.resize_run_time import resized_at_run_time
from onnx_kvtool.rewrite.lowering.resize_tables import constant_floats, resized_by_tables

__all__ = ["lower_resize_19"]

_KEPT = (
    "coordinate_transformation_mode",
    "cubic_coeff_a",
    "exclude_outside",
    "extrapolation_value",
    "mode",
    "nearest_mode",
    "antialias",
    "axes",
    "keep_aspect_ratio_policy",
)


def lower_resize_19(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Spread sizes, scales and regions of some axes over all of them; fill in empty inputs.

    An axis that is not named keeps its size: its scale is 1, its region 0 to 1. Below 13 `roi` and
    `scales` are required, and empty ones stand for absent ones.

    Antialiasing, sizes that keep the aspect ratio (the scale is then that of one axis, which
    neither sizes nor scales can say) and `half_pixel_symmetric` are written as weighted sums of
    rows: by tables where scales or sizes and the sizes of the input are constant, else with places
    and shares that are computed when the model runs, as onnxruntime computes them.

    Refuses these of an unknown rank, and of integers unless the mode is `nearest`; `axes` for an
    unknown rank; and the mode `tf_half_pixel_for_nn`, which went with opset 13.
    """
    view = NodeView(node, context.opset_of(node))
    data = view.required("X")
    roi, scales, sizes = view.input("roi"), view.input("scales"), view.input("sizes")
    try:
        _guard(view, em.opset)
    except Refusal:
        written = resized_by_tables(context, view, em)
        if written is not None:
            return Replacement((written,), via="tables")
        written = resized_at_run_time(view, em)
        if written is None:
            raise
        return Replacement((written,), via="run_time")
    axes = _axes(view, data)
    if axes is not None and em.opset < 18:
        rank = len(data.shape or ())
        first = axes % rank
        place = em.constant(first, "axes")
        known = context.folder.integers(sizes)
        if known is not None and all(isinstance(dim, int) for dim in data.shape or ()):
            whole_sizes = np.array(data.shape.numpy() if data.shape else (), np.int64)
            whole_sizes[first] = known.ravel()
            sizes = em.constant(whole_sizes, "sizes")
        elif sizes is not None:
            sizes = em.op("ScatterElements", em.op("Shape", data), place, sizes, hint="sizes")
        factors = constant_floats(scales)
        if factors is not None:
            whole_scales = np.ones(rank, np.float32)
            whole_scales[first] = factors.ravel()
            scales = em.constant(whole_scales, "scales")
        elif scales is not None:
            ones = em.constant(np.ones(rank, np.float32), "ones")
            scales = em.op(
                "ScatterElements", ones, place, scales, dtype=ir.DataType.FLOAT, hint="scales"
            )
        if roi is not None and roi.dtype is not None:
            whole = np.repeat(np.array([0, 1]), rank).astype(roi.dtype.numpy())
            places = em.constant(np.concatenate([first, first + rank]), "places")
            region = em.constant(whole, "region")
            roi = em.op("ScatterElements", region, places, roi, dtype=roi.dtype, hint="roi")
    if em.opset < 13:
        nothing = em.constant(np.zeros(0, np.float32), "nothing")
        roi, scales = roi or nothing, scales or nothing
    facts = op_facts("Resize", em.opset)
    allowed = facts.attributes if facts is not None else {}
    attributes: dict[str, AttributeValue] = {
        name: value
        for name in _KEPT
        if name in allowed
        and name in view.facts.attributes
        and isinstance(value := view.attribute(name), (int, float, str, tuple))
    }
    inputs = [data, roi, scales] + ([] if sizes is None else [sizes])
    dtype = data.dtype or ir.DataType.UNDEFINED
    return Replacement((em.op("Resize", *inputs, attributes=attributes, dtype=dtype),))


def _guard(view: NodeView, opset: int) -> None:
    names = view.facts.attributes
    if opset < 18 and "antialias" in names and view.integer("antialias") != 0:
        raise Refusal("attribute", "`antialias` does not exist before opset 18", lowest_opset=18)
    policy = "keep_aspect_ratio_policy"
    kept = policy in names and view.string(policy) != "stretch"
    if opset < 18 and kept and view.input("sizes") is not None:
        text = f"`{policy}={view.string(policy)}` does not exist before opset 18"
        raise Refusal("attribute-value", text, lowest_opset=18)
    mode = view.string("coordinate_transformation_mode")
    if opset < 19 and mode == "half_pixel_symmetric":
        text = f"`coordinate_transformation_mode={mode}` does not exist before opset 19"
        raise Refusal("attribute-value", text, lowest_opset=19)


def _axes(view: NodeView, data: ir.Value) -> np.ndarray | None:
    given = view.attribute("axes") if "axes" in view.facts.attributes else None
    if not isinstance(given, tuple) or not given:
        return None
    if data.shape is None:
        raise Refusal(
            "unknown-rank",
            f"Resize has no `axes` before opset 18, and the rank of `{data.name}` is unknown",
            help="declare the shape of the input",
            lowest_opset=18,
        )
    return np.array(given, np.int64)
