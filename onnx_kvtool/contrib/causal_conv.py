"""Causal convolutions of `com.microsoft`, whose state is the last positions."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.heads import known_size
from onnx_kvtool.contrib.recurrence import Sequences, sequences_of
from onnx_kvtool.contrib.rule import is_read, known_rank, no_form, refuse_input, refuse_value
from onnx_kvtool.emit.emitter import Emitter, Replacement
from onnx_kvtool.emit.forms import (
    cast,
    channels_first,
    channels_last,
    dtype_of,
    outputs_of,
    reduce,
    where,
)
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.symbolic.dimensions import dims_of

_D = ir.DataType
_END = 2**31 - 1


def causal_conv_with_state(view: NodeView, em: Emitter) -> Replacement:
    """Write CausalConvWithState as Concat, Conv in float32, Slice, and x * Sigmoid(x).

    The state, the last positions before the input, stays an input and an output. With
    `channels_last`, Transposes put the channels, which may have several axes, in front of Conv.

    Refuses what onnxruntime supports on GPUs only: several axes of positions, a window of states,
    captured states, another length or layout of the state, and a part of the channels.
    """
    _refuse_elsewhere(view)
    x, weight, past = view.required("input"), view.required("weight"), view.input("past_state")
    channels = known_size(weight, 0, f"the number of channels of `{weight.name}`")
    taps = known_size(weight, 2, f"the length of the kernel `{weight.name}`")
    dilation, is_last = view.integer("dilation"), view.integer("channels_last") != 0
    rows, place = (taps - 1) * dilation, 1 if is_last else 2
    rank = 3 if dims_of(x) is None and not is_last else known_rank(view, x)
    op, whole = em.op, x
    if rows and past is not None:
        whole = op("Concat", past, x, axis=place, hint="positions")
    elif rows:
        pads = [0] * (2 * rank)
        pads[place] = rows
        whole = op("Pad", x, pads, hint="positions")
    bounds = ([-rows], [_END]) if rows else ([0], [0])
    places = (em.constant(values, "bound") for values in (*bounds, [place]))
    present = op("Slice", whole, *places, hint="present_state") if is_read(view, 1) else None
    if is_last:
        whole = op("Reshape", whole, [0, 0, channels]) if rank > 3 else whole
        whole = channels_first(em, whole, 3)
    bias = view.input("bias")
    operands = [whole, weight, *([] if bias is None else [bias])]
    wide = (cast(em, operand, _D.FLOAT) for operand in operands)
    y = op("Conv", *wide, attributes={"group": channels, "dilations": [dilation]})
    y = cast(em, _activated(view, em, y), dtype_of(x))
    if is_last:
        y = channels_last(em, y, 3)
        if rank > 3:
            what = f"a size of the channels of `{x.name}` of `{view.node.op_type}`"
            y = op("Reshape", y, [0, 0, *(known_size(x, axis, what) for axis in range(2, rank))])
    return outputs_of(view.node, y, present, None)


def varlen_causal_conv_with_state(view: NodeView, em: Emitter) -> Replacement:
    """Write VarlenCausalConvWithState as a Gather of the rows of each tap, Mul and ReduceSum.

    The place of each tap, in the sequence of its token or in the state of that, is computed from
    `cumulative_sequence_length` once for all layers, and so are the rows of the final state and
    those that are captured. Products are float32.

    Refuses weights that differ from token to token (`kernel_delta`, `previous_mask`), which
    onnxruntime supports on GPUs only.
    """
    refuse_input(view, "kernel_delta", "previous_mask")
    _refuse_dilation(view)
    x, weight, past = view.operands("input", "weight", "initial_state")
    channels = known_size(weight, 0, f"the number of channels of `{weight.name}`")
    taps = known_size(weight, 2, f"the length of the kernel `{weight.name}`")
    dilation = view.integer("dilation")
    rows, op = (taps - 1) * dilation, em.op
    lying = sequences_of(em, view.required("cumulative_sequence_length"), x)
    pool = x
    if rows:
        turned = op("Transpose", past, perm=[0, 2, 1], hint="rows")
        states = op("Reshape", turned, [-1, channels])
        pool = op("Concat", x, states, axis=0, hint="positions")

    def of_taps() -> ir.Value:
        first = em.op("Gather", lying.starts, em.op("Reshape", lying.owner, [-1]))
        local = em.op("Sub", lying.place, first)
        offsets = np.arange(1 - taps, 1) * dilation
        return lying.before(lying.place, local, lying.owner, rows, offsets)

    reached = em.once(("taps", lying.owner, taps, dilation), of_taps)
    bias = view.input("bias")
    factors = op("Reshape", cast(em, weight, _D.FLOAT), [channels, taps])
    factors = op("Transpose", factors, perm=[1, 0], hint="by_tap")
    products = op("Mul", cast(em, op("Gather", pool, reached), _D.FLOAT), factors)
    y = reduce(em, "ReduceSum", products, [1], keepdims=False)
    if bias is not None:
        y = op("Add", y, cast(em, bias, _D.FLOAT), hint="biased")
    y = cast(em, _activated(view, em, y), dtype_of(x))
    final = _final_state(view, em, lying, pool, rows) if is_read(view, 1) else None
    update = _captured(view, em, lying, x) if is_read(view, 2) else None
    return outputs_of(view.node, y, final, update)


def _final_state(
    view: NodeView, em: Emitter, lying: Sequences, pool: ir.Value, rows: int
) -> ir.Value:
    """Return the last rows of each sequence and the state before it: (B, C, rows)."""
    op = em.op
    if not rows:
        return op("Identity", view.required("initial_state"))
    places = em.once(
        ("final", lying.ends, lying.count, rows),
        lambda: lying.before(lying.ends, lying.lengths, lying.number, rows, np.arange(-rows, 0)),
    )
    last = op("Gather", pool, places, hint="last")
    return op("Transpose", last, perm=[0, 2, 1], hint="final_state")


def _captured(view: NodeView, em: Emitter, lying: Sequences, x: ir.Value) -> ir.Value:
    """Return the first tokens of each sequence, and zeros beyond `capture_count`: (B, slots, C)."""
    slots, count = view.integer("state_update_capacity"), view.input("capture_count")
    if slots < 1 or count is None:
        raise no_form(
            f"`state_update` of `VarlenCausalConvWithState` is read, `state_update_capacity` is "
            f"`{slots}`, and `capture_count` {'absent' if count is None else 'given'}, expected "
            "room and a count"
        )
    slot = em.constant(np.arange(slots).reshape(1, -1), "slots")
    wide = em.op("Reshape", cast(em, count, _D.INT64), [-1, 1])
    is_asked = em.op("Less", slot, em.op("Min", wide, lying.lengths))
    places = where(em, is_asked, em.op("Add", lying.starts, slot), lying.count, "captured")
    return em.op("Gather", em.op("Pad", x, [0, 0, 1, 0]), places)


def _activated(view: NodeView, em: Emitter, value: ir.Value) -> ir.Value:
    """Return the activation of a node, applied to a float32 value."""
    refuse_value(view, "activation", "none", "silu", "swish")
    if view.string("activation") == "none":
        return value
    op = em.op
    return op("Mul", value, op("Sigmoid", value), hint="activated")


def _refuse_elsewhere(view: NodeView) -> None:
    """Refuse forms that onnxruntime 1.32 only computes on GPUs, and an invalid dilation."""
    for name in (
        "state_window", "state_update_capacity", "state_length", "input_channel_offset",
        "input_channels",
    ):  # fmt: skip
        refuse_value(view, name, 0)
    refuse_value(view, "ndim", 1)
    refuse_value(view, "state_channels_last", -1)
    refuse_value(view, "channels_last", 0, 1)
    if is_read(view, 2):
        raise no_form(
            "`state_update` of `CausalConvWithState` is read; onnxruntime computes it on GPUs only"
        )
    _refuse_dilation(view)


def _refuse_dilation(view: NodeView) -> None:
    """Refuse a dilation that puts taps on one position, or ahead."""
    if view.integer("dilation") < 1:
        raise no_form(
            f"`dilation` of `{view.node.op_type}` is `{view.integer('dilation')}`, expected 1 or "
            "more"
        )
