"""Operators of hybrid decoders that keep a state, in their standard form, against onnxruntime."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.grids import search
from tests.rewrite.contrib.single import demand_same, normal, refusal
from tests.runtime.kernels.contrib.node import needs_onnxruntime, theirs

pytestmark = needs_onnxruntime

OPSETS = st.sampled_from([24, 21, 18, 13, 11, 9])
REALS = st.sampled_from([np.float32, np.float16])
some = search(60)


@some
@given(
    opset=OPSETS,
    dtype=REALS,
    has_beta=st.booleans(),
    far=st.sampled_from([1, 30]),
    is_column=st.booleans(),
)
def test_linear_attention_gate(
    opset: int, dtype: Any, has_beta: bool, far: int, is_column: bool
) -> None:
    inputs = {
        "a": (normal(2, 5, 3) * far).astype(dtype),
        "dt_bias": normal(3, 1) if is_column else normal(3),
        "decay_scale": -np.abs(normal(3, seed=5)),
        "b": (normal(2, 5, 3, seed=7) * far).astype(dtype) if has_beta else None,
    }
    outputs = ("decay", "beta") if has_beta else ("decay",)
    demand_same("LinearAttentionGate", inputs, outputs, at=opset)


def test_a_gate_of_bfloat16() -> None:
    """numpy can give onnxruntime none: what its kernel computes in float32 is rounded here."""
    wide = {
        "a": normal(2, 5, 3, dtype=ml_dtypes.bfloat16).astype(np.float32),
        "dt_bias": normal(3),
        "decay_scale": -np.abs(normal(3, seed=5)),
        "b": normal(2, 5, 3, dtype=ml_dtypes.bfloat16, seed=7).astype(np.float32),
    }
    found = theirs("LinearAttentionGate", wide, ("decay", "beta"))
    expected = {name: value.astype(ml_dtypes.bfloat16) for name, value in found.items()}
    inputs = wide | {name: wide[name].astype(ml_dtypes.bfloat16) for name in "ab"}
    for opset in (24, 16):
        demand_same("LinearAttentionGate", inputs, ("decay", "beta"), at=opset, expected=expected)


def test_a_rate_without_its_input_is_refused() -> None:
    inputs = {"a": normal(2, 5, 3), "dt_bias": normal(3), "decay_scale": normal(3)}
    assert "its input `b`" in refusal("LinearAttentionGate", inputs, ("decay", "beta"))
