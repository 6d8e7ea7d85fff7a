"""Operators that exporters wrote while ONNX had none, and those it had until version 1.5."""

from __future__ import annotations

from onnx_kvtool.ops.contrib_facts import (
    FLOAT,
    FLOATS,
    INTEGER,
    INTEGERS,
    NUMBER,
    NUMBERS,
    REQUIRED,
    TEXT,
    facts,
)

__all__ = ["EXPERIMENTAL", "OLDER"]

_BOOL, _LONG = "tensor(bool)", "tensor(int64)"
_REALS = f"{FLOAT} tensor(float16) tensor(double)"
_WHOLE = "tensor(int8) tensor(int16) tensor(int32) tensor(int64) tensor(uint8) tensor(uint16) "
_WHOLE += "tensor(uint32) tensor(uint64)"
_ANY = f"{_REALS} {_WHOLE} tensor(string) {_BOOL} tensor(complex64) tensor(complex128)"
_INDICES = f"tensor(int32) {_LONG}"
_CODES = "tensor(int8) tensor(uint8)"

OLDER = (
    facts(
        "CDist", "A:T B:T", "C:T", {"T": f"{FLOAT} tensor(double)"}, metric=(TEXT, "sqeuclidean")
    ),
    facts("ComplexMul", "A:T B:T", "C:T", {"T": _REALS}),
    facts("ComplexMulConj", "A:T B:T", "C:T", {"T": _REALS}),
    facts(
        "ConvTransposeWithDynamicPads",
        f"X:T W:T Pads?:{_LONG} B?:T",
        "Y:T",
        {"T": _REALS},
        auto_pad=(TEXT, "NOTSET"),
        dilations=INTEGERS,
        group=(INTEGER, 1),
        kernel_shape=INTEGERS,
        output_padding=INTEGERS,
        strides=INTEGERS,
    ),
    facts(
        "CropAndResize",
        "X:T1 rois:T1 batch_indices:T2 crop_size:T2",
        "Y:T1",
        {"T1": _REALS, "T2": "tensor(int32)"},
        extrapolation_value=(NUMBER, 0.0),
        mode=(TEXT, "bilinear"),
    ),
    facts("ExpandDims", "X:T axis:tensor(int32)", "Y:T", {"T": _ANY}),
    facts("GatherND", "data:T indices:Tind", "output:T", {"T": _ANY, "Tind": _INDICES}),
    facts(
        "GridSample",
        "X:T1 Grid:T1",
        "Y:T2",
        {"T1": _ANY, "T2": _REALS},
        align_corners=(INTEGER, 0),
        mode=(TEXT, "bilinear"),
        padding_mode=(TEXT, "zeros"),
    ),
    facts("Inverse", "X:T", "Y:T", {"T": _REALS}),
    facts(
        "IsAllFinite",
        "input*:V",
        "output:T",
        {"V": FLOATS, "T": _BOOL},
        isinf_only=(INTEGER, 0),
        isnan_only=(INTEGER, 0),
    ),
    facts(
        "MatMulInteger16",
        "A:T1 B:T2",
        "Y:T3",
        {
            "T1": "tensor(int16) tensor(uint16)",
            "T2": "tensor(int16) tensor(uint16)",
            "T3": "tensor(int32) tensor(uint32)",
        },
    ),
    facts(
        "MulInteger",
        "A:T A_zero_point?:T B:T B_zero_point?:T",
        "C:T1",
        {"T": _CODES, "T1": "tensor(int32)"},
    ),
    facts(
        "Pad",
        f"data:T pads:{_LONG} value?:T",
        "output:T",
        {"T": _REALS},
        mode=(TEXT, "constant"),
    ),
    facts(
        "Range",
        "start:T limit:T delta?:T",
        "Y:T",
        {"T": f"{FLOAT} tensor(double) tensor(int16) {_INDICES}"},
    ),
    facts(
        "ReduceSumInteger",
        "data:T1",
        "reduced:T2",
        {"T1": _CODES, "T2": "tensor(int32) tensor(uint32)"},
        axes=(INTEGERS, REQUIRED),
        keepdims=(INTEGER, REQUIRED),
    ),
    facts(
        "Rfft",
        "X:T",
        "Y:T",
        {"T": _REALS},
        normalized=(INTEGER, 0),
        onesided=(INTEGER, 1),
        signal_ndim=(INTEGER, 1),
    ),
    facts(
        "TorchEmbedding",
        f"weight:T indices:{_LONG} padding_idx?:{_LONG} scale_grad_by_freq?:{_BOOL}",
        "Y:T",
        {"T": f"{FLOATS} {_WHOLE}"},
    ),
    facts(
        "Trilu", f"X:T k?:{_LONG}", "Y:T", {"T": f"{FLOATS} {_WHOLE} {_BOOL}"}, upper=(INTEGER, 1)
    ),
    facts(
        "UnfoldTensor",
        "input:T",
        "output:T",
        {"T": f"{_ANY} tensor(bfloat16)"},
        dim=(INTEGER, -1),
        size=(INTEGER, REQUIRED),
        step=(INTEGER, 1),
    ),
    facts("Unique", "x:T", f"y:T idx:{_LONG} counts:{_LONG}", {"T": _ANY}),
)
"""Of `com.microsoft`, in the order of the names."""

EXPERIMENTAL = (
    facts("Affine", "X:T", "Y:T", {"T": _REALS}, alpha=(NUMBER, 1.0), beta=(NUMBER, 0.0)),
    facts("Crop", "input:T", "output:T", {"T": _REALS}, border=INTEGERS, scale=INTEGERS),
    facts(
        "DynamicSlice",
        "data:T starts:Tind ends:Tind axes?:Tind",
        "output:T",
        {"T": _ANY, "Tind": _INDICES},
    ),
    facts("ImageScaler", "input:T", "output:T", {"T": _REALS}, bias=NUMBERS, scale=(NUMBER, 1.0)),
    facts("ParametricSoftplus", "X:T", "Y:T", {"T": _REALS}, alpha=NUMBER, beta=NUMBER),
    facts("Scale", "input:T", "output:T", {"T": _REALS}, scale=(NUMBER, 1.0)),
    facts("ScaledTanh", "input:T", "output:T", {"T": _REALS}, alpha=NUMBER, beta=NUMBER),
)
"""Of the default domain, where onnxruntime knows them below opset 10."""
