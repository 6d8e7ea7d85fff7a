"""Activations, normalizations, products and convolutions of onnxruntime in their standard form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_kvtool.runtime.kernels.activation import gelu_of, gelu_tanh_of
from tests.grids import search
from tests.rewrite.contrib.single import (
    FLOATS,
    OPSETS,
    Array,
    demand_same,
    normal,
    opset_for,
    refusal,
    standard,
)
from tests.runtime.kernels.contrib.node import needs_onnxruntime

pytestmark = needs_onnxruntime

B, S, D = 2, 5, 7
REALS = st.sampled_from([np.float32, np.float16])
some = search(60)


@some
@given(opset=OPSETS, dtype=FLOATS, op=st.sampled_from(["Gelu", "FastGelu", "QuickGelu"]))
def test_a_gelu(opset: int, dtype: Any, op: str) -> None:
    demand_same(op, {"x": normal(B, S, D, dtype=dtype)}, at=opset_for(opset, dtype))


@some
@given(opset=OPSETS, dtype=FLOATS, op=st.sampled_from(["BiasGelu", "FastGelu"]))
def test_a_gelu_with_a_bias(opset: int, dtype: Any, op: str) -> None:
    inputs = {"x": normal(B, S, D, dtype=dtype), "b": normal(D, dtype=dtype)}
    demand_same(op, inputs, at=opset_for(opset, dtype))


@some
@given(opset=OPSETS, dtype=REALS, alpha=st.sampled_from([1.0, 1.702, -0.5]))
def test_quick_gelu(opset: int, dtype: Any, alpha: float) -> None:
    demand_same("QuickGelu", {"x": normal(B, S, D, dtype=dtype)}, at=opset, alpha=alpha)


@some
@given(opset=OPSETS, dtype=REALS, bias=st.booleans())
def test_gemm_fast_gelu(opset: int, dtype: Any, bias: bool) -> None:
    """onnxruntime has it on GPUs of one maker alone: what is expected is the formula."""
    x, w, b = normal(B, S, D, dtype=dtype), normal(D, 3, dtype=dtype), normal(3, dtype=dtype)
    total = x.astype(np.float64) @ w.astype(np.float64) + (b.astype(np.float64) if bias else 0)
    inputs = {"X": x, "W": w, "bias": b if bias else None}
    expected = {"y": gelu_tanh_of(total).astype(dtype)}
    limit = 2e-5 if dtype == np.float32 else 3e-2
    demand_same("GemmFastGelu", inputs, at=opset, expected=expected, tolerance=limit)


@some
@given(
    opset=OPSETS,
    dtype=st.sampled_from([np.float32, np.float16, np.float64]),
    axis=st.sampled_from([1, 2, 3, -1]),
    inner=st.booleans(),
)
def test_bias_softmax(opset: int, dtype: Any, axis: int, inner: bool) -> None:
    """onnxruntime has it on GPUs alone: what is expected is the formula."""
    x = normal(B, 3, S, D, dtype=dtype)
    bias = normal(*((B, 1, 1, D) if inner else (1, 1, S, D)), dtype=dtype)
    total = (x + bias).astype(np.float64)
    flat = total.reshape(int(np.prod(total.shape[: axis % 4])), -1)
    flat = np.exp(flat - flat.max(-1, keepdims=True))
    expected = (flat / flat.sum(-1, keepdims=True)).reshape(x.shape).astype(dtype)
    demand_same(
        "BiasSoftmax",
        {"x": x, "bias": bias},
        at=opset,
        expected={"y": expected},
        axis=axis,
        is_inner_broadcast=int(inner),
    )


@some
@given(opset=OPSETS, dtype=REALS)
def test_bias_split_gelu(opset: int, dtype: Any) -> None:
    x, b = normal(B, S, 14, dtype=dtype), normal(14, dtype=dtype)
    left, right = np.split(x.astype(np.float64) + b.astype(np.float64), 2, axis=-1)
    expected = {"y": (left * gelu_of(right)).astype(dtype)}
    demand_same("BiasSplitGelu", {"x": x, "b": b}, at=opset, expected=expected)


@some
@given(
    opset=OPSETS,
    residual=st.booleans(),
    training=st.sampled_from([None, False]),
    mask=st.booleans(),
)
def test_bias_dropout(opset: int, residual: bool, training: bool | None, mask: bool) -> None:
    x, b, r = normal(B, S, D), normal(D), normal(B, S, D, seed=4)
    inputs = {
        "x": x,
        "b": b,
        "r": r if residual else None,
        "ratio": np.array(0.25, np.float32),
        "training": None if training is None else np.array(training),
    }
    expected: dict[str, Array] = {"y": x + b + (r if residual else 0)}
    if mask:
        expected["m"] = np.ones((B, S, D), bool)
    outputs = ("y", "m") if mask else ("y",)
    constants = ["ratio"] + ([] if training is None else ["training"])
    demand_same("BiasDropout", inputs, outputs, at=opset, expected=expected, constants=constants)


@some
@given(
    opset=OPSETS,
    dtype=st.sampled_from([np.float32, np.float16, np.float64]),
    scale=st.sampled_from([np.float32, np.float16]),
    form=st.sampled_from([(-1, (7,)), (2, (5, 7)), (1, (7,)), (-1, (2, 1, 5, 7)), (3, (1,))]),
    inverse=st.booleans(),
    epsilon=st.sampled_from([1e-5, 1e-2]),
)
def test_simplified_layer_normalization(
    opset: int, dtype: Any, scale: Any, form: Any, inverse: bool, epsilon: float
) -> None:
    axis, shape = form
    kind = dtype if dtype == np.float64 else scale
    inputs = {"X": normal(B, 3, S, D, dtype=dtype), "scale": normal(*shape, dtype=kind)}
    demand_same(
        "SimplifiedLayerNormalization",
        inputs,
        ("y", "inverse") if inverse else ("y",),
        "",
        at=opset,
        axis=axis,
        epsilon=epsilon,
    )


@some
@given(
    opset=st.sampled_from([16, 13, 11]),
    dtype=st.sampled_from([np.float32, np.float64]),
    form=st.sampled_from([(-1, (7,)), (2, (5, 7)), (1, (7,))]),
    bias=st.booleans(),
)
def test_layer_normalization_below_opset_17(opset: int, dtype: Any, form: Any, bias: bool) -> None:
    axis, shape = form
    inputs = {
        "X": normal(B, 3, S, D, dtype=dtype),
        "Scale": normal(*shape, dtype=dtype),
        "B": normal(*shape, dtype=dtype, seed=5) if bias else None,
    }
    demand_same("LayerNormalization", inputs, domain="", at=opset, axis=axis)


@some
@given(
    opset=OPSETS,
    dtype=REALS,
    is_simple=st.booleans(),
    skip=st.sampled_from([(2, 5, 7), (1, 5, 7), (5, 7)]),
    beta=st.booleans(),
    bias=st.booleans(),
    total=st.booleans(),
    epsilon=st.sampled_from([1e-12, 1e-2]),
)
def test_normalization_of_a_residual(
    opset: int,
    dtype: Any,
    is_simple: bool,
    skip: Any,
    beta: bool,
    bias: bool,
    total: bool,
    epsilon: float,
) -> None:
    inputs: dict[str, Array | None] = {
        "input": normal(B, S, D, dtype=dtype),
        "skip": normal(*skip, dtype=dtype, seed=4),
        "gamma": normal(D, dtype=dtype),
    }
    if not is_simple:
        inputs["beta"] = normal(D, dtype=dtype, seed=5) if beta else None
    inputs["bias"] = normal(D, dtype=dtype, seed=6) if bias else None
    op = "SkipSimplifiedLayerNormalization" if is_simple else "SkipLayerNormalization"
    outputs = ("y", "", "", "sum") if total else ("y",)
    demand_same(op, inputs, outputs, at=opset, epsilon=epsilon)


@some
@given(
    opset=OPSETS,
    dtype=REALS,
    segments=st.booleans(),
    mask=st.booleans(),
    places=st.sampled_from([0, 1, 2]),
    total=st.booleans(),
)
def test_embed_layer_normalization(
    opset: int, dtype: Any, segments: bool, mask: bool, places: int, total: bool
) -> None:
    rng = np.random.default_rng(3)
    inputs = {
        "input_ids": rng.integers(0, 11, (B, S)).astype(np.int32),
        "segment_ids": rng.integers(0, 3, (B, S)).astype(np.int32) if segments else None,
        "word_embedding": normal(11, D, dtype=dtype),
        "position_embedding": normal(6, D, dtype=dtype),
        "segment_embedding": normal(3, D, dtype=dtype) if segments else None,
        "gamma": normal(D, dtype=dtype),
        "beta": normal(D, dtype=dtype, seed=4),
        "mask": rng.integers(0, 2, (B, S)).astype(np.int32) if mask else None,
        "position_ids": rng.integers(0, 6, (places, S)).astype(np.int32) if places else None,
    }
    outputs = ("y", "count", "sum") if total else ("y", "count")
    demand_same("EmbedLayerNormalization", inputs, outputs, at=opset)


@some
@given(
    opset=OPSETS,
    dtype=st.sampled_from([np.uint8, np.int8]),
    segments=st.booleans(),
    mask=st.booleans(),
    epsilon=st.sampled_from([1e-12, 1e-2]),
)
def test_q_embed_layer_normalization(
    opset: int, dtype: Any, segments: bool, mask: bool, epsilon: float
) -> None:
    rng, limits = np.random.default_rng(3), np.iinfo(dtype)
    parts = ("word_embedding", "position_embedding", "segment_embedding", "gamma", "beta")
    shapes = ((11, 8), (6, 8), (3, 8), (8,), (8,))
    here = {name: segments or name != "segment_embedding" for name in parts}
    inputs: dict[str, Array | None] = {
        "input_ids": rng.integers(0, 11, (B, S)).astype(np.int32),
        "segment_ids": rng.integers(0, 3, (B, S)).astype(np.int32) if segments else None,
    }
    for name, shape in zip(parts, shapes, strict=True):
        codes = rng.integers(limits.min, limits.max + 1, shape).astype(dtype)
        inputs[name] = codes if here[name] else None
    inputs["mask"] = rng.integers(0, 2, (B, S)).astype(np.int32) if mask else None
    for index, name in enumerate(parts):
        inputs[f"{name}_s"] = np.array(0.01 + index / 100, np.float32) if here[name] else None
    for index, name in enumerate(parts):
        inputs[f"{name}_z"] = np.array(limits.max // 2 + index, dtype) if here[name] else None
    demand_same(
        "QEmbedLayerNormalization",
        inputs,
        ("y", "count"),
        at=opset,
        tolerance=5e-5,
        epsilon=epsilon,
    )


@some
@given(
    opset=OPSETS,
    dtype=REALS,
    alpha=st.sampled_from([1.0, 0.25, -3.0]),
    left=st.booleans(),
    right=st.booleans(),
    ranks=st.sampled_from([(3, 3), (2, 2), (4, 2), (1, 2)]),
)
def test_fused_mat_mul(
    opset: int, dtype: Any, alpha: float, left: bool, right: bool, ranks: Any
) -> None:
    stack = {1: (), 2: (), 3: (2,), 4: (2, 3)}
    a = (D,) if ranks[0] == 1 else (*stack[ranks[0]], *((D, S) if left else (S, D)))
    b = (*stack[ranks[1]], *((3, D) if right else (D, 3)))
    inputs = {"A": normal(*a, dtype=dtype), "B": normal(*b, dtype=dtype)}
    attributes = {"alpha": alpha, "transA": int(left), "transB": int(right)}
    demand_same("FusedMatMul", inputs, at=opset, **attributes)


@some
@given(opset=OPSETS, matrix=st.booleans(), rank=st.sampled_from([3, 4]), right=st.booleans())
def test_fused_mat_mul_of_a_transposed_batch(
    opset: int, matrix: bool, rank: int, right: bool
) -> None:
    middle = (2, 3)[: rank - 2]
    a = (D, *middle, S) if matrix else (S, *middle, D)
    plain = (*middle, D, 3)
    b = (D, *middle, 3) if right else plain
    inputs = {"A": normal(*a), "B": normal(*b)}
    attributes = {"transBatchA": 1, "transA": int(matrix), "transBatchB": int(right)}
    demand_same("FusedMatMul", inputs, at=opset, **attributes)


def test_a_half_product_does_not_overflow_where_the_factor_saves_it() -> None:
    inputs = {
        "A": np.full((2, 64), 64, np.float16),
        "B": np.full((64, 3), 32, np.float16),
    }
    demand_same("FusedMatMul", inputs, alpha=0.0625)


ACTIVATIONS: dict[str, dict[str, float]] = {
    "Relu": {},
    "Sigmoid": {},
    "Tanh": {},
    "LeakyRelu": {"alpha": 0.25},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.4},
}


@some
@given(
    opset=OPSETS,
    dtype=REALS,
    activation=st.sampled_from(
        [*ACTIVATIONS, "Softplus", "Softsign", "Elu", "ThresholdedRelu", "Selu"]
    ),
    third=st.booleans(),
    trans=st.booleans(),
)
def test_fused_gemm(opset: int, dtype: Any, activation: str, third: bool, trans: bool) -> None:
    if dtype == np.float16 and activation not in ("Relu",):
        dtype = np.float32
    inputs = {
        "A": normal(S, D, dtype=dtype),
        "B": normal(*((3, D) if trans else (D, 3)), dtype=dtype),
        "C": normal(3, dtype=dtype) if third else None,
    }
    numbers = {
        "Elu": {"alpha": 0.5},
        "ThresholdedRelu": {"alpha": 0.5},
        "Selu": {"alpha": 1.5, "gamma": 1.2},
    }
    given_ = ACTIVATIONS.get(activation) or numbers.get(activation, {})
    attributes = {f"activation_{name}": number for name, number in given_.items()}
    demand_same(
        "FusedGemm",
        inputs,
        at=opset,
        activation=activation,
        alpha=0.5,
        beta=2.0,
        transB=int(trans),
        **attributes,
    )


@some
@given(
    opset=OPSETS,
    activation=st.sampled_from([*ACTIVATIONS, "Clip", None]),
    bias=st.booleans(),
    added=st.booleans(),
    pads=st.sampled_from([[0, 0, 0, 0], [1, 0, 2, 1]]),
)
def test_fused_conv(
    opset: int, activation: str | None, bias: bool, added: bool, pads: list[int]
) -> None:
    height, width = 5 + pads[0] + pads[2] - 1, 7 + pads[1] + pads[3] - 2
    inputs = {
        "X": normal(2, 3, 5, 7),
        "W": normal(4, 3, 2, 3),
        "B": normal(4) if bias or added else None,
        "Z": normal(2, 4, height, width, seed=5) if added else None,
    }
    numbers = {"Clip": [-0.5, 0.75]} | {n: list(g.values()) for n, g in ACTIVATIONS.items()}
    attributes: dict[str, Any] = {"pads": pads, "kernel_shape": [2, 3]}
    if activation is not None:
        attributes["activation"] = activation
        if numbers[activation]:
            attributes["activation_params"] = numbers[activation]
    demand_same("FusedConv", inputs, at=opset, **attributes)


@some
@given(opset=OPSETS, group=st.sampled_from([1, 3]), bias=st.booleans())
def test_nhwc_conv(opset: int, group: int, bias: bool) -> None:
    from onnx.reference.ops.op_conv import _conv_implementation  # type: ignore[attr-defined]

    x, w, b = normal(2, 5, 7, 3), normal(6, 2, 3, 3 // group), normal(6)
    plain = _conv_implementation(
        x.transpose(0, 3, 1, 2),
        w.transpose(0, 3, 1, 2),
        b if bias else None,
        "NOTSET",
        [1, 1],
        group,
        [2, 3],
        [0, 0, 0, 0],
        [1, 2],
    )
    demand_same(
        "NhwcConv",
        {"X": x, "W": w, "B": b if bias else None},
        at=opset,
        expected={"y": plain.transpose(0, 2, 3, 1).astype(np.float32)},
        group=group,
        strides=[1, 2],
        kernel_shape=[2, 3],
    )


@some
@given(
    opset=OPSETS,
    dtype=REALS,
    rank=st.sampled_from([3, 4]),
    part=st.sampled_from([0, 4]),
    interleaved=st.sampled_from([0, 1]),
    alone=st.booleans(),
    heads=st.booleans(),
)
def test_rotary_embedding(
    opset: int, dtype: Any, rank: int, part: int, interleaved: int, alone: bool, heads: bool
) -> None:
    size, count = 8, 3
    x = normal(*((B, S, count * size) if rank == 3 else (B, count, S, size)), dtype=dtype)
    half = (part or size) // 2
    angles = normal(11, half).astype(np.float64)
    rng = np.random.default_rng(4)
    inputs = {
        "input": x,
        "position_ids": np.array([4]) if alone else rng.integers(0, 11, (B, S)),
        "cos_cache": np.cos(angles).astype(dtype),
        "sin_cache": np.sin(angles).astype(dtype),
    }
    attributes = {"interleaved": interleaved, "rotary_embedding_dim": part}
    if heads or part:
        attributes["num_heads"] = count
    demand_same("RotaryEmbedding", inputs, at=opset, **attributes)


X = normal(B, S, D)
ROTARY = {
    "input": normal(B, S, 24),
    "position_ids": np.zeros((B, S), np.int64),
    "cos_cache": normal(11, 4),
    "sin_cache": normal(11, 4),
}
REFUSED = {
    "a packed batch": ("RotaryEmbedding", ROTARY, {"is_packed_batching": 1}, "is_packed_batching"),
    "a scale of rotation": ("RotaryEmbedding", ROTARY, {"scale": 2.0}, "scale"),
    "an activation that nobody knows": (
        "FusedGemm",
        {"A": normal(S, D), "B": normal(D, 3)},
        {"activation": "Swish"},
        "Swish",
    ),
    "a flat sentence": (
        "EmbedLayerNormalization",
        {
            "input_ids": np.zeros(S, np.int32),
            "segment_ids": None,
            "words": normal(11, D),
            "places": normal(S, D),
            "segments": None,
            "gamma": normal(D),
            "beta": normal(D),
        },
        {},
        "input_ids",
    ),
    "an operator without a rule": ("SampleOp", {"X": normal(3, 3)}, {}, "com.microsoft::SampleOp"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_standard_form_is_refused_by_name(name: str) -> None:
    op, inputs, attributes, word = REFUSED[name]
    outputs = ("y", "mask_index")[: 1 + op.startswith("Embed")]
    assert f"`{word}`" in refusal(op, inputs, outputs, **attributes)


def test_statistics_of_training_are_refused() -> None:
    inputs = {"input": X, "skip": X, "gamma": normal(D)}
    assert "`mean`" in refusal("SkipLayerNormalization", inputs, ("y", "mean"))


def test_the_newest_forms_are_chosen() -> None:
    inputs = {"input": X, "skip": X, "gamma": normal(D)}
    model, _ = standard("SkipSimplifiedLayerNormalization", inputs)
    assert [node.op_type for node in model.graph] == ["Add", "RMSNormalization"]
    model, _ = standard("RotaryEmbedding", ROTARY, num_heads=3)
    assert [node.op_type for node in model.graph] == ["RotaryEmbedding"]
    model, _ = standard("FastGelu", {"x": X})
    assert [node.op_type for node in model.graph] == ["Gelu"]
