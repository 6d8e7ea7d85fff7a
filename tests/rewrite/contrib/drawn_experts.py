"""Nodes of experts that are drawn, and what they compute, token by token and in float64."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from hypothesis import strategies as st

from onnx_kvtool.ops.contrib import published
from tests.rewrite.contrib.single import OPSETS, Array, normal

__all__ = [
    "DRAWN",
    "QMOE",
    "E",
    "H",
    "I",
    "coded",
    "has_kernel",
    "looped",
    "parts_of",
    "quantized",
    "routes_of",
    "sized",
    "sized_for",
    "softmax",
    "sparse_routes",
]

E, H, I = 5, 32, 48  # noqa: E741
GATED = ("swiglu", "geglu")
QMOE = [re.split(r"\W", word)[0] for word in published()["com.microsoft", "QMoE"]["inputs"][:15]]


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
