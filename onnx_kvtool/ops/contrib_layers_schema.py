"""Operators that onnxruntime's optimiser and quantiser write into encoders and vision models."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.ops.contrib_facts import CODES, FLOAT, FLOATS, REQUIRED, facts

__all__ = ["LAYERS"]

_INT, _FLOAT, _STRING = ir.AttributeType.INT, ir.AttributeType.FLOAT, ir.AttributeType.STRING
_INTS, _FLOATS = ir.AttributeType.INTS, ir.AttributeType.FLOATS
_REALS = f"{FLOAT} tensor(float16) tensor(double)"
_WINDOWS = {"auto_pad": (_STRING, "NOTSET"), "kernel_shape": _INTS, "pads": _INTS, "strides": _INTS}
_BINARY = "A:T A_scale:tensor(float) A_zero_point?:T B:T B_scale:tensor(float) B_zero_point?:T "
_BINARY += "C_scale:tensor(float) C_zero_point?:T"
_UNARY = "X:T X_scale:tensor(float) X_zero_point?:T Y_scale:tensor(float) Y_zero_point?:T"
_SIXTEEN = f"{FLOAT} tensor(float16)"

LAYERS = (
    facts(
        "BiasDropout",
        "data:T bias:T residual?:T ratio?:T1 training_mode?:T2",
        "output:T mask?:T2",
        {"T": FLOATS, "T1": FLOATS, "T2": "tensor(bool)"},
        seed=_INT,
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
        axis=_INT,
    ),
    facts(
        "FusedConv",
        "X:T W:T B?:T Z?:T",
        "Y:T",
        {"T": _REALS},
        activation=_STRING,
        activation_params=_FLOATS,
        dilations=_INTS,
        group=(_INT, 1),
        **_WINDOWS,
    ),
    facts(
        "FusedGemm",
        "A:T B:T C?:T",
        "Y:T",
        {"T": f"{_REALS} tensor(int32) tensor(int64) tensor(uint32) tensor(uint64)"},
        activation=_STRING,
        activation_alpha=_FLOAT,
        activation_beta=_FLOAT,
        activation_gamma=_FLOAT,
        alpha=(_FLOAT, 1.0),
        beta=(_FLOAT, 1.0),
        transA=(_INT, 0),
        transB=(_INT, 0),
    ),
    facts(
        "NhwcConv",
        "X:T W:T B?:T",
        "Y:T",
        {"T": _REALS},
        dilations=_INTS,
        group=(_INT, 1),
        **_WINDOWS,
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
        alpha=(_FLOAT, 1.0),
        transA=(_INT, 0),
        transB=(_INT, 0),
    ),
    facts("QLinearAdd", _BINARY, "C:T", {"T": CODES}),
    facts(
        "QLinearAveragePool",
        "X:T x_scale:tensor(float) x_zero_point?:T y_scale:tensor(float) y_zero_point?:T",
        "Y:T",
        {"T": CODES},
        **_WINDOWS | {"kernel_shape": (_INTS, REQUIRED)},
        ceil_mode=(_INT, 0),
        channels_last=(_INT, 0),
        count_include_pad=(_INT, 0),
    ),
    facts(
        "QLinearConcat",
        "Y_scale:TF Y_zero_point:T8 inputs*:TV",
        "Y:T8",
        {"T8": CODES, "TF": FLOAT, "TV": f"{CODES} {FLOAT}"},
        axis=(_INT, REQUIRED),
    ),
    facts(
        "QLinearGlobalAveragePool",
        "X:T x_scale:tensor(float) x_zero_point:T y_scale:tensor(float) y_zero_point:T",
        "Y:T",
        {"T": CODES},
        channels_last=(_INT, 0),
    ),
    facts("QLinearLeakyRelu", _UNARY, "Y:T", {"T": CODES}, alpha=(_FLOAT, 0.01)),
    facts("QLinearMul", _BINARY, "C:T", {"T": CODES}),
    facts("QLinearSigmoid", _UNARY, "Y:T", {"T": CODES}),
    facts(
        "QLinearSoftmax",
        "X:T X_scale:tensor(float) x_zero_point?:T y_scale:tensor(float) y_zero_point:T",
        "Y:T",
        {"T": CODES},
        axis=(_INT, -1),
        opset=(_INT, REQUIRED),
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
        axis=_INT,
    ),
)
"""Of `com.microsoft`, in the order of the names."""
