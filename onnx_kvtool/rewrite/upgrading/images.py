"""Normalizations and operators that sample images, in a later form."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.constants import const_tensor
from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Refusal, Replacement
from onnx_kvtool.emit.forms import again, known_type
from onnx_kvtool.model_io.forms import SparseInitializer
from onnx_kvtool.ops.legality import further_outputs
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.rewrite.lowering.grid_sample import NEW_NAMES
from onnx_kvtool.rewrite.lowering.reshape import never_empty, reshape_literally
from onnx_kvtool.rewrite.upgrading.rules import number_like
from onnx_kvtool.symbolic.dimensions import dims_of

# Normalisations: BatchNormalization, GroupNormalization, and Softmax with its relatives.


def upgrade_batch_normalization_9_14(view: Rewritten, em: Emitter) -> Replacement:
    """Write `spatial=0` in plain arithmetic; else leave out what the later version lacks.

    Without `spatial`, scale, bias, mean and variance are (C, D1, ...), one for each element of a
    sample, and Y = (X - mean) / Sqrt(var + epsilon) * scale + B, where the batch broadcasts.

    Refuses further outputs, which are those of a training step.
    """
    op = em.op
    if further_outputs(view.node):
        raise Refusal(
            "changed-meaning",
            "further outputs are those of a training step, which opset 14 gives in another form",
            help="export the model for inference",
        )
    if view.integer("spatial", 1):
        return again(em, view.node, without=("spatial",), outputs=1)
    data, scale, bias = view.operands("X", "scale", "B")
    mean, variance = view.operands("mean", "var")
    small = number_like(em, view.real("epsilon"), data, "epsilon")
    deviation = op("Sqrt", op("Add", variance, small))
    normal = op("Div", op("Sub", data, mean), deviation)
    result = op("Add", op("Mul", normal, scale), bias)
    return Replacement((result, *[None] * (len(view.node.outputs) - 1)))


def upgrade_group_normalization_21(view: Rewritten, em: Emitter) -> Replacement:
    """Repeat scale and bias, which are per group, (num_groups,), for each channel: (C,).

    Version 18 computes in the type of X; `stash_type` says so to version 21, which would compute
    in float32.

    Refuses an unknown element type.
    """
    op = em.op
    data, groups = view.required("X"), view.integer("num_groups")
    dims = dims_of(data)
    channels = dims[1] if dims is not None and len(dims) > 1 else None
    if isinstance(channels, int):
        target = em.constant([groups, channels // groups], "per_group")
    else:
        count = op("Shape", data, start=1, end=2, hint="channels")  # (1,)
        target = op("Concat", [groups], op("Div", count, [groups]), axis=0)

    def spread(value: ir.Value) -> ir.Value:
        column = op("Reshape", value, [groups, 1])
        repeated = op("Expand", column, target)  # (num_groups, C / num_groups)
        return op("Reshape", repeated, [-1])

    inputs = [data, spread(view.required("scale")), spread(view.required("bias"))]
    dtype = known_type(data)
    plain = dtype == ir.DataType.FLOAT
    stash = {} if plain else {"stash_type": dtype.value}
    return again(em, view.node, inputs, attributes=stash)


def upgrade_softmax_13(view: Rewritten, em: Emitter) -> ir.Value | Replacement:
    """Flatten the input at `axis` and reshape the result, as the operator does itself below 13.

    On the last axis both versions mean the same; it is written out, since the default differs.
    """
    data, axis, dims = view.required("input"), view.integer("axis"), dims_of(view.required("input"))
    if dims is not None and not -len(dims) <= axis < max(len(dims), 1):
        raise MalformedNode("axis-out-of-range", f"`axis` is {axis} for a rank of {len(dims)}")
    if axis == -1 or (dims is not None and axis == len(dims) - 1):
        return again(em, view.node, [data], attributes={"axis": axis})
    flat = em.op("Flatten", data, axis=axis)
    along = again(em, view.node, [flat], attributes={"axis": -1}).outputs[0]
    if along is None:
        raise MalformedNode("output", f"`{view.node.op_type}` has no output")
    shape = em.op("Shape", data)
    return reshape_literally(em, along, shape, empty=not never_empty(data))


# Operators that sample images: Resize, Upsample, GridSample, RoiAlign.


_HALF_PIXEL_OF = {"floor": "round_prefer_ceil", "round_prefer_floor": "ceil"}
"""For a rounding of (x + 0.5) / scale the equal one of (x + 0.5) / scale - 0.5."""


def upgrade_upsample_9_10(view: Rewritten, em: Emitter) -> ir.Value | Replacement:
    """Resize at x / scale, rounded down.

    Version 7 has the scales as an attribute. They are at least 1.
    """
    scales = view.input("scales") if len(view.facts.inputs) > 1 else None
    if scales is None:
        given = np.asarray(view.attribute("scales"), np.float32)
        scales = em.constant(given, "scales")
    if em.opset < 10:
        return again(em, view.node, [view.required("X"), scales], without=("scales",))
    return _resize(em, view.required("X"), scales, _mode(view), "floor")


def upgrade_resize_11_13(view: Rewritten, em: Emitter) -> ir.Value | Replacement:
    """Say to version 11 what version 10 does, and to version 13 what an empty `scales` means.

    Version 10 resizes at x / scale. Its text leaves open how that is rounded; its examples and
    onnxruntime (1.31) round down where a dimension grows, and up where it shrinks.

    Version 13 lacks `tf_half_pixel_for_nn`, which is x_original = (x + 0.5) / scale: half a pixel
    more than `half_pixel`, so that the one rounded down is the other rounded to the nearest.

    Refuses `tf_half_pixel_for_nn` with another rounding or mode.
    """
    data = view.required("X")
    if view.opset >= 11:
        return _from_11(view, em)
    scales, mode = view.required("scales"), _mode(view)
    if mode != "nearest":
        return _resize(em, data, scales, mode, "floor")
    known = _numbers(scales)
    if known is not None and (known >= 1).all():
        return _resize(em, data, scales, mode, "floor")
    if known is not None and (known <= 1).all():
        return _resize(em, data, scales, mode, "ceil")
    one = em.constant(np.ones(1, np.float32), "one")
    grown = _resize(em, data, em.op("Max", scales, one), mode, "floor")
    return _resize(em, grown, em.op("Min", scales, one), mode, "ceil")


def _from_11(view: NodeView, em: Emitter) -> Replacement:
    roi, scales, sizes = (view.input(name) for name in ("roi", "scales", "sizes"))
    if em.opset < 13:
        return again(em, view.node)
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
    return again(em, view.node, inputs, attributes=changed)


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
    if em.opset < 11:
        return em.op("Resize", data, scales, mode=mode)
    nothing = em.constant(np.zeros(0, np.float32), "no_roi") if em.opset < 13 else None
    attributes = {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
    if mode == "nearest":
        attributes["nearest_mode"] = rounding
    return em.op("Resize", data, nothing, scales, attributes=attributes)


def upgrade_grid_sample_20(view: Rewritten, em: Emitter) -> Replacement:
    """Give the mode the name that holds for any number of spatial dimensions."""
    mode = view.string("mode")
    if mode not in NEW_NAMES:
        raise MalformedNode("attribute-value", f"`mode={mode}` is no mode of GridSample-16")
    return again(em, view.node, attributes={"mode": NEW_NAMES[mode]})


def upgrade_roi_align_16(view: Rewritten, em: Emitter) -> Replacement:
    """Name what version 10 does: no shift by half a pixel, which version 16 has by default."""
    mode = {"coordinate_transformation_mode": "output_half_pixel"}
    return again(em, view.node, attributes=mode)
