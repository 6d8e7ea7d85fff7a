"""Gates, norms, rotations and routers that came with recent decoders of onnxruntime-genai."""

from __future__ import annotations

from onnx_kvtool.ops.contrib_facts import (
    FLOAT,
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
        "HyperConnectionLowRankMix",
        "streams:T norm_scale:T down_weight:T up_weight:T inject_weight:T prev_block_output?:T "
        "prev_post_gate?:T",
        "pre_output:T post_gate:T streams_out?:T",
        {"T": HALVES},
        epsilon=(NUMBER, 1e-5),
        gate_div=(NUMBER, 1.0),
        gate_mul=(NUMBER, 1.0),
        num_branches=(INTEGER, REQUIRED),
        reduction_scale=(NUMBER, 1.0),
        silu_alpha=(NUMBER, 1.0),
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
        "MoEGroupRouter",
        "logits:T expert_bias:TF projection_weight?:T",
        "router_probs?:T selection_scores?:TF router_weights?:TF",
        {"T": HALVES, "TF": FLOAT},
        group_topk=(INTEGER, 2),
        n_group=(INTEGER, 1),
        router_sentinel=(NUMBER, -10000.0),
        top_k=(INTEGER, REQUIRED),
        topk_group=(INTEGER, 1),
    ),
    facts(
        "RouterGateUpProj",
        "X:T W:T",
        "router:T activated:T",
        {"T": "tensor(float16) tensor(bfloat16)"},
        activation=(TEXT, "swiglu"),
        router_size=(INTEGER, REQUIRED),
        **_SWIGLU,
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
