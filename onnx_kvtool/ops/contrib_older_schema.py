"""Operators that exporters write where ONNX has none, or has one of other attributes."""

from __future__ import annotations

from onnx_kvtool.ops.contrib_facts import (
    FLOAT,
    FLOATS,
    INTEGER,
    INTEGERS,
    NUMBER,
    REQUIRED,
    TEXT,
    facts,
)

__all__ = ["OLDER"]

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
        "Range",
        "start:T limit:T delta?:T",
        "Y:T",
        {"T": f"{FLOAT} tensor(double) tensor(int16) {_INDICES}"},
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
)
"""Of `com.microsoft`, in the order of the names."""
