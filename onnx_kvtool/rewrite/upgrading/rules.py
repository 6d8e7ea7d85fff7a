"""Operators of an older opset in a later form."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.constants import const_tensor
from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Refusal, Replacement
from onnx_kvtool.emit.forms import again, cast, dtype_of, formal, known_type, terms
from onnx_kvtool.model_io.verbatim import SparseInitializer
from onnx_kvtool.ops.legality import further_outputs
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.rewrite.lowering.grid_sample import NEW_NAMES
from onnx_kvtool.rewrite.lowering.reshape import never_empty, reshape_literally
from onnx_kvtool.symbolic.dimensions import dim_of, dims_of

# What the rules have in common: the same node in a later form, and constants beside it.


def number_like(em: Emitter, number: float, data: ir.Value, hint: str) -> ir.Value:
    """Return a number as a constant of the element type of `data`: ().

    Where the type is unknown, as in a function, a CastLike takes it from the value.

    Raises:
        Refusal: If the type is unknown and the target has no CastLike.
    """
    array = np.asarray(number, np.float32)
    if data.dtype is not None:
        return em.tensor(ir.tensor(array.astype(data.dtype.numpy()), dtype=data.dtype), hint)
    if em.opset < 15:
        raise Refusal("unknown-element-type", f"the type of `{data.name}` is unknown")
    constant = em.constant(array, hint)
    return em.op("CastLike", constant, data, hint=hint)


# Operators whose attributes became inputs: axes, bounds, sizes, pads, a ratio.


def upgrade_axes_13_18(view: Rewritten, em: Emitter) -> Replacement:
    """Give the axes as an input: (n,), int64.

    It came with opset 13 for Squeeze, Unsqueeze and ReduceSum, with 18 for the other reductions.
    An empty list of a reduction means all axes in every version and is left out.

    Refuses an empty list of Squeeze: releases differ on whether it drops no dimension or each one
    of size 1.
    """
    data, axes = view.required("data"), view.attribute("axes")
    if not isinstance(axes, tuple):
        return again(em, view.node, [data])
    numbers = [int(axis) for axis in axes]
    if not numbers and view.node.op_type == "Squeeze":
        raise Refusal("empty-axes", "runtimes differ on what an empty list of axes means")
    if not numbers and view.node.op_type != "Unsqueeze":
        return again(em, view.node, [data], without=("axes",))
    return again(em, view.node, [data, em.constant(numbers, "axes")], without=("axes",))


_NO_LARGER = (ir.DataType.FLOAT, ir.DataType.FLOAT16)


def upgrade_clip_11(view: Rewritten, em: Emitter) -> Replacement:
    """Give the bounds as inputs: ().

    An absent bound is the largest float32 in version 6, and the largest number of the element
    type in version 11. Both cut nothing but infinities for float32 and float16, and the bound stays
    absent; for float64 it is written out.
    """
    data = view.required("input")
    bounds: list[ir.Value | None] = []
    for name in ("min", "max"):
        bound = view.real(name)
        absent = bound == view.facts.attributes[name].default and data.dtype in _NO_LARGER
        bounds.append(None if absent else number_like(em, bound, data, name))
    return again(em, view.node, [data, *bounds], without=("min", "max"))


def upgrade_dft_20(view: Rewritten, em: Emitter) -> Replacement:
    """Give the axis as an input: (), int64; 1 where version 17 left it out, and 20 takes -2."""
    axis = em.constant(view.integer("axis"), "axis")
    inputs = [view.required("input"), view.input("dft_length"), axis]
    return again(em, view.node, inputs, without=("axis",))


def upgrade_dropout_10_12(view: Rewritten, em: Emitter) -> Replacement:
    """Give the ratio as an input: (), float32. Without `training_mode` the data passes through.

    Refuses a mask that is read: no text before opset 12 says what it holds in inference.
    """
    data = view.required("data")
    if any(o.name and (o.uses() or o.is_graph_output()) for o in view.node.outputs[1:]):
        raise Refusal(
            "changed-meaning",
            "the mask is read, and its value in inference is undefined before opset 12",
            help="export the model for inference",
        )
    if em.opset < 12:
        return again(em, view.node, [data], outputs=1)
    ratio = em.constant(np.asarray(view.attribute("ratio"), np.float32), "ratio")
    return again(em, view.node, [data, ratio], without=("ratio",), outputs=1)


def upgrade_pad_11(view: Rewritten, em: Emitter) -> Replacement:
    """Give the pads, (2 * rank,), and a value other than zero, (), as inputs."""
    data, value = view.required("data"), view.real("value")
    inputs = [data, em.constant(view.integers("pads"), "pads")]
    if value != 0.0 and view.string("mode") == "constant":
        inputs.append(number_like(em, value, data, "pad_value"))
    return again(em, view.node, inputs, without=("pads", "value"))


def upgrade_slice_10(view: Rewritten, em: Emitter) -> Replacement:
    """Give starts, ends and axes as inputs: (n,), int64."""
    inputs: list[ir.Value | None] = [view.required("data")]
    for name in ("starts", "ends", "axes"):
        numbers = view.attribute(name)
        if isinstance(numbers, tuple):
            inputs.append(em.constant([int(number) for number in numbers], name))
        elif name != "axes":
            raise MalformedNode("attribute", f"attribute `{name}` of Slice is required and absent")
    return again(em, view.node, inputs, without=("starts", "ends", "axes"))


def upgrade_split_13_18(view: Rewritten, em: Emitter) -> Replacement:
    """Give the sizes as an input, (outputs,), int64; without sizes, the number of equal parts."""
    data = view.required("input")
    sizes = view.integers("split")
    lengths = view.input("split") if len(view.facts.inputs) > 1 else None
    if sizes:
        lengths = em.constant(sizes, "split")
    if lengths is not None:
        return again(em, view.node, [data, lengths], without=("split",))
    parts = {"num_outputs": len(view.node.outputs)} if em.opset >= 18 else {}
    return again(em, view.node, [data], without=("split",), attributes=parts)


def upgrade_top_k_10(view: Rewritten, em: Emitter) -> Replacement:
    """Give `k` as an input: (1,), int64."""
    count = em.constant([view.integer("k")], "k")
    return again(em, view.node, [view.required("X"), count], without=("k",))


# Operators that convert element types: Cast, CastLike, QuantizeLinear, DequantizeLinear.


def upgrade_cast_24(view: Rewritten, em: Emitter) -> Replacement:
    """Turn infinities into NaN first: with `saturate` they became NaN, and now the largest number.

    Cast(Where(IsInf(input), NaN, input))
    """
    data = view.required("input")
    infinite = em.op("IsInf", data)
    nothing = number_like(em, np.nan, data, "nan")
    finite = em.op("Where", infinite, nothing, data)
    return again(em, view.node, [finite, *view.node.inputs[1:]])


def upgrade_dequantize_linear_13(view: Rewritten, em: Emitter) -> Replacement:
    """Make scale and zero point scalars, see `upgrade_quantize_linear_13_19`."""
    data, *numbers = view.node.inputs
    return again(em, view.node, [data, *(_scalar(em, value) for value in numbers)])


def upgrade_quantize_linear_13_19(view: Rewritten, em: Emitter) -> Replacement:
    """Make scale and zero point scalars, and the input a float where the types must be the same.

    Before opset 13 both are one number, and from then on a value of rank 1 holds one number for
    each index of an axis. At opsets 19 to 22 the scale has the type of the input; an int32 input
    is cast to float32, the type of the quotient in onnxruntime 1.31.

    Refuses an unknown input type for these opsets.
    """
    data, numbers = view.required("x"), list(view.node.inputs[1:])
    if view.opset < 13:
        numbers = [_scalar(em, value) for value in numbers]
    if view.opset < 19 <= em.opset < 23 and known_type(data) == ir.DataType.INT32:
        data = cast(em, data, ir.DataType.FLOAT)
    return again(em, view.node, [data, *numbers])


def _scalar(em: Emitter, value: ir.Value | None) -> ir.Value | None:
    if value is None or (value.shape is not None and len(value.shape) == 0):
        return value
    return em.op("Reshape", value, [], hint="scalar")


# Operators that select by indices: OneHot and Scatter.


_INT64 = ir.DataType.INT64


def upgrade_one_hot_11(view: Rewritten, em: Emitter) -> Replacement:
    """Keep negative indices out of range: OneHot(Where(indices < 0, depth, indices), ...).

    They select nothing in version 9, and count from the end in version 11; `depth` itself selects
    nothing in both. Numbers of other types are cast to int64, as the operator does itself.
    Constant indices without a negative one stay as they are.
    """
    indices, depth, values = view.operands("indices", "depth", "values")
    known = view.known(indices)
    if known is not None and (known >= 0).all():
        return again(em, view.node, [indices, depth, values])
    whole = [cast(em, value, _INT64) for value in (indices, depth)]
    # One element, of rank 0 or 1: as (1,) it would give scalar indices a dimension.
    scalar = em.op("Reshape", whole[1], [], hint="depth")
    negative = em.op("Less", whole[0], 0)
    kept = em.op("Where", negative, scalar, whole[0], hint="indices")
    return again(em, view.node, [kept, scalar, values])


def upgrade_scatter_11(view: Rewritten, em: Emitter) -> Replacement:
    """Call it ScatterElements; inputs and attributes are the same."""
    return again(em, view.node, op_type="ScatterElements")


# Scan-8, for opsets from 9 on.


def upgrade_scan_9(view: Rewritten, em: Emitter) -> Replacement:
    """Scan the batch, which version 8 has as the first axis of all inputs and outputs.

    Scan over the batch, without a state:
        body(states of a sample, sequences of a sample) = Scan over the sequence, the old body

    Refuses `sequence_lens`: Scan-9 runs every sequence to its end.
    """
    if view.node.inputs and view.node.inputs[0] is not None:
        raise Refusal(
            "sequence-lens",
            "`sequence_lens` is given, and sequences have one length from opset 9 on",
        )
    scanned, directions = view.integer("num_scan_inputs"), view.attribute("directions")
    body = view.node.attributes["body"].as_graph()
    batched = [value for value in view.node.inputs[1:] if value is not None]
    samples = [
        formal(em, "sample", dtype_of(value), value.shape and value.shape[1:]) for value in batched
    ]
    attributes: dict[str, AttributeValue] = {"body": body, "num_scan_inputs": scanned}
    if isinstance(directions, tuple):
        attributes["scan_input_directions"] = [int(one) for one in directions]
    count = len(view.node.outputs)

    def one_sample() -> Sequence[ir.Value]:
        return em.multi("Scan", *samples, attributes=attributes, count=count, hint="sequence")

    results: list[ir.Value | None] = list(
        em.multi(
            "Scan",
            *batched,
            body=em.nested(one_sample, samples, hint="sample"),
            num_scan_inputs=len(samples),
            count=count,
        )
    )
    for index, output in enumerate(view.node.outputs):
        if not output.name:
            results[index] = None
    return Replacement(tuple(results))


# Normalisations: BatchNormalization, GroupNormalization, and Softmax with its relatives.


def upgrade_batch_normalization_9_14(view: Rewritten, em: Emitter) -> Replacement:
    """Write `spatial=0` in plain arithmetic; else leave out what the later version lacks.

    Without `spatial`, scale, bias, mean and variance are (C, D1, ...), one for each element of a
    sample, and Y = (X - mean) / Sqrt(var + epsilon) * scale + B, where the batch broadcasts.

    Refuses further outputs, which are those of a training step.
    """
    if further_outputs(view.node):
        raise Refusal(
            "changed-meaning",
            "further outputs are those of a training step, which opset 14 gives in another form",
            help="export the model for inference",
        )
    if view.integer("spatial", 1):
        return again(em, view.node, without=("spatial",), outputs=1)
    operands = view.operands("X", "scale", "B", "mean", "var")
    small = number_like(em, view.real("epsilon"), operands[0], "epsilon")
    data, scale, bias, mean, variance = terms(em, *operands)
    deviation = (variance + small).op("Sqrt")
    result = (data - mean) / deviation * scale + bias
    return Replacement((result.value, *[None] * (len(view.node.outputs) - 1)))


def upgrade_group_normalization_21(view: Rewritten, em: Emitter) -> Replacement:
    """Repeat scale and bias, which are per group, (num_groups,), for each channel: (C,).

    Version 18 computes in the type of X; `stash_type` says so to version 21, which would compute
    in float32.

    Refuses an unknown element type.
    """
    op = em.op
    data, groups = view.required("X"), view.integer("num_groups")
    channels = dim_of(data, 1)
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
