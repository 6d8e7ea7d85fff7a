"""Causal convolutions of `com.microsoft`, whose state is the last positions."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.heads import known_size
from onnx_kvtool.contrib.recurrence import Sequences, sequences_of
from onnx_kvtool.contrib.rule import Site, is_read, known_rank, no_form, refuse_input, refuse_value
from onnx_kvtool.emit.emitter import Replacement
from onnx_kvtool.emit.forms import (
    cast,
    channels_first,
    channels_last,
    dtype_of,
    outputs_of,
    reduce,
    where,
)
from onnx_kvtool.symbolic.dimensions import dims_of

_D = ir.DataType
_END = 2**31 - 1


def causal_conv_with_state(site: Site) -> Replacement:
    """Write CausalConvWithState as Concat, Conv in float32, Slice, and x * Sigmoid(x).

    The state, the last positions before the input, stays an input and an output. With
    `channels_last`, Transposes put the channels, which may have several axes, in front of Conv.

    Refuses what onnxruntime supports on GPUs only: several axes of positions, a window of states,
    captured states, another length or layout of the state, and a part of the channels.
    """
    _refuse_elsewhere(site)
    weight, channels, _, rows = _kernel(site)
    x, past = site.required("input"), site.input("past_state")
    is_last = site.integer("channels_last") != 0
    place = 1 if is_last else 2
    rank = 3 if dims_of(x) is None and not is_last else known_rank(site, x)
    op, whole = site.op, x
    if rows and past is not None:
        whole = op("Concat", past, x, axis=place, hint="positions")
    elif rows:
        pads = [0] * (2 * rank)
        pads[place] = rows
        whole = op("Pad", x, pads, hint="positions")
    present = None
    if is_read(site, 1):
        bounds = ([-rows], [_END]) if rows else ([0], [0])
        present = op("Slice", whole, *bounds, [place], hint="present_state")
    if is_last:
        whole = op("Reshape", whole, [0, 0, channels]) if rank > 3 else whole
        whole = channels_first(site, whole, 3)
    operands = filter(None, (whole, weight, site.input("bias")))
    wide = (cast(site, operand, _D.FLOAT) for operand in operands)
    y = op("Conv", *wide, group=channels, dilations=[site.integer("dilation")])
    y = cast(site, _activated(site, y), dtype_of(x))
    if is_last:
        y = channels_last(site, y, 3)
        if rank > 3:
            what = f"a size of the channels of `{x.name}` of `{site.node.op_type}`"
            y = op("Reshape", y, [0, 0, *(known_size(x, axis, what) for axis in range(2, rank))])
    return outputs_of(site.node, y, present, None)


def varlen_causal_conv_with_state(site: Site) -> Replacement:
    """Write VarlenCausalConvWithState as a Gather of the rows of each tap, Mul and ReduceSum.

    The place of each tap, in the sequence of its token or in the state of that, is computed from
    `cumulative_sequence_length` once for all layers, and so are the rows of the final state and
    those that are captured. Products are float32.

    Refuses weights that differ from token to token (`kernel_delta`, `previous_mask`), which
    onnxruntime supports on GPUs only.
    """
    refuse_input(site, "kernel_delta", "previous_mask")
    weight, channels, taps, rows = _kernel(site)
    (x, past), op = site.operands("input", "initial_state"), site.op
    lying = sequences_of(site, site.required("cumulative_sequence_length"), x)
    pool = x
    if rows:
        turned = op("Transpose", past, perm=[0, 2, 1], hint="rows")
        states = op("Reshape", turned, [-1, channels])
        pool = op("Concat", x, states, axis=0, hint="positions")

    first = lying.em.op("Gather", lying.starts, lying.em.op("Reshape", lying.owner, [-1]))
    local = lying.em.op("Sub", lying.place, first)
    offsets = np.arange(1 - taps, 1) * site.integer("dilation")
    reached = lying.before(lying.place, local, lying.owner, rows, offsets)
    bias = site.input("bias")
    factors = op("Reshape", cast(site, weight, _D.FLOAT), [channels, taps])
    factors = op("Transpose", factors, perm=[1, 0], hint="by_tap")
    products = op("Mul", cast(site, op("Gather", pool, reached), _D.FLOAT), factors)
    y = reduce(site, "ReduceSum", products, [1], keepdims=False)
    if bias is not None:
        y = op("Add", y, cast(site, bias, _D.FLOAT), hint="biased")
    y = cast(site, _activated(site, y), dtype_of(x))
    final = _final_state(site, lying, pool, rows) if is_read(site, 1) else None
    update = _captured(site, lying, x) if is_read(site, 2) else None
    return outputs_of(site.node, y, final, update)


def _final_state(site: Site, lying: Sequences, pool: ir.Value, rows: int) -> ir.Value:
    """Return the last rows of each sequence and the state before it: (B, C, rows)."""
    op = site.op
    if not rows:
        return op("Identity", site.required("initial_state"))
    places = lying.before(lying.ends, lying.lengths, lying.number, rows, np.arange(-rows, 0))
    last = op("Gather", pool, places, hint="last")
    return op("Transpose", last, perm=[0, 2, 1], hint="final_state")


def _captured(site: Site, lying: Sequences, x: ir.Value) -> ir.Value:
    """Return the first tokens of each sequence, and zeros beyond `capture_count`: (B, slots, C)."""
    op = site.op
    slots, count = site.integer("state_update_capacity"), site.input("capture_count")
    if slots < 1 or count is None:
        raise no_form(
            f"`state_update` of `VarlenCausalConvWithState` is read, `state_update_capacity` is "
            f"`{slots}`, and `capture_count` {'absent' if count is None else 'given'}, expected "
            "room and a count"
        )
    slot = site.constant(np.arange(slots).reshape(1, -1), "slots")
    wide = op("Reshape", cast(site, count, _D.INT64), [-1, 1])
    is_asked = op("Less", slot, op("Min", wide, lying.lengths))
    places = where(site, is_asked, op("Add", lying.starts, slot), lying.count, "captured")
    return op("Gather", op("Pad", x, [0, 0, 1, 0]), places)


def _activated(site: Site, value: ir.Value) -> ir.Value:
    """Return the activation of a node, applied to a float32 value."""
    refuse_value(site, "activation", "none", "silu", "swish")
    if site.string("activation") == "none":
        return value
    op = site.op
    return op("Mul", value, op("Sigmoid", value), hint="activated")


def _refuse_elsewhere(site: Site) -> None:
    """Refuse forms that onnxruntime 1.32 only computes on GPUs."""
    for name in (
        "state_window", "state_update_capacity", "state_length", "input_channel_offset",
        "input_channels",
    ):  # fmt: skip
        refuse_value(site, name, 0)
    refuse_value(site, "ndim", 1)
    refuse_value(site, "state_channels_last", -1)
    refuse_value(site, "channels_last", 0, 1)
    if is_read(site, 2):
        raise no_form(
            "`state_update` of `CausalConvWithState` is read; onnxruntime computes it on GPUs only"
        )


def _kernel(site: Site) -> tuple[ir.Value, int, int, int]:
    """Return the weights, the numbers of channels and taps, and the rows of the state.

    Raises:
        Refusal: If a size is unknown, or the dilation puts taps on one position, or ahead.
    """
    weight, dilation = site.required("weight"), site.integer("dilation")
    if dilation < 1:
        raise no_form(f"`dilation` of `{site.node.op_type}` is `{dilation}`, expected 1 or more")
    channels = known_size(weight, 0, f"the number of channels of `{weight.name}`")
    taps = known_size(weight, 2, f"the length of the kernel `{weight.name}`")
    return weight, channels, taps, (taps - 1) * dilation
