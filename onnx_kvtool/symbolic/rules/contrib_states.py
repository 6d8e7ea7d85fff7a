"""Operators of `com.microsoft` that keep the state of a recurrence or a convolution."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_kvtool.symbolic.dimensions import Shape
from onnx_kvtool.symbolic.expressions import integer
from onnx_kvtool.symbolic.rules.site import ShapeSite, Unknown
from onnx_kvtool.symbolic.simplification import exact_quotient

__all__ = [
    "causal_conv_with_state",
    "gated_delta_net",
    "linear_attention",
    "varlen_causal_conv_with_state",
]


def causal_conv_with_state(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """CausalConvWithState: that of its input, and as many positions as the taps reach back to."""
    shape, kernel = site.shape(0), site.shape(1)
    if len(shape) < 3 or len(kernel) != 3:
        raise Unknown("malformed", "input or weight are not of rank 3")
    if any(site.integer(name) for name in ("state_window", "input_channels", "state_length")):
        raise Unknown("no-rule", "onnxruntime has this form on GPUs alone")
    if site.integer("state_channels_last") != -1:
        raise Unknown("no-rule", "onnxruntime has this form on GPUs alone")
    rows = (kernel[2] - integer(1)) * site.integer("dilation")
    if site.integer("channels_last"):
        return (shape, (shape[0], rows, *shape[2:]))
    return (shape, (*shape[:2], rows))


def gated_delta_net(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """GatedDeltaNet: rows of the heads of values, and a state for each sequence."""
    query, state, bounds = site.shape(0), site.given(6), site.given(3)
    value = site.given(2)
    held = None if state is None else site.shape_of(state)
    if held is not None and len(held) != 4:
        raise Unknown("malformed", "initial_state is not of rank 4")
    if value is None:
        if held is None:
            raise Unknown("malformed", "packed heads without initial_state")
        row: Shape = (*query[:-1], held[1], held[2])
    else:
        row = site.shape_of(value)
    if held is None:
        count = site.shape_of(bounds)[0] - integer(1) if bounds is not None else query[0]
        held = (count, *row[-2:], query[-1])
    unknown = Unknown("no-rule", "what is captured is read on GPUs alone")
    return (row, held, unknown)


def linear_attention(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """LinearAttention: a row of each head for each token, and a state for each head of values."""
    query, value = site.shape(0), site.shape(2)
    asking, states = site.integer("q_num_heads"), site.integer("kv_num_heads")
    if len(query) != 3 or len(value) != 3 or asking < 1 or states < 1:
        raise Unknown("malformed", "query or value are not of rank 3, or heads are missing")
    if site.integer("state_window"):
        raise Unknown("no-rule", "onnxruntime has this form on GPUs alone")
    size = exact_quotient(query[2], integer(asking))
    width = exact_quotient(value[2], integer(states))
    if size is None or width is None:
        raise Unknown("no-expression", "the head size is no whole part of the width")
    output = (*query[:2], width * max(asking, states))
    return (output, (query[0], integer(states), size, width))


def varlen_causal_conv_with_state(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """VarlenCausalConvWithState: rows as they came, the states, and room for rows of each."""
    shape, state = site.shape(0), site.shape(4)
    if len(shape) != 2 or len(state) != 3:
        raise Unknown("malformed", "input or state are not of rank 2 and 3")
    return (shape, state, (state[0], integer(site.integer("state_update_capacity")), shape[1]))
