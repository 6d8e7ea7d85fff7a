"""Pairs of models: a documented limit of TensorRT applies to the first one alone."""

from __future__ import annotations

__all__ = ["DOCUMENTED_CASES"]

Case = tuple[str, str, int, str, str]
"""A limit, a release that has it, an opset, a model to which it applies, and one without it."""


def _quantised(op: str, given: str, point: str, result: str, number: int) -> str:
    return (
        f"g ({given}[3] x, float s) => ({result}[3] z) <{point} p = {{{number}}}> "
        f"{{ z = {op} (x, s, p) }}"
    )


def _resize(attributes: str) -> str:
    return (
        "g (float[1, 2, 4, 4] x, float[8] r) => (float[1, 2, 8, 8] z) "
        f"<int64[4] n = {{1, 2, 8, 8}}> {{ z = Resize <{attributes}> (x, r, , n) }}"
    )


def _lstm(attributes: str) -> str:
    return (
        "g (float[5, 2, 3] x, float[1, 16, 3] w, float[1, 16, 4] r) => (float[5, 1, 2, 4] z) "
        f"{{ z = LSTM <hidden_size: int = 4{attributes}> (x, w, r) }}"
    )


def _loop(turns: str, initializers: str) -> str:
    return (
        f"g (float[3] x{turns}) => (float[3] z, float[n, 3] y) <{initializers}> "
        "{ z, y = Loop (m, t, x) <body = b (int64 i, bool c, float[3] u) => "
        "(bool d, float[3] v, float[3] w) { d = Identity (c)  v = Neg (u)  w = Abs (u) }> }"
    )


def _if(other: str) -> str:
    return (
        "g (bool k, float[1, 3] x) => (float[a, 3] z) { z = If (k) <"
        "then_branch = t () => (float[1, 3] u) { u = Neg (x) }, "
        f"else_branch = e () => ({other} }}> }}"
    )


DOCUMENTED_CASES: list[Case] = [
    (
        "max-pool-indices-documented",
        "tensorrt@10.15",
        12,
        (
            "g (float[1, 1, 4, 4] x) => (float[1, 1, 3, 3] z, int64[1, 1, 3, 3] i) "
            "{ z, i = MaxPool <kernel_shape: ints = [2, 2]> (x) }"
        ),
        (
            "g (float[1, 1, 4, 4] x) => (float[1, 1, 3, 3] z) "
            "{ z = MaxPool <kernel_shape: ints = [2, 2]> (x) }"
        ),
    ),
    (
        "dequantize-types",
        "tensorrt@10.15",
        13,
        _quantised("DequantizeLinear", "uint8", "uint8", "float", 0),
        _quantised("DequantizeLinear", "int8", "int8", "float", 0),
    ),
    (
        "dequantize-zero-point",
        "tensorrt@8.4",
        13,
        _quantised("DequantizeLinear", "int8", "int8", "float", 3),
        _quantised("DequantizeLinear", "int8", "int8", "float", 0),
    ),
    (
        "quantize-zero-point",
        "tensorrt@8.4",
        13,
        _quantised("QuantizeLinear", "float", "int8", "int8", 3),
        _quantised("QuantizeLinear", "float", "int8", "int8", 0),
    ),
    (
        "lstm-input-forget-documented",
        "tensorrt@10.15",
        14,
        _lstm(", input_forget: int = 1"),
        _lstm(""),
    ),
    (
        "lstm-layout",
        "tensorrt@10.15",
        14,
        (
            "g (float[2, 5, 3] x, float[1, 16, 3] w, float[1, 16, 4] r) => (float[2, 5, 1, 4] z) "
            "{ z = LSTM <hidden_size: int = 4, layout: int = 1> (x, w, r) }"
        ),
        _lstm(""),
    ),
    (
        "resize-cubic",
        "tensorrt@10.15",
        13,
        _resize('mode: string = "cubic"'),
        _resize('mode: string = "linear"'),
    ),
    (
        "resize-crop",
        "tensorrt@8.6",
        13,
        _resize('coordinate_transformation_mode: string = "tf_crop_and_resize"'),
        _resize('coordinate_transformation_mode: string = "asymmetric"'),
    ),
    (
        "resize-antialias",
        "tensorrt@10.15",
        18,
        _resize('mode: string = "linear", antialias: int = 1'),
        _resize('mode: string = "linear"'),
    ),
    (
        "resize-policy",
        "tensorrt@10.15",
        18,
        _resize('keep_aspect_ratio_policy: string = "not_larger"'),
        _resize('keep_aspect_ratio_policy: string = "stretch"'),
    ),
    (
        "top-k-unsorted",
        "tensorrt@10.15",
        11,
        (
            "g (float[5] x) => (float[2] z, int64[2] i) <int64[1] k = {2}> "
            "{ z, i = TopK <sorted: int = 0> (x, k) }"
        ),
        "g (float[5] x) => (float[2] z, int64[2] i) <int64[1] k = {2}> { z, i = TopK (x, k) }",
    ),
    (
        "eye-like-dynamic",
        "tensorrt@10.15",
        13,
        "g (float[a, 3] x) => (float[a, 3] z) { z = EyeLike (x) }",
        "g (float[2, 3] x) => (float[2, 3] z) { z = EyeLike (x) }",
    ),
    (
        "loop-scan",
        "tensorrt@10.15",
        13,
        _loop(", int64 m", "bool t = {1}"),
        _loop("", "int64 m = {4}, bool t = {1}"),
    ),
    (
        "if-ranks",
        "tensorrt@8.6",
        13,
        _if("float[3] v) <int64[1] a = {0}> { v = Squeeze (x, a) "),
        _if("float[1, 3] v) { v = Abs (x) "),
    ),
    (
        "constants-CumSum.axis",
        "tensorrt@10.15",
        14,
        "g (float[3] x, int64 a) => (float[3] z) { z = CumSum (x, a) }",
        "g (float[3] x) => (float[3] z) <int64 a = {0}> { z = CumSum (x, a) }",
    ),
    (
        "constants-ReduceSum.axes",
        "tensorrt@10.15",
        18,
        "g (float[3] x, int64[1] a) => (float[1] z) { z = ReduceSum (x, a) }",
        "g (float[3] x) => (float[1] z) <int64[1] a = {0}> { z = ReduceSum (x, a) }",
    ),
    (
        "lacks-NonZero",
        "tensorrt@8.4",
        13,
        "g (float[3] x) => (int64[1, n] z) { z = NonZero (x) }",
        "g (float[3] x) => (int64[1] z) { z = Shape (x) }",
    ),
    (
        "lacks-Compress",
        "tensorrt@11.0",
        13,
        "g (float[3] x, bool[3] c) => (float[n] z) { z = Compress (x, c) }",
        "g (float[3] x, int64[2] c) => (float[2] z) { z = Gather (x, c) }",
    ),
    *(
        (
            f"types-{affected}",
            f"tensorrt@{version}",
            13,
            f"g ({affected}[3] x) => ({affected}[3] z) {{ z = Identity (x) }}",
            f"g ({free}[3] x) => ({free}[3] z) {{ z = Identity (x) }}",
        )
        for affected, version, free in (
            ("double", "8.6", "float"),
            ("double", "11.0", "float16"),
            ("bfloat16", "8.6", "int64"),
            ("uint8", "8.5", "int8"),
            ("int16", "10.15", "int32"),
            ("uint64", "11.0", "int64"),
            ("string", "10.0", "bool"),
        )
    ),
]
