"""Operators of `com.microsoft` that keep the state of a recurrence or a convolution."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_kvtool.symbolic.expression import integer
from onnx_kvtool.symbolic.rules.site import ShapeSite, Unknown
from onnx_kvtool.symbolic.sizes import Shape

__all__ = ["causal_conv_with_state"]


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
