"""Gates, norms, rotations and routers that came with recent decoders of onnxruntime-genai."""

from __future__ import annotations

from onnx_kvtool.ops.contrib_facts import (
    FLOAT,
    FLOATS,
    HALVES,
    INTEGER,
    INTEGERS,
    NUMBER,
    REQUIRED,
    TEXT,
    facts,
)

__all__ = ["RECENT"]

_MIXED = {"T": HALVES, "M": HALVES}
_SWIGLU = {
    "activation_alpha": (NUMBER, 1.0),
    "activation_beta": (NUMBER, 0.0),
    "limit": (NUMBER, 0.0),
}

_SIXTEEN = "tensor(float16) tensor(bfloat16)"
_BLOCKS = {
    "accuracy_level": (INTEGER, 0),
    "bits": (INTEGER, 4),
    "block_size": (INTEGER, REQUIRED),
}
_BRANCHES = {"num_branches": (INTEGER, 0)}

RECENT = (
    facts(
        "BranchwiseRMSNorm",
        "X:T scale?:M",
        "Y:T",
        _MIXED,
        epsilon=(NUMBER, 1e-5),
        **_BRANCHES,
    ),
    facts(
        "EngramGate",
        "key:T query:T value:T key_norm_scale:T query_norm_scale:T conv_norm_scale?:T",
        "output:T gated_value_normed?:T",
        {"T": HALVES},
        epsilon=(NUMBER, 1e-5),
    ),
    facts(
        "FusedMatMulActivation",
        "A:T B:T",
        "Y:T",
        {"T": FLOATS},
        activation=(TEXT, REQUIRED),
        activation_alpha=NUMBER,
        activation_axis=INTEGER,
        activation_beta=NUMBER,
        activation_gamma=NUMBER,
        alpha=(NUMBER, 1.0),
        transA=(INTEGER, 0),
        transB=(INTEGER, 0),
        transBatchA=(INTEGER, 0),
        transBatchB=(INTEGER, 0),
    ),
    facts("GatedAdd", "X:T Y:T gate:T gate_weight?:T", "output:T", {"T": HALVES}),
    facts(
        "GatedRMSNorm",
        "X:T scale:T gate:T",
        "Y:T",
        {"T": HALVES},
        activation=(TEXT, "silu"),
        epsilon=(NUMBER, 1e-5),
    ),
    facts(
        "GemmaRotaryEmbedding",
        "emb:U q:T q_rot:T k:T k_rot:T",
        "output1:T output2:T",
        {"T": "tensor(float16)", "U": FLOAT},
    ),
    facts(
        "HyperConnectionPostMix",
        "streams:T block_output:T post_mix:M stream_mix?:M",
        "output:T",
        _MIXED,
        **_BRANCHES,
    ),
    facts(
        "HyperConnectionPreMix",
        "streams:T pre_mix:M",
        "output:T",
        _MIXED,
        reduction_scale=(NUMBER, 1.0),
        **_BRANCHES,
    ),
    facts(
        "MRotaryEmbedding",
        "input:T position_ids:M cos_cache:T sin_cache:T",
        "output:T",
        {"T": HALVES, "M": "tensor(int64)"},
        interleaved=INTEGER,
        is_packed_batching=INTEGER,
        mrope_layout=INTEGER,
        mrope_section=(INTEGERS, REQUIRED),
        num_heads=INTEGER,
        rotary_embedding_dim=INTEGER,
        scale=NUMBER,
    ),
    facts(
        "MatMulNBitsMlp",
        "A:T1 skip?:T1 norm_scale?:T1 gate_B:T2 gate_scales:T1 gate_bias?:T1 up_B:T2 up_scales:T1 "
        "up_bias?:T1",
        "Y:T1 input_skip_bias_sum?:T1",
        {"T1": HALVES, "T2": "tensor(uint8)"},
        K=(INTEGER, REQUIRED),
        N=(INTEGER, REQUIRED),
        activation=(TEXT, REQUIRED),
        epsilon=(NUMBER, 1e-5),
        **_BLOCKS,
    ),
    facts(
        "MatMulNBitsQkv",
        "A:T1 skip?:T1 norm_scale:T1 q_B:T2 q_scales:T1 q_bias?:T1 k_B:T2 k_scales:T1 k_bias?:T1 "
        "v_B:T2 v_scales:T1 v_bias?:T1",
        "Q:T1 K:T1 V:T1 input_skip_bias_sum?:T1",
        {"T1": HALVES, "T2": "tensor(uint8)"},
        K=(INTEGER, REQUIRED),
        Nkv=(INTEGER, REQUIRED),
        Nq=(INTEGER, REQUIRED),
        epsilon=(NUMBER, 1e-6),
        **_BLOCKS,
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
