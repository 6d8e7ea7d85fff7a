"""Causal convolutions of `com.microsoft` that carry the last positions on as a state."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.contrib.heads import known_size
from onnx_kvtool.rewrite.contrib.rule import Builder, is_read, refuse_value
from onnx_kvtool.rewrite.engine.emit import Emitter
from onnx_kvtool.rewrite.engine.forms import cast
from onnx_kvtool.rewrite.engine.rule import Refusal, Replacement
from onnx_kvtool.symbolic.dims import dims_of

__all__ = ["causal_conv_with_state"]

_D = ir.DataType
_END = 2**31 - 1


def causal_conv_with_state(view: NodeView, em: Emitter) -> Replacement:
    """Write CausalConvWithState as Concat, Conv in float32, Slice, and x * Sigmoid(x).

    The state is the last positions of what is convolved, and stays an input and an output. With
    `channels_last` the channels, on however many axes, are brought to the front for Conv, and back.

    Refuses what onnxruntime has on GPUs alone: more than one axis of positions, a window of states,
    their capture, a length or a layout of the state of its own, and a part of the channels.
    """
    _refuse_elsewhere(view)
    x, weight, past = view.required("input"), view.required("weight"), view.input("past_state")
    channels = known_size(weight, 0, f"the number of channels of `{weight.name}`")
    taps = known_size(weight, 2, f"the length of the kernel `{weight.name}`")
    dilation, is_last = view.integer("dilation"), view.integer("channels_last") != 0
    rows, place, rank = (taps - 1) * dilation, 1 if is_last else 2, _rank(view, x, is_last)
    own = Builder(em, x.dtype or _D.UNDEFINED)
    whole = x
    if rows and past is not None:
        whole = own("Concat", past, x, attributes={"axis": place}, hint="positions")
    elif rows:
        pads = [0] * (2 * rank)
        pads[place] = rows
        whole = own("Pad", x, em.constant(pads, "pads"), hint="positions")
    bounds = ([-rows], [_END]) if rows else ([0], [0])
    places = (em.constant(values, "bound") for values in (*bounds, [place]))
    present = own("Slice", whole, *places, hint="present_state") if is_read(view, 1) else None
    if is_last:
        whole = _channels_first(em, whole, channels, rank)
    y = convolved(view, em, whole, {"group": channels, "dilations": [dilation]})
    y = cast(em, y, own.dtype)
    if is_last:
        y = own("Transpose", y, attributes={"perm": [0, 2, 1]}, hint="channels_last")
        if rank > 3:
            y = own("Reshape", y, em.constant([0, 0, *_axes(view, x)], "shape"))
    return Replacement((y, present, None)[: len(view.node.outputs)])


def convolved(
    view: NodeView, em: Emitter, positions: ir.Value, attributes: dict[str, int | list[int]]
) -> ir.Value:
    """Return the convolution of (B, C, P) with the weight and the bias of a node, activated."""
    op, bias = Builder(em, _D.FLOAT), view.input("bias")
    operands = [cast(em, v, _D.FLOAT) for v in (positions, view.required("weight"))]
    if bias is not None:
        operands.append(cast(em, bias, _D.FLOAT))
    return activated(view, em, op("Conv", *operands, attributes=attributes))


def activated(view: NodeView, em: Emitter, value: ir.Value) -> ir.Value:
    """Return what the activation of a node makes of a float32 value."""
    refuse_value(view, "activation", "none", "silu", "swish")
    if view.string("activation") == "none":
        return value
    op = Builder(em, _D.FLOAT)
    return op("Mul", value, op("Sigmoid", value), hint="activated")


def _refuse_elsewhere(view: NodeView) -> None:
    """Refuse what onnxruntime 1.32 computes on GPUs alone, and a dilation that is none."""
    for name in (
        "state_window", "state_update_capacity", "state_length", "input_channel_offset",
        "input_channels",
    ):  # fmt: skip
        refuse_value(view, name, 0)
    refuse_value(view, "ndim", 1)
    refuse_value(view, "state_channels_last", -1)
    refuse_value(view, "channels_last", 0, 1)
    if is_read(view, 2):
        raise Refusal(
            "contrib-form",
            "`state_update` of `CausalConvWithState` is read, which onnxruntime gives on GPUs only",
        )
    refuse_dilation(view)


def refuse_dilation(view: NodeView) -> None:
    """Refuse taps that lie on each other, or ahead."""
    if view.integer("dilation") < 1:
        raise Refusal(
            "contrib-form",
            f"`dilation` of `{view.node.op_type}` is `{view.integer('dilation')}`, expected 1 or "
            "more",
        )


def _rank(view: NodeView, x: ir.Value, is_last: bool) -> int:
    dims = dims_of(x)
    if dims is None and is_last:
        raise Refusal(
            "unknown-rank",
            f"the rank of `{x.name}` of `{view.node.op_type}` is unknown",
            help="declare its shape",
        )
    return 3 if dims is None else len(dims)


def _axes(view: NodeView, x: ir.Value) -> list[int]:
    """Return the sizes of the axes of the channels, behind batch and positions."""
    what = f"a size of the channels of `{x.name}` of `{view.node.op_type}`"
    return [known_size(x, axis, what) for axis in range(2, len(dims_of(x) or ()))]


def _channels_first(em: Emitter, whole: ir.Value, channels: int, rank: int) -> ir.Value:
    op = Builder(em, whole.dtype or _D.UNDEFINED)
    if rank > 3:
        whole = op("Reshape", whole, em.constant([0, 0, channels], "shape"))
    return op("Transpose", whole, attributes={"perm": [0, 2, 1]}, hint="channels_first")
