"""Gates of recent decoders in their standard form, against onnxruntime and their documentation."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_kvtool.runtime.kernels.activation import sigmoid_of
from tests.grids import search
from tests.rewrite.contrib.single import FLOATS, OPSETS, demand_same, normal, opset_for, refusal
from tests.runtime.kernels.contrib.node import needs_newest

pytestmark = needs_newest

B, S, D = 2, 5, 7
some = search(60)


@some
@given(
    opset=OPSETS,
    dtype=FLOATS,
    alpha=st.sampled_from([None, 1.0, 1.702, -0.5]),
    scale=st.sampled_from([None, np.float32, np.float16, ml_dtypes.bfloat16]),
)
def test_scaled_silu(opset: int, dtype: Any, alpha: float | None, scale: Any) -> None:
    number = None if scale is None else np.array(0.3, scale)
    inputs = {"X": normal(B, S, D, dtype=dtype), "scale": number}
    given_ = {} if alpha is None else {"alpha": alpha}
    at = opset if scale is None else opset_for(opset, scale)
    demand_same("ScaledSiLU", inputs, at=opset_for(at, dtype), **given_)


@some
@given(opset=OPSETS, dtype=FLOATS, rank=st.sampled_from([1, 2, 3]))
def test_gated_add(opset: int, dtype: Any, rank: int) -> None:
    front = (B, S)[: rank - 1]
    inputs = {
        "X": normal(*front, D, dtype=dtype),
        "Y": normal(*front, D, dtype=dtype, seed=4),
        "gate": normal(*front, 1, dtype=dtype, seed=5),
    }
    demand_same("GatedAdd", inputs, at=opset_for(opset, dtype))


@some
@given(opset=st.sampled_from([24, 21, 18, 13]), rank=st.sampled_from([2, 3]))
def test_gated_add_of_a_projection(opset: int, rank: int) -> None:
    """onnxruntime has it on GPUs alone: what is expected is the formula."""
    kind, front = ml_dtypes.bfloat16, (B, S)[: rank - 1]
    inputs = {
        "X": normal(*front, D, dtype=kind),
        "Y": normal(*front, D, dtype=kind, seed=4),
        "gate": normal(*front, 3, dtype=kind, seed=5),
        "gate_weight": normal(3, 1, dtype=kind, seed=6),
    }
    x, y, gate, weight = (value.astype(np.float64) for value in inputs.values())
    chance = sigmoid_of((gate @ weight).astype(kind).astype(np.float64)).astype(kind)
    product = (y * chance.astype(np.float64)).astype(kind).astype(np.float64)
    expected = {"y": (x + product).astype(kind)}
    demand_same("GatedAdd", inputs, at=opset, expected=expected)


@some
@given(
    opset=OPSETS,
    dtype=FLOATS,
    activation=st.sampled_from([None, "silu", "swish", "sigmoid"]),
    epsilon=st.sampled_from([1e-5, 1e-2]),
    groups=st.sampled_from([1, 3]),
    rank=st.sampled_from([1, 2, 3]),
)
def test_gated_rms_norm(
    opset: int, dtype: Any, activation: str | None, epsilon: float, groups: int, rank: int
) -> None:
    shape = (*(B, S)[: rank - 1], groups * D)
    inputs = {
        "X": normal(*shape, dtype=dtype),
        "scale": normal(D, dtype=dtype),
        "gate": normal(*shape, dtype=dtype, seed=4),
    }
    given_ = {} if activation is None else {"activation": activation}
    demand_same("GatedRMSNorm", inputs, at=opset_for(opset, dtype), epsilon=epsilon, **given_)


@some
@given(
    opset=OPSETS,
    dtype=FLOATS,
    alpha=st.sampled_from([1.0, 1.702]),
    beta=st.sampled_from([0.0, 1.0]),
    limit=st.sampled_from([-1.0, 0.0, 0.75, 7.0]),
    rounded=st.sampled_from([0, 1]),
    joined=st.booleans(),
)
def test_swiglu(
    opset: int, dtype: Any, alpha: float, beta: float, limit: float, rounded: int, joined: bool
) -> None:
    """onnxruntime has it on GPUs alone: what is expected is the formula."""
    gate, up = normal(B, S, D, dtype=dtype), normal(B, S, D, dtype=dtype, seed=4)
    bound = limit if limit > 0 else np.inf
    g = np.minimum(gate.astype(np.float64), bound)
    linear = np.clip(up.astype(np.float64), -bound, bound)
    swish = g * sigmoid_of(np.float32(alpha).astype(np.float64) * g)
    if rounded:
        swish = swish.astype(dtype).astype(np.float64)
    inputs = {
        "gate": np.concatenate([gate, up], -1) if joined else gate,
        "up": None if joined else up,
    }
    demand_same(
        "SwiGLU",
        inputs,
        at=opset_for(opset, dtype),
        expected={"y": (swish * (linear + beta)).astype(dtype)},
        activation_alpha=alpha,
        activation_beta=beta,
        limit=limit,
        round_activation=rounded,
    )


X = normal(B, S, D)
REFUSED: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "a scale in a row": (
        "ScaledSiLU",
        {"X": X, "scale": normal(1)},
        {},
        "`scale` of `ScaledSiLU` has shape (1,), expected a scalar",
    ),
    "another gate": (
        "GatedRMSNorm",
        {"X": X, "scale": normal(D), "gate": X},
        {"activation": "tanh"},
        "`activation` of `GatedRMSNorm` is `tanh`",
    ),
    "a part of a group": (
        "GatedRMSNorm",
        {"X": X, "scale": normal(3), "gate": X},
        {},
        "`X` of `GatedRMSNorm` is 7 wide, expected a multiple of 3",
    ),
    "a projection of float32": (
        "GatedAdd",
        {"X": X, "Y": X, "gate": X, "gate_weight": normal(D, 1)},
        {},
        "`gate_weight` of `GatedAdd` is given beside FLOAT",
    ),
    "halves of an odd width": ("SwiGLU", {"gate": X}, {}, "is 7 wide, expected an even number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_standard_form_is_refused(name: str) -> None:
    op, inputs, attributes, words = REFUSED[name]
    assert words in refusal(op, inputs, **attributes)
