"""Operators of hybrid decoders that keep the state of a recurrence or a convolution."""

from __future__ import annotations

from onnx_kvtool.ops.contrib_facts import FLOAT, HALVES, INTEGER, NUMBER, REQUIRED, TEXT, facts

__all__ = ["STATES"]

STATES = (
    facts(
        "CausalConvWithState",
        "input:T weight:T bias?:T past_state?:T",
        "output:T present_state:T state_update?:T",
        {"T": HALVES},
        activation=(TEXT, "none"),
        channels_last=(INTEGER, 0),
        dilation=(INTEGER, 1),
        input_channel_offset=(INTEGER, 0),
        input_channels=(INTEGER, 0),
        ndim=(INTEGER, 1),
        state_channels_last=(INTEGER, -1),
        state_length=(INTEGER, 0),
        state_update_capacity=(INTEGER, 0),
        state_window=(INTEGER, 0),
    ),
    facts(
        "GatedDeltaNet",
        "query:T key?:T value?:T cu_seqlens?:TI decay?:TG beta?:TG initial_state?:TS a_log?:TS "
        "dt_bias?:TS capture_count?:TI state_update_active?:TI",
        "output:T final_state?:TS state_update?:TS",
        {"T": HALVES, "TS": FLOAT, "TG": HALVES, "TI": "tensor(int32)"},
        beta_activation=(TEXT, "none"),
        chunk_size=(INTEGER, 64),
        gate_activation=(TEXT, "none"),
        gate_lower_bound=(NUMBER, -5.0),
        qk_l2_norm=(INTEGER, 0),
        scale=(NUMBER, 0.0),
        state_update_capacity=(INTEGER, 0),
        update_rule=(TEXT, "gated_delta"),
    ),
    facts(
        "LinearAttention",
        "query:T key:T value:T past_state?:S decay?:T beta?:T",
        "output:T present_state:S",
        {"T": HALVES, "S": HALVES},
        chunk_size=(INTEGER, 64),
        kv_num_heads=(INTEGER, REQUIRED),
        q_num_heads=(INTEGER, REQUIRED),
        scale=(NUMBER, 0.0),
        state_window=(INTEGER, 0),
        update_rule=(TEXT, "gated_delta"),
    ),
    facts(
        "LinearAttentionGate",
        "a:T dt_bias:TF decay_scale:TF b?:T",
        "decay:T beta?:T",
        {"T": HALVES, "TF": FLOAT},
    ),
    facts(
        "VarlenCausalConvWithState",
        "input:T weight:T cumulative_sequence_length:M bias?:T initial_state:T capture_count?:M "
        "kernel_delta?:T previous_mask?:T",
        "output:T final_state:T state_update?:T",
        {"T": HALVES, "M": "tensor(int32)"},
        activation=(TEXT, "none"),
        delta_offset=(INTEGER, 0),
        dilation=(INTEGER, 1),
        group_size=(INTEGER, 1),
        state_update_capacity=(INTEGER, 0),
    ),
)
"""Of `com.microsoft`, in the order of the names."""
