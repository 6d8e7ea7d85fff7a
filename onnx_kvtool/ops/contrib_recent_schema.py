"""Gates, norms, rotations and routers that came with recent decoders of onnxruntime-genai."""

from __future__ import annotations

from onnx_kvtool.ops.contrib_facts import HALVES, INTEGER, NUMBER, TEXT, facts

__all__ = ["RECENT"]

_MIXED = {"T": HALVES, "M": HALVES}
_SWIGLU = {
    "activation_alpha": (NUMBER, 1.0),
    "activation_beta": (NUMBER, 0.0),
    "limit": (NUMBER, 0.0),
}

RECENT = (
    facts("GatedAdd", "X:T Y:T gate:T gate_weight?:T", "output:T", {"T": HALVES}),
    facts(
        "GatedRMSNorm",
        "X:T scale:T gate:T",
        "Y:T",
        {"T": HALVES},
        activation=(TEXT, "silu"),
        epsilon=(NUMBER, 1e-5),
    ),
    facts("ScaledSiLU", "X:T scale?:M", "Y:T", _MIXED, alpha=(NUMBER, 1.0)),
    facts(
        "SwiGLU",
        "gate:T up?:T",
        "output:T",
        {"T": HALVES},
        round_activation=(INTEGER, 0),
        **_SWIGLU,
    ),
)
"""Of `com.microsoft`, in the order of the names."""
