"""Mixtures of experts in their standard form, against onnxruntime, and a loop over tokens."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from onnx_kvtool.runtime import onnxruntime
from tests.grids import search
from tests.rewrite.contrib.drawn_experts import (
    DRAWN,
    QMOE,
    E,
    H,
    I,
    coded,
    has_kernel,
    looped,
    parts_of,
    quantized,
    routes_of,
    sized,
    sized_for,
    softmax,
    sparse_routes,
)
from tests.rewrite.contrib.single import (
    demand_same,
    model_of,
    normal,
    refusal,
    standard,
)
from tests.runtime.kernels.contrib.node import needs_onnxruntime, ours

pytestmark = needs_onnxruntime

some = search(40)


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep onnxruntime from rounding tokens to 8 bits before a product with codes of 8."""
    monkeypatch.setenv("ORT_QMOE_CPU_QNBIT_GEMM", "fp32")


@some
@given(**DRAWN, k=st.integers(1, E))
def test_moe(
    opset: int,
    dtype: Any,
    tokens: tuple[int, ...],
    form: dict[str, Any],
    k: int,
    normalized: int,
    sparse: int,
    bias: bool,
) -> None:
    inputs = sized_for(form, tokens, dtype, bias)
    attributes = {
        "k": 2 if sparse else k,
        "normalize_routing_weights": normalized,
        "use_sparse_mixer": sparse,
        **form,
    }
    expected = None
    if sparse:
        near = np.array([1, 1.01, 0.985, 0.97, -1]) * (1 + np.arange(int(np.prod(tokens))))[:, None]
        inputs["router_probs"] = near.astype(dtype)
        routes = sparse_routes(inputs["router_probs"])
        expected = looped(inputs["input"], routes, parts_of(inputs), **attributes)
    elif not has_kernel(form):
        chances = np.stack([softmax(row) for row in inputs["router_probs"].astype(np.float64)])
        routes = routes_of(chances, k, is_normal=bool(normalized))
        expected = looped(inputs["input"], routes, parts_of(inputs), **attributes)
    demand_same(
        "MoE",
        inputs,
        at=opset,
        expected=expected,
        tolerance=3e-5 if dtype == np.float32 else 4e-2,
        constants=["fc1_experts_weights", "fc2_experts_weights"],
        **attributes,
    )


@some
@given(
    **DRAWN,
    k=st.integers(1, 3),
    bits=st.sampled_from([2, 4, 8]),
    block=st.sampled_from([0, 16]),
    zero=st.booleans(),
    stored=st.booleans(),
    weighted=st.booleans(),
    other_bits=st.sampled_from([None, None, 4]),
)
def test_qmoe(
    opset: int,
    dtype: Any,
    tokens: tuple[int, ...],
    form: dict[str, Any],
    k: int,
    bits: int,
    block: int,
    zero: bool,
    stored: bool,
    weighted: bool,
    normalized: int,
    bias: bool,
    other_bits: int | None,
    sparse: int,
) -> None:
    assume(sparse or normalized or weighted)
    assume(not (bits == 2 and block and stored))  # onnxruntime rounds tokens to 8 bits then
    plain = sized_for(form, tokens, dtype, bias)
    parts, held = parts_of(plain), {}
    names = [name for name in ("fc1", "fc2", "fc3") if plain[f"{name}_experts_weights"] is not None]
    for number, name in enumerate(names, start=1):
        shape = plain[f"{name}_experts_weights"].shape
        width = other_bits if other_bits and name == "fc2" else bits
        weights, scales, points, numbers = coded(shape, width, block, zero, dtype)
        parts[f"w{number}"] = numbers
        held |= {
            f"{name}_experts_weights": weights,
            f"{name}_scales": scales,
            f"{name}_zero_points": points,
        }
    plain |= held
    if weighted and not sparse:
        plain["router_weights"] = np.abs(normal(*plain["router_probs"].shape, dtype=dtype, seed=9))
    inputs = {name: plain.get(name) for name in QMOE}
    attributes = {
        "k": 2 if sparse else k,
        "use_sparse_mixer": sparse,
        "normalize_routing_weights": normalized,
        "expert_weight_bits": bits,
        **({"block_size": block} if block else {}),
        **({"fc2_expert_weight_bits": other_bits} if other_bits else {}),
        **form,
    }
    expected = None
    if sparse:
        routes = sparse_routes(inputs["router_probs"])
        expected = looped(plain["input"], routes, parts, **attributes)
    elif not has_kernel(form) or (other_bits or bits) != bits:
        routes = quantized_routes(inputs, k, is_normal=bool(normalized))
        expected = looped(plain["input"], routes, parts, **attributes)
    demand_same(
        "QMoE",
        inputs,
        at=opset,
        expected=expected,
        tolerance=3e-5 if dtype == np.float32 else 4e-2,
        constants=[name for name in held if held[name] is not None] if stored else [],
        **attributes,
    )


def quantized_routes(
    inputs: dict[str, Any], k: int, *, is_normal: bool
) -> list[list[tuple[int, float]]]:
    routes = routes_of(inputs["router_probs"], k, is_normal=False)
    given_ = inputs["router_weights"]
    found = []
    for token, route in enumerate(routes):
        places = [expert for expert, _ in route]
        if given_ is None:
            weights = softmax(inputs["router_probs"][token, places].astype(np.float64))
        else:
            weights = given_[token, places].astype(np.float64)
            weights = weights / weights.sum() if is_normal else weights
        found.append(list(zip(places, weights.tolist(), strict=True)))
    return found


def test_a_session_rounds_no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding them to 8 bits would hide a hundredth of what two models differ in."""
    monkeypatch.delenv("ORT_QMOE_CPU_QNBIT_GEMM")
    inputs = quantized(sized((2, 3), I, np.float32, False, False))
    for name, (rows, columns) in {"fc1": (I, H), "fc2": (H, I)}.items():
        codes, scales, _, _ = coded((E, rows, columns), 8, 16, False, np.float32)
        inputs |= {f"{name}_experts_weights": codes, f"{name}_scales": scales}
    constants = [f"{n}_{what}" for n in ("fc1", "fc2") for what in ("experts_weights", "scales")]
    given_ = {"normalize_routing_weights": 1, "expert_weight_bits": 8, "block_size": 16}
    proto = model_of("QMoE", inputs, ("y",), "com.microsoft", constants, given_)
    feeds = {n: v for n, v in inputs.items() if v is not None and n not in constants}
    found = onnxruntime.Session(proto.SerializeToString(), "").run(feeds)["y"]
    expected = ours("QMoE", inputs, **given_)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert "ORT_QMOE_CPU_QNBIT_GEMM" not in os.environ


@pytest.mark.parametrize("op", ["MoE", "QMoE"])
def test_of_equal_experts_the_last_are_chosen(op: str) -> None:
    inputs = sized((2, 3), I, np.float32, True, False)
    inputs["router_probs"] = np.zeros((6, E), np.float32)
    if op == "QMoE":
        inputs = quantized(inputs)
    given_ = {"k": 2, "normalize_routing_weights": 1, "activation_type": "silu"}
    demand_same(op, inputs, **given_)


def test_an_expert_that_is_not_chosen_may_overflow() -> None:
    inputs = sized((2, 3), I, np.float32, False, False)
    chosen = inputs["router_probs"].argmax(axis=-1)
    idle = next(expert for expert in range(E) if expert not in chosen)
    inputs["fc1_experts_weights"][idle] = 1e38
    found = demand_same("MoE", inputs, k=1, activation_type="identity")
    assert "TopK" in {node.op_type for node in found.graph}


@pytest.mark.long
@pytest.mark.parametrize("weight", [-1.0, 1e-9, 0.0])
def test_an_expert_of_no_weight_counts_for_nothing(weight: float) -> None:
    inputs = quantized(sized((2, 3), I, np.float32, True, False))
    inputs["router_weights"] = np.full((6, E), weight, np.float32)
    demand_same("QMoE", inputs, k=2, activation_type="silu")


def test_a_step_gathers_what_it_chooses() -> None:
    inputs = quantized(sized((1, 1), I, np.float32, True, False))
    given_ = {"k": 2, "normalize_routing_weights": 1, "activation_type": "silu"}
    for length, is_gathered in ((1, True), ("tokens", False)):
        rows = {"input": [1, length, H], "router_probs": [length, E]}
        model, outcome = standard("QMoE", inputs, dims=rows, **given_)
        assert not outcome.refused
        kinds = {node.op_type for node in model.graph}
        assert ("ScatterElements" not in kinds) == is_gathered


def test_limits_are_bounds_of_clip_in_pairs() -> None:
    """Releases of onnxruntime spoil float16 beside Min and Max, and take 0 for an absent bound."""
    inputs = sized((2, 3), 2 * I, np.float16, False, False)
    form = {"activation_type": "swiglu", "swiglu_fusion": 1, "swiglu_limit": 7.0}
    for later in (0, 1):
        model, _ = standard("MoE", inputs, at=13, **form, swiglu_limit_after_activation=later)
        kinds = [node.op_type for node in model.graph]
        assert not {"Min", "Max"} & set(kinds)
        bounded = [node for node in model.graph if node.op_type == "Clip"]
        assert len(bounded) == 2
        assert all(len(node.inputs) == 3 and None not in node.inputs for node in bounded)


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "a sparse mixer of one expert": ("MoE", {"use_sparse_mixer": 1}, "`k` of `MoE` is `1`"),
    "another activation": ("MoE", {"activation_type": "tanh"}, "`activation_type` of `MoE` is"),
    "too many experts": ("MoE", {"k": E + 1}, "`k` of `MoE` is 6, expected 1 to 5"),
    "a third product that is absent": (
        "MoE", {"activation_type": "swiglu"}, "`MoE` has no `fc3_experts_weights`"
    ),
    "a fused product of half the rows": (
        "MoE", {"activation_type": "swiglu", "swiglu_fusion": 1}, "expected (5, 32, 24)"
    ),
    "probabilities that add up to less than 1": (
        "QMoE", {}, "`normalize_routing_weights` of `QMoE` is `0`"
    ),
    "floats of 4 bits": ("QMoE", {"quant_type": "fp4"}, "`quant_type` of `QMoE` is `fp4`"),
    "codes of 3 bits": (
        "QMoE",
        {"normalize_routing_weights": 1, "expert_weight_bits": 3},
        "the weights of `QMoE` have 3 bits",
    ),
    "weights packed for a kernel": (
        "QMoE", {"weights_prepacked": 1}, "`weights_prepacked` of `QMoE` is `1`"
    ),
    "half a block": (
        "QMoE",
        {"normalize_routing_weights": 1, "block_size": 24},
        "`block_size` of `QMoE` is 24, which does not divide the 32 columns",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_standard_form_is_refused(name: str) -> None:
    op, attributes, words = REFUSED[name]
    inputs = sized((2, 3), I, np.float32, True, False)
    assert words in refusal(op, quantized(inputs) if op == "QMoE" else inputs, **attributes)


def test_weights_in_the_layout_of_the_first_releases_are_refused() -> None:
    inputs = sized((2, 3), I, np.float32, False, False)
    for name in ("fc1_experts_weights", "fc2_experts_weights"):
        inputs[name] = inputs[name].transpose(0, 2, 1).copy()
    assert "`fc1_experts_weights` of `MoE` has shape" in refusal("MoE", inputs)


@pytest.mark.long
def test_zero_points_of_one_block_are_refused() -> None:
    inputs = quantized(sized((2, 3), I, np.float32, False, False))
    inputs["fc1_scales"] = inputs["fc1_scales"][..., None]
    inputs["fc1_zero_points"] = np.zeros((E, I, 1), np.uint8)
    given_ = {"normalize_routing_weights": 1, "block_size": H}
    assert "has one block" in refusal("QMoE", inputs, **given_)
