"""Routers of experts in their standard form, against onnxruntime and a formula."""

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

E, T = 12, 5
some = search(80)
FRONTS = st.sampled_from([(T,), (2, 3), (1, 1)])


@some
@given(
    opset=OPSETS,
    dtype=FLOATS,
    front=FRONTS,
    groups=st.sampled_from([(None, None), (1, 1), (4, 1), (4, 3), (3, 2), (12, 5), (2, 2)]),
    ranked=st.sampled_from([None, 1, 2, 9]),
    count=st.sampled_from([1, 3, 5, 12]),
    sentinel=st.sampled_from([None, -50.0]),
    is_equal=st.booleans(),
    is_named=st.booleans(),
    seed=st.integers(0, 5),
)
def test_moe_group_router(
    opset: int,
    dtype: Any,
    front: tuple[int, ...],
    groups: Any,
    ranked: int | None,
    count: int,
    sentinel: float | None,
    is_equal: bool,
    is_named: bool,
    seed: int,
) -> None:
    logits = 2 * normal(*front, E, seed=seed)
    inputs = {
        "logits": (np.round(logits / 2) if is_equal else logits).astype(dtype),
        "expert_bias": np.zeros(E, np.float32) if is_equal else normal(E),
    }
    given_: dict[str, Any] = {
        "n_group": groups[0],
        "topk_group": groups[1],
        "group_topk": ranked,
        "router_sentinel": sentinel,
    }
    demand_same(
        "MoEGroupRouter",
        inputs,
        at=opset_for(opset, dtype),
        tolerance=1e-3 if dtype == np.float32 else None,  # logarithms of small differences
        top_k=count,
        dims={"logits": [*(f"d{axis}" for axis in range(len(front))), E]} if is_named else None,
        **{name: value for name, value in given_.items() if value is not None},
    )


@some
@given(opset=OPSETS, dtype=FLOATS, front=FRONTS, projected=st.booleans())
def test_all_scores(opset: int, dtype: Any, front: tuple[int, ...], projected: bool) -> None:
    """Of a projection that is no multiple of 256 wide onnxruntime has no kernel."""
    logits = normal(T, 256, dtype=dtype) if projected else normal(*front, E, dtype=dtype)
    weight = (normal(E, 256, seed=4) / 16).astype(dtype) if projected else None
    inputs = {"logits": logits, "expert_bias": normal(E), "weight": weight}
    at, outputs = opset_for(opset, dtype), ("", "scores", "weights")
    demand_same("MoEGroupRouter", inputs, outputs, at=at, top_k=3)


@some
@given(
    opset=OPSETS,
    dtype=st.sampled_from([np.float16, ml_dtypes.bfloat16]),
    front=FRONTS,
    alpha=st.sampled_from([1.0, 1.702]),
    beta=st.sampled_from([0.0, 1.0]),
    limit=st.sampled_from([0.0, 0.75]),
)
def test_router_gate_up_proj(
    opset: int, dtype: Any, front: tuple[int, ...], alpha: float, beta: float, limit: float
) -> None:
    """onnxruntime has it on GPUs alone: what is expected is the formula."""
    x, w = normal(*front, 7, dtype=dtype), normal(7, E + 10, dtype=dtype)
    product = (x.astype(np.float64) @ w.astype(np.float64)).astype(dtype)
    router, gate, up = np.split(product.astype(np.float64), [E, E + 5], axis=-1)
    if limit:
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    activated = gate * sigmoid_of(alpha * gate) * (up + beta)
    demand_same(
        "RouterGateUpProj",
        {"X": x, "W": w},
        ("router", "activated"),
        at=opset_for(opset, dtype),
        expected={"router": router.astype(dtype), "activated": activated.astype(dtype)},
        tolerance=2e-2 if dtype == np.float16 else 2e-1,
        router_size=E,
        activation_alpha=alpha,
        activation_beta=beta,
        limit=limit,
    )


LOGITS = {"logits": normal(T, E), "expert_bias": normal(E)}
HALF = {"X": normal(T, 7, dtype=np.float16), "W": normal(7, E, dtype=np.float16)}
REFUSED: dict[str, tuple[str, dict[str, Any], tuple[str, ...], dict[str, Any], str]] = {
    "groups that do not divide": (
        "MoEGroupRouter", LOGITS, ("y",), {"top_k": 2, "n_group": 5}, "in 1 of 5 groups"
    ),
    "more experts than there are": (
        "MoEGroupRouter", LOGITS, ("y",), {"top_k": 13}, "chooses 13 of 12 experts"
    ),
    "all scores beside the chosen": (
        "MoEGroupRouter", LOGITS, ("y", "s", "w"), {"top_k": 2}, "`router_probs` beside all scores"
    ),
    "another activation": (
        "RouterGateUpProj", HALF, ("y", "z"), {"router_size": 2, "activation": "geglu"},
        "`activation` of `RouterGateUpProj` is `geglu`",
    ),
    "an odd number of columns": (
        "RouterGateUpProj", HALF, ("y", "z"), {"router_size": 3}, "is 12 wide, expected"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_standard_form_is_refused(name: str) -> None:
    op, inputs, outputs, attributes, words = REFUSED[name]
    assert words in refusal(op, inputs, outputs, **attributes)
