"""Streams that lie side by side in their standard form, against onnxruntime and a formula."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.grids import search
from tests.rewrite.contrib.single import (
    FLOATS,
    OPSETS,
    Array,
    demand_same,
    normal,
    opset_for,
    refusal,
)
from tests.runtime.kernels.contrib.node import needs_newest

pytestmark = needs_newest

B, S, C, H = 2, 5, 3, 7
FRONTS = st.sampled_from([(B, S), (S,), ()])
some = search(60)


def streams(front: tuple[int, ...], flat: bool, dtype: Any, seed: int = 3) -> Array:
    return normal(*front, *((C * H,) if flat else (C, H)), dtype=dtype, seed=seed)


def opset_of(opset: int, *dtypes: Any) -> int:
    return max(opset_for(opset, dtype) for dtype in dtypes)


@some
@given(
    opset=OPSETS,
    dtype=FLOATS,
    other=FLOATS,
    front=FRONTS,
    flat=st.booleans(),
    scale=st.sampled_from([None, (C * H,), (C, H), (H,)]),
    epsilon=st.sampled_from([1e-5, 1e-2]),
)
def test_branchwise_rms_norm(
    opset: int, dtype: Any, other: Any, front: Any, flat: bool, scale: Any, epsilon: float
) -> None:
    inputs = {
        "X": streams(front, flat, dtype),
        "scale": None if scale is None else normal(*scale, dtype=other),
    }
    given_ = {"num_branches": C} if flat else {}
    demand_same(
        "BranchwiseRMSNorm", inputs, at=opset_of(opset, dtype, other), epsilon=epsilon, **given_
    )


@some
@given(
    opset=OPSETS,
    dtype=FLOATS,
    other=FLOATS,
    front=FRONTS,
    flat=st.booleans(),
    gates=st.sampled_from([(C,), (C, 1), (C, H), (C * H,)]),
    factor=st.sampled_from([1.0, 0.25]),
)
def test_hyper_connection_pre_mix(
    opset: int, dtype: Any, other: Any, front: Any, flat: bool, gates: Any, factor: float
) -> None:
    gates = (C, H) if gates == (C * H,) and not flat else gates
    inputs = {
        "streams": streams(front, flat, dtype),
        "pre_mix": normal(*front, *gates, dtype=other),
    }
    given_: dict[str, Any] = {"reduction_scale": factor} | ({"num_branches": C} if flat else {})
    demand_same("HyperConnectionPreMix", inputs, at=opset_of(opset, dtype, other), **given_)


@some
@given(
    opset=OPSETS,
    dtype=FLOATS,
    other=FLOATS,
    front=FRONTS,
    flat=st.booleans(),
    gates=st.sampled_from([(C,), (C, 1), (C, H)]),
    mixed=st.booleans(),
)
def test_hyper_connection_post_mix(
    opset: int, dtype: Any, other: Any, front: Any, flat: bool, gates: Any, mixed: bool
) -> None:
    inputs = {
        "streams": streams(front, flat, dtype),
        "block_output": normal(*front, H, dtype=dtype, seed=4),
        "post_mix": normal(*front, *gates, dtype=other, seed=5),
        "stream_mix": normal(*front, C, C, dtype=other, seed=6) if mixed else None,
    }
    given_ = {"num_branches": C} if flat else {}
    demand_same("HyperConnectionPostMix", inputs, at=opset_of(opset, dtype, other), **given_)


@some
@given(
    opset=OPSETS,
    dtype=FLOATS,
    normed=st.booleans(),
    unlike=st.booleans(),
    epsilon=st.sampled_from([1e-5, 1e-2]),
)
def test_engram_gate(opset: int, dtype: Any, normed: bool, unlike: bool, epsilon: float) -> None:
    inputs = {
        "key": normal(B, S, C, H, dtype=dtype),
        "query": normal(B, S, C, H, dtype=dtype, seed=4),
        "value": normal(B, S, H, dtype=dtype, seed=5),
        "key_norm_scale": normal(C, H, dtype=dtype, seed=6),
        "query_norm_scale": normal(C, H, dtype=dtype, seed=7),
        "conv_norm_scale": normal(C, H, dtype=dtype, seed=8) if normed else None,
    }
    if unlike:
        inputs["key"][0] = 0
    outputs = ("y", "normed") if normed else ("y",)
    tolerance = 2e-5 if dtype == np.float32 else 2e-2 if dtype == np.float16 else 1e-1
    demand_same(
        "EngramGate",
        inputs,
        outputs,
        at=opset_for(opset, dtype),
        tolerance=tolerance,
        epsilon=epsilon,
    )


X = normal(B, S, C * H)
REFUSED: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "branches that do not divide": (
        "BranchwiseRMSNorm", {"X": X}, {"num_branches": 4}, "with a `num_branches` of 4 has shape"
    ),
    "another scale": (
        "BranchwiseRMSNorm", {"X": X, "scale": normal(5)}, {"num_branches": C},
        "`scale` of `BranchwiseRMSNorm` has shape (5,), expected (21,), (3, 7) or (7,)",
    ),
    "other gates": (
        "HyperConnectionPreMix", {"streams": X, "pre_mix": normal(B, S, 4)}, {"num_branches": C},
        "`pre_mix` of `HyperConnectionPreMix` has shape (2, 5, 4), expected (..., 3)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_standard_form_is_refused(name: str) -> None:
    op, inputs, attributes, words = REFUSED[name]
    assert words in refusal(op, inputs, ("y",), **attributes)


def test_a_scale_of_features_stays_in_the_norm() -> None:
    inputs = {"X": X, "scale": normal(H, dtype=ml_dtypes.bfloat16)}
    model = demand_same("BranchwiseRMSNorm", inputs, num_branches=C)
    assert "Mul" not in {node.op_type for node in model.graph}
