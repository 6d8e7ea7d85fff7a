"""Operators that onnxruntime's optimiser and quantiser write into encoders and vision models."""

from __future__ import annotations

from onnx_kvtool.ops.contrib_facts import (
    CODES,
    FLOAT,
    FLOATS,
    HALVES,
    INTEGER,
    INTEGERS,
    NUMBER,
    NUMBERS,
    REQUIRED,
    TEXT,
    facts,
)

__all__ = ["LAYERS"]

_REALS = f"{FLOAT} tensor(float16) tensor(double)"
_WINDOWS = {
    "auto_pad": (TEXT, "NOTSET"),
    "kernel_shape": INTEGERS,
    "pads": INTEGERS,
    "strides": INTEGERS,
}
_BINARY = "A:T A_scale:tensor(float) A_zero_point?:T B:T B_scale:tensor(float) B_zero_point?:T "
_BINARY += "C_scale:tensor(float) C_zero_point?:T"
_UNARY = "X:T X_scale:tensor(float) X_zero_point?:T Y_scale:tensor(float) Y_zero_point?:T"
_SIXTEEN = f"{FLOAT} tensor(float16)"
_GROUPED = {"T": _SIXTEEN, "M": _SIXTEEN}
_GROUPS = {
    "activation": (INTEGER, REQUIRED),
    "channels_last": (INTEGER, 1),
    "epsilon": (NUMBER, 1e-5),
    "groups": (INTEGER, REQUIRED),
}

LAYERS = (
    facts("BiasAdd", "X:T bias:T skip:T", "Y:T", {"T": _SIXTEEN}),
    facts(
        "BiasDropout",
        "data:T bias:T residual?:T ratio?:T1 training_mode?:T2",
        "output:T mask?:T2",
        {"T": FLOATS, "T1": FLOATS, "T2": "tensor(bool)"},
        seed=INTEGER,
    ),
    facts(
        "BiasSoftmax",
        "data:T bias:T",
        "output:T",
        {"T": _REALS},
        axis=(INTEGER, 1),
        is_inner_broadcast=(INTEGER, REQUIRED),
    ),
    facts("BiasSplitGelu", "X:T bias:T", "Y:T", {"T": _SIXTEEN}),
    facts(
        "DequantizeLinear",
        "x:T1 x_scale:T2 x_zero_point?:T1",
        "y:T2",
        {
            "T1": f"{CODES} tensor(int16) tensor(uint16) tensor(int32) tensor(int4) tensor(uint4)",
            "T2": _SIXTEEN,
        },
        axis=INTEGER,
    ),
    facts(
        "FusedConv",
        "X:T W:T B?:T Z?:T",
        "Y:T",
        {"T": _REALS},
        activation=TEXT,
        activation_params=NUMBERS,
        dilations=INTEGERS,
        group=(INTEGER, 1),
        **_WINDOWS,
    ),
    facts(
        "FusedGemm",
        "A:T B:T C?:T",
        "Y:T",
        {"T": f"{_REALS} tensor(int32) tensor(int64) tensor(uint32) tensor(uint64)"},
        activation=TEXT,
        activation_alpha=NUMBER,
        activation_beta=NUMBER,
        activation_gamma=NUMBER,
        alpha=(NUMBER, 1.0),
        beta=(NUMBER, 1.0),
        transA=(INTEGER, 0),
        transB=(INTEGER, 0),
    ),
    facts(
        "GatedRelativePositionBias",
        "query_layer:T query_bias:T rel_pos:T weight:T bias:T eco_a:T token_offset?:M",
        "output:T",
        {"T": _SIXTEEN, "M": "tensor(int32)"},
        num_heads=(INTEGER, REQUIRED),
    ),
    facts("GemmFastGelu", "X:T W:T bias?:T", "Y:T", {"T": HALVES}),
    facts("GroupNorm", "X:T gamma:M beta:M", "Y:T", _GROUPED, **_GROUPS),
    facts(
        "MatMulBnb4",
        "A:T1 B:T2 absmax:T1",
        "Y:T1",
        {"T1": HALVES, "T2": "tensor(uint8)"},
        K=(INTEGER, REQUIRED),
        N=(INTEGER, REQUIRED),
        block_size=(INTEGER, REQUIRED),
        quant_type=(INTEGER, REQUIRED),
        training_mode=(INTEGER, 0),
        transB=(INTEGER, 1),
    ),
    facts(
        "NhwcConv",
        "X:T W:T B?:T",
        "Y:T",
        {"T": _REALS},
        dilations=INTEGERS,
        group=(INTEGER, 1),
        **_WINDOWS,
    ),
    facts(
        "NhwcMaxPool",
        "x:T",
        "y:T",
        {"T": CODES},
        **_WINDOWS | {"kernel_shape": (INTEGERS, REQUIRED)},
        ceil_mode=(INTEGER, 0),
        dilations=INTEGERS,
    ),
    facts(
        "QAttention",
        "input:T1 weight:T2 bias:T3 input_scale:T3 weight_scale:T3 mask_index?:T4 "
        "input_zero_point?:T1 weight_zero_point?:T2 past?:T3",
        "output:T3 present?:T3",
        {"T1": CODES, "T2": CODES, "T3": _SIXTEEN, "T4": "tensor(int32)"},
        do_rotary=INTEGER,
        mask_filter_value=NUMBER,
        num_heads=(INTEGER, REQUIRED),
        past_present_share_buffer=INTEGER,
        scale=NUMBER,
        unidirectional=(INTEGER, 0),
    ),
    facts(
        "QEmbedLayerNormalization",
        "input_ids:T1 segment_ids?:T1 word_embedding_quant:T2 position_embedding_quant:T2 "
        "segment_embedding?:T2 gamma_quant:T2 beta_quant:T2 mask?:T1 word_embedding_scale:T "
        "position_embedding_scale:T segment_embedding_scale?:T gamma_scale:T beta_scale:T "
        "word_embedding_zero_point:T2 position_embedding_zero_point:T2 "
        "segment_embedding_zero_point?:T2 gamma_zero_point:T2 beta_zero_point:T2",
        "layernorm_out:T mask_index_out:T1",
        {"T1": "tensor(int32)", "T2": CODES, "T": FLOAT},
        epsilon=(NUMBER, 1e-12),
    ),
    facts(
        "QGemm",
        "A:TA a_scale:T a_zero_point:TA B:TB b_scale:T b_zero_point:TB C?:TC y_scale?:T "
        "y_zero_point?:TYZ",
        "Y:TY",
        {
            "T": FLOAT,
            "TA": CODES,
            "TB": CODES,
            "TC": "tensor(int32)",
            "TYZ": CODES,
            "TY": f"{FLOAT} {CODES}",
        },
        alpha=(NUMBER, 1.0),
        transA=(INTEGER, 0),
        transB=(INTEGER, 0),
    ),
    facts("QLinearAdd", _BINARY, "C:T", {"T": CODES}),
    facts(
        "QLinearAveragePool",
        "X:T x_scale:tensor(float) x_zero_point?:T y_scale:tensor(float) y_zero_point?:T",
        "Y:T",
        {"T": CODES},
        **_WINDOWS | {"kernel_shape": (INTEGERS, REQUIRED)},
        ceil_mode=(INTEGER, 0),
        channels_last=(INTEGER, 0),
        count_include_pad=(INTEGER, 0),
    ),
    facts(
        "QLinearConcat",
        "Y_scale:TF Y_zero_point:T8 inputs*:TV",
        "Y:T8",
        {"T8": CODES, "TF": FLOAT, "TV": f"{CODES} {FLOAT}"},
        axis=(INTEGER, REQUIRED),
    ),
    facts(
        "QLinearConv",
        "x:T1 x_scale:tensor(float) x_zero_point:T1 w:T2 w_scale:tensor(float) w_zero_point:T2 "
        "y_scale:tensor(float) y_zero_point:T3 B?:T4",
        "y:T3",
        {"T1": CODES, "T2": CODES, "T3": CODES, "T4": "tensor(int32)"},
        channels_last=(INTEGER, 0),
        dilations=INTEGERS,
        group=(INTEGER, 1),
        **_WINDOWS,
    ),
    facts(
        "QLinearGlobalAveragePool",
        "X:T x_scale:tensor(float) x_zero_point:T y_scale:tensor(float) y_zero_point:T",
        "Y:T",
        {"T": CODES},
        channels_last=(INTEGER, 0),
    ),
    facts("QLinearLeakyRelu", _UNARY, "Y:T", {"T": CODES}, alpha=(NUMBER, 0.01)),
    facts("QLinearMul", _BINARY, "C:T", {"T": CODES}),
    facts("QLinearSigmoid", _UNARY, "Y:T", {"T": CODES}),
    facts(
        "QLinearSoftmax",
        "X:T X_scale:tensor(float) x_zero_point?:T y_scale:tensor(float) y_zero_point:T",
        "Y:T",
        {"T": CODES},
        axis=(INTEGER, -1),
        opset=(INTEGER, REQUIRED),
    ),
    facts(
        "QLinearWhere",
        "condition:B X:T x_scale:TF x_zero_point:T Y:T y_scale:TF y_zero_point:T z_scale:TF "
        "z_zero_point:T",
        "Z:T",
        {"B": "tensor(bool)", "T": CODES, "TF": FLOAT},
    ),
    facts(
        "QuantizeLinear",
        "x:T1 y_scale:T1 y_zero_point?:T2",
        "y:T2",
        {
            "T1": _SIXTEEN,
            "T2": f"{CODES} tensor(int16) tensor(uint16) tensor(int4) tensor(uint4)",
        },
        axis=INTEGER,
    ),
    facts(
        "RelativePositionBias",
        "bias_table:T query_length:U key_length:U",
        "output:T",
        {"T": _SIXTEEN, "U": "tensor(int64)"},
        is_bidirectional=(INTEGER, 0),
        max_distance=(INTEGER, REQUIRED),
    ),
    facts("SkipGroupNorm", "X:T gamma:M beta:M skip:T bias?:T", "Y:T S?:T", _GROUPED, **_GROUPS),
)
"""Of `com.microsoft`, in the order of the names."""
