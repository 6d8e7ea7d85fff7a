"""Mixtures of experts, and sparse attention, of which few of the experts and blocks compute."""

from __future__ import annotations

from onnx_kvtool.ops.contrib_facts import FLOAT, HALVES, INTEGER, NUMBER, REQUIRED, TEXT, facts

__all__ = ["EXPERTS"]

_GATED = {
    "activation_alpha": (NUMBER, 1.0),
    "activation_beta": (NUMBER, 0.0),
    "activation_type": (TEXT, "relu"),
    "k": (INTEGER, 1),
    "normalize_routing_weights": (INTEGER, 0),
    "swiglu_fusion": (INTEGER, 0),
    "swiglu_limit": NUMBER,
    "swiglu_limit_after_activation": (INTEGER, 0),
    "use_sparse_mixer": (INTEGER, 0),
}

EXPERTS = (
    facts(
        "MoE",
        "input:T router_probs:T fc1_experts_weights:T fc1_experts_bias?:T fc2_experts_weights:T "
        "fc2_experts_bias?:T fc3_experts_weights?:T fc3_experts_bias?:T",
        "output:T",
        {"T": HALVES},
        **_GATED,
    ),
    facts(
        "QMoE",
        "input:T router_probs:T fc1_experts_weights:T1 fc1_scales?:T2 fc1_experts_bias?:T "
        "fc2_experts_weights:T1 fc2_scales?:T2 fc2_experts_bias?:T fc3_experts_weights?:T1 "
        "fc3_scales?:T2 fc3_experts_bias?:T fc1_zero_points?:T1 fc2_zero_points?:T1 "
        "fc3_zero_points?:T1 router_weights?:T fc1_global_scale?:T4 fc2_global_scale?:T4 "
        "fc1_act_scale?:T4 fc2_act_scale?:T4 fc1_act_block_scale?:T2 fc2_act_block_scale?:T2",
        "output:T",
        {
            "T": HALVES,
            "T1": "tensor(uint8) tensor(float8e4m3fn)",
            "T2": f"{HALVES} tensor(float8e8m0) tensor(float8e4m3fn)",
            "T4": FLOAT,
        },
        **_GATED,
        accuracy_level=(INTEGER, 0),
        block_size=INTEGER,
        expert_weight_bits=(INTEGER, 4),
        fc1_expert_weight_bits=INTEGER,
        fc2_expert_weight_bits=INTEGER,
        fc3_expert_weight_bits=INTEGER,
        quant_type=(TEXT, "int"),
        weights_prepacked=(INTEGER, -1),
    ),
    facts(
        "SparseAttention",
        "query:T key?:T value?:T past_key:T past_value:T block_row_indices:M block_col_indices:M "
        "total_sequence_length:M key_total_sequence_lengths:M cos_cache?:T sin_cache?:T",
        "output:T present_key:T present_value:T",
        {"T": HALVES, "M": "tensor(int32)"},
        do_rotary=INTEGER,
        kv_num_heads=(INTEGER, REQUIRED),
        num_heads=(INTEGER, REQUIRED),
        rotary_interleaved=INTEGER,
        scale=NUMBER,
        sparse_block_size=(INTEGER, REQUIRED),
    ),
)
"""Of `com.microsoft`, in the order of the names."""
