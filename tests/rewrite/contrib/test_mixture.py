"""Mixtures of experts in their standard form, against onnxruntime, and a loop over tokens."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from onnx_kvtool.ops.contrib_schema import CONTRIB_SCHEMAS
from onnx_kvtool.runtime import onnxruntime
from tests.grids import search
from tests.rewrite.contrib.single import (
    OPSETS,
    Array,
    demand_same,
    model_of,
    normal,
    refusal,
    standard,
)
from tests.runtime.kernels.contrib.node import needs_onnxruntime, ours

pytestmark = needs_onnxruntime

E, H, I = 5, 32, 48  # noqa: E741
GATED = ("swiglu", "geglu")
QMOE = [formal.name for formal in CONTRIB_SCHEMAS["com.microsoft", "QMoE"].inputs[:15]]
some = search(40)


@pytest.fixture(autouse=True)
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep onnxruntime from rounding tokens to 8 bits before a product with codes of 8."""
    monkeypatch.setenv("ORT_QMOE_CPU_QNBIT_GEMM", "fp32")


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max())
    return np.asarray(powers / powers.sum())


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def tanh_gelu(x: Array) -> Array:
    return np.asarray(x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


ONE = {
    "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
    "gelu": tanh_gelu,
    "silu": lambda x: x * sigmoid(x),
}


def looped(
    x: Array, routes: list[list[tuple[int, float]]], fc: dict[str, Array], **given_: Any
) -> dict[str, Array]:
    """Return what the documentation says, token by token and expert by expert, in float64.

    Args:
        x: (..., H).
        routes: For each token its experts and their weights.
        fc: The weights `w1` (E, rows, H), `w2`, and perhaps `w3`, `b1`, `b2` and `b3`.
        given_: Attributes of the node.
    """
    kind, fusion = given_["activation_type"], given_.get("swiglu_fusion", 0)
    limit = given_.get("swiglu_limit", np.inf)
    tokens = x.astype(np.float64).reshape(-1, x.shape[-1])
    total = np.zeros_like(tokens)
    for token, route in enumerate(routes):
        for expert, weight in route:

            def product(n: int, value: Array, expert: int = expert) -> Array:
                found = fc[f"w{n}"][expert].astype(np.float64) @ value
                return np.asarray(found + (fc[f"b{n}"][expert] if f"b{n}" in fc else 0))

            first = product(1, tokens[token])
            if kind in GATED:
                gate, linear = {
                    0: lambda first=first, token=token: (first, product(3, tokens[token])),
                    1: lambda first=first: (first[::2], first[1::2]),
                    2: lambda first=first: np.split(first, 2),
                }[fusion]()
                if kind == "geglu":
                    inner = tanh_gelu(gate) * linear
                else:
                    linear = np.clip(linear, -limit, limit)
                    alpha = given_.get("activation_alpha", 1.0)
                    if given_.get("swiglu_limit_after_activation", 0):
                        swish = np.minimum(gate * sigmoid(alpha * gate), limit)
                    else:
                        gate = np.minimum(gate, limit)
                        swish = gate * sigmoid(alpha * gate)
                    inner = swish * (linear + given_.get("activation_beta", 0.0))
            else:
                inner = ONE[kind](first)
            total[token] += weight * product(2, inner)
    return {"y": total.reshape(x.shape).astype(x.dtype)}


def routes_of(chances: Array, k: int, *, is_normal: bool) -> list[list[tuple[int, float]]]:
    """Return the k best experts of each row, of equal ones the last, and their weights."""
    routes = []
    for row in chances.astype(np.float64):
        best = sorted(range(len(row)), key=lambda e: (row[e], e), reverse=True)[:k]
        whole = sum(row[best]) if is_normal else 1.0
        routes.append([(expert, row[expert] / whole) for expert in best])
    return routes


def sparse_routes(logits: Array) -> list[list[tuple[int, float]]]:
    """Return the two experts of the sparse mixer, and their weights, as Phi-3.5-MoE has them."""
    routes = []
    for row in logits.astype(np.float64):
        scores, route = row.copy(), []
        for _ in range(2):
            place, top = int(scores.argmax()), scores.max()
            is_near = (top - row) / np.maximum(np.abs(row), top) <= 0.02
            chances = softmax(np.where(is_near, scores, -np.inf))
            route.append((place, float(chances[place])))
            scores[place] = -np.inf
        routes.append(route)
    return routes


def sized(
    tokens: tuple[int, ...], rows: int, dtype: Any, bias: bool, third: bool
) -> dict[str, Any]:
    """Return the inputs of a MoE, by the names of the schema."""
    count = int(np.prod(tokens))
    inputs: dict[str, Any] = {
        "input": normal(*tokens, H, dtype=dtype),
        "router_probs": normal(count, E, dtype=dtype, seed=5),
        "fc1_experts_weights": (normal(E, rows, H) / 4).astype(dtype),
        "fc1_experts_bias": normal(E, rows, dtype=dtype) if bias else None,
        "fc2_experts_weights": (normal(E, H, I) / 4).astype(dtype),
        "fc2_experts_bias": normal(E, H, dtype=dtype) if bias else None,
        "fc3_experts_weights": (normal(E, I, H, seed=6) / 4).astype(dtype) if third else None,
        "fc3_experts_bias": normal(E, I, dtype=dtype, seed=6) if bias and third else None,
    }
    return inputs


def parts_of(inputs: dict[str, Any]) -> dict[str, Array]:
    names = {f"w{n}": f"fc{n}_experts_weights" for n in (1, 2, 3)}
    names |= {f"b{n}": f"fc{n}_experts_bias" for n in (1, 2, 3)}
    return {short: inputs[name] for short, name in names.items() if inputs.get(name) is not None}


TOKENS = st.sampled_from([(6,), (2, 3), (1, 1), (1,), (1, 2), (2, 1)])
SWIGLU = st.fixed_dictionaries(
    {
        "activation_type": st.just("swiglu"),
        "swiglu_fusion": st.sampled_from([0, 1, 1, 2]),
    },
    optional={
        "activation_alpha": st.just(1.702),
        "activation_beta": st.just(1.0),
        "swiglu_limit": st.sampled_from([0.75, 7.0]),
        "swiglu_limit_after_activation": st.sampled_from([0, 1]),
    },
)
GEGLU = st.fixed_dictionaries(
    {"activation_type": st.just("geglu"), "swiglu_fusion": st.sampled_from([1, 2])}
)
PLAIN = st.fixed_dictionaries({"activation_type": st.sampled_from(sorted(ONE))})
FORMS = st.one_of(SWIGLU, GEGLU, PLAIN)
DRAWN: dict[str, st.SearchStrategy[Any]] = {
    "opset": OPSETS,
    "dtype": st.sampled_from([np.float32, np.float16]),
    "tokens": TOKENS,
    "form": FORMS,
    "normalized": st.sampled_from([0, 1]),
    "sparse": st.sampled_from([0, 0, 1]),
    "bias": st.booleans(),
}
"""What nodes of both kinds are drawn from."""


def has_kernel(form: dict[str, Any]) -> bool:
    """Return whether onnxruntime 1.32 has the form on a CPU."""
    is_other = form["activation_type"] in ("geglu", "relu2")
    is_apart = form["activation_type"] == "swiglu" and form["swiglu_fusion"] != 1
    return not (is_other or is_apart or form.get("swiglu_limit_after_activation"))


def sized_for(
    form: dict[str, Any], tokens: tuple[int, ...], dtype: Any, bias: bool
) -> dict[str, Any]:
    """Return the inputs of a MoE whose experts have the products that a form has."""
    is_gated, fusion = form["activation_type"] in GATED, form.get("swiglu_fusion", 0)
    rows = 2 * I if is_gated and fusion else I
    return sized(tokens, rows, dtype, bias, is_gated and not fusion)


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


def packed(codes: Array, bits: int) -> Array:
    """Return codes packed along the last axis, the first ones in the low bits."""
    share = 8 // bits
    pads = [(0, 0)] * (codes.ndim - 1) + [(0, -codes.shape[-1] % share)]
    whole = np.pad(codes, pads).astype(np.uint32)
    shifted = sum(whole[..., i::share] << (bits * i) for i in range(share))
    return np.asarray(shifted).astype(np.uint8)


def coded(
    shape: tuple[int, int, int], bits: int, block: int, zero: bool, dtype: Any
) -> tuple[Array, Array, Array | None, Array]:
    """Return packed codes, scales and zero points, and the numbers that they stand for."""
    rng = np.random.default_rng([bits, block, zero, *shape])
    codes = rng.integers(0, 1 << bits, shape)
    front = (*shape[:2], shape[2] // block) if block else shape[:2]
    scales = (rng.uniform(0.5, 1, front) / (8 << bits)).astype(dtype)
    points = rng.integers(0, 1 << bits, front) if zero else np.full(front, 1 << (bits - 1))
    spread = [
        np.repeat(part, block, 2) if block else part[..., None]
        for part in (points, scales.astype(np.float64))
    ]
    numbers = (codes - spread[0]) * spread[1]
    return packed(codes, bits), scales, packed(points, bits) if zero else None, numbers


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


def quantized(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return inputs of a QMoE of 4 bits with a scale for each row."""
    given_ = {name: value for name, value in inputs.items() if value is not None}
    found: dict[str, Any] = dict.fromkeys(QMOE) | given_
    for name in ("fc1", "fc2"):
        shape = inputs[f"{name}_experts_weights"].shape
        found[f"{name}_experts_weights"], found[f"{name}_scales"], _, _ = coded(
            shape, 4, 0, False, np.float32
        )
    return found


def test_an_expert_that_is_not_chosen_may_overflow() -> None:
    inputs = sized((2, 3), I, np.float32, False, False)
    chosen = inputs["router_probs"].argmax(axis=-1)
    idle = next(expert for expert in range(E) if expert not in chosen)
    inputs["fc1_experts_weights"][idle] = 1e38
    found = demand_same("MoE", inputs, k=1, activation_type="identity")
    assert "TopK" in {node.op_type for node in found.graph}


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


def test_zero_points_of_one_block_are_refused() -> None:
    inputs = quantized(sized((2, 3), I, np.float32, False, False))
    inputs["fc1_scales"] = inputs["fc1_scales"][..., None]
    inputs["fc1_zero_points"] = np.zeros((E, I, 1), np.uint8)
    given_ = {"normalize_routing_weights": 1, "block_size": H}
    assert "another layout" in refusal("QMoE", inputs, **given_)
