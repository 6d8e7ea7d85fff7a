"""Operators of hybrid decoders that keep the state of a recurrence or a convolution."""

from __future__ import annotations

from onnx_kvtool.ops.contrib_facts import FLOAT, HALVES, facts

__all__ = ["STATES"]

STATES = (
    facts(
        "LinearAttentionGate",
        "a:T dt_bias:TF decay_scale:TF b?:T",
        "decay:T beta?:T",
        {"T": HALVES, "TF": FLOAT},
    ),
)
"""Of `com.microsoft`, in the order of the names."""
