"""Fusions for GPUs in their standard form, against what their documentation composes them of."""

from __future__ import annotations

from typing import Any

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
from tests.runtime.kernels.contrib.node import needs_newest, theirs

pytestmark = needs_newest

S, K = 5, 40
some = search(60)
NUMBERS: dict[str, dict[str, float]] = {
    "Relu": {}, "Tanh": {}, "LeakyRelu": {"alpha": 0.25},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.4}, "Selu": {"alpha": 1.5, "gamma": 1.2},
}  # fmt: skip


@some
@given(
    opset=OPSETS,
    alpha=st.sampled_from([1.0, 0.25]),
    left=st.booleans(),
    right=st.booleans(),
    activation=st.sampled_from(sorted(NUMBERS)),
)
def test_fused_mat_mul_activation(
    opset: int, alpha: float, left: bool, right: bool, activation: str
) -> None:
    """What is expected is the activation of FusedMatMul, by onnxruntime."""
    inputs = {
        "A": normal(2, *((7, S) if left else (S, 7))),
        "B": normal(2, *((3, 7) if right else (7, 3))),
    }
    product = {"alpha": alpha, "transA": int(left), "transB": int(right)}
    (y,) = theirs("FusedMatMul", inputs, **product).values()
    expected = theirs(activation, {"y": y}, ("z",), "", **NUMBERS[activation])
    numbers = {f"activation_{name}": value for name, value in NUMBERS[activation].items()}
    demand_same(
        "FusedMatMulActivation",
        inputs,
        ("z",),
        at=opset,
        expected=expected,
        activation=activation,
        **product,
        **numbers,
    )


def packed(
    columns: int, bits: int, block: int, dtype: Any, seed: int
) -> tuple[Array, Array, Array]:
    """Return bytes and scales of a weight, and what they stand for: (columns, K)."""
    rng, blocks, share = np.random.default_rng(seed), -(-K // block), 8 // bits
    held = rng.integers(0, 256, (columns, blocks, block // share)).astype(np.uint8)
    scales = (rng.uniform(0.5, 1, (columns, blocks)) / (2 << bits)).astype(dtype)
    codes = held[..., None] >> (bits * np.arange(share)) & ((1 << bits) - 1)
    codes = codes.reshape(columns, blocks, block).astype(np.float64) - (1 << bits - 1)
    numbers = codes * scales.astype(np.float64)[..., None]
    return held, scales, numbers.reshape(columns, -1)[:, :K]


def wide(x: Array) -> Array:
    return x.astype(np.float64)


class Case:
    """The inputs of a node, and what they are in float64 behind the normalization."""

    def __init__(self, dtype: Any, norm: bool, skip: bool, epsilon: float) -> None:
        self.dtype = dtype
        x, added = normal(2, S, K, dtype=dtype), normal(2, S, K, dtype=dtype, seed=4)
        scale = normal(K, dtype=dtype, seed=5)
        self.inputs: dict[str, Array | None] = {
            "A": x,
            "skip": added if skip else None,
            "norm_scale": scale if norm else None,
        }
        self.total = wide(x) + (wide(added) if skip else 0)
        root = np.sqrt((self.total**2).mean(-1, keepdims=True) + epsilon)
        self.x = self.total / root * wide(scale) if norm else self.total

    def product(self, name: str, columns: int, form: tuple[int, int], bias: bool) -> Array:
        """Add the inputs of a product, and return what it is."""
        held, scales, numbers = packed(columns, *form, self.dtype, len(self.inputs))
        shift = normal(columns, dtype=self.dtype, seed=len(self.inputs))
        self.inputs |= {
            f"{name}_B": held,
            f"{name}_s": scales,
            f"{name}_b": shift if bias else None,
        }
        return np.asarray(self.x @ numbers.T + (wide(shift) if bias else 0))

    @property
    def tolerance(self) -> float:
        return {"float32": 5e-5, "float16": 4e-2}.get(np.dtype(self.dtype).name, 3e-1)


FORMS = st.sampled_from([(4, 32), (4, 16), (8, 32), (2, 64)])


@some
@given(
    opset=OPSETS,
    dtype=FLOATS,
    norm=st.sampled_from(["none", "norm", "skip", "sum"]),
    form=FORMS,
    bias=st.booleans(),
    stored=st.booleans(),
    epsilon=st.sampled_from([1e-5, 1e-2]),
)
def test_mat_mul_n_bits_mlp(
    opset: int, dtype: Any, norm: str, form: Any, bias: bool, stored: bool, epsilon: float
) -> None:
    case = Case(dtype, norm != "none", norm in ("skip", "sum"), epsilon)
    gate, up = (case.product(name, 7, form, bias) for name in ("gate", "up"))
    expected = {"y": (gate / (1 + np.exp(-gate)) * up).astype(dtype)}
    if norm == "sum":
        expected["sum"] = case.total.astype(dtype)
    demand_same(
        "MatMulNBitsMlp",
        case.inputs,
        tuple(expected),
        at=opset_for(opset, dtype),
        constants=["gate_B", "up_B"] if stored else [],
        expected=expected,
        tolerance=2 * case.tolerance,
        activation="silu",
        K=K,
        N=7,
        bits=form[0],
        block_size=form[1],
        epsilon=epsilon,
    )


@some
@given(
    opset=OPSETS,
    dtype=FLOATS,
    norm=st.sampled_from(["norm", "skip", "sum"]),
    form=FORMS,
    bias=st.booleans(),
    stored=st.booleans(),
)
def test_mat_mul_n_bits_qkv(
    opset: int, dtype: Any, norm: str, form: Any, bias: bool, stored: bool
) -> None:
    case = Case(dtype, True, norm != "norm", 1e-6)
    widths = {"q": 9, "k": 3, "v": 3}
    expected = {
        name: case.product(name, width, form, bias).astype(dtype) for name, width in widths.items()
    }
    if norm == "sum":
        expected["sum"] = case.total.astype(dtype)
    demand_same(
        "MatMulNBitsQkv",
        case.inputs,
        tuple(expected),
        at=opset_for(opset, dtype),
        constants=["q_B", "k_B", "v_B"] if stored else [],
        expected=expected,
        tolerance=case.tolerance,
        K=K,
        Nq=9,
        Nkv=3,
        bits=form[0],
        block_size=form[1],
    )


def mlp(skip: bool) -> dict[str, Any]:
    case = Case(np.float32, False, skip, 1e-5)
    for name in ("gate", "up"):
        case.product(name, 7, (4, 32), False)
    return case.inputs


REFUSED: dict[str, tuple[bool, tuple[str, ...], dict[str, Any], str]] = {
    "another activation": (False, ("y",), {"activation": "gelu"}, "`activation` of `MatMul"),
    "a residual that is not normalized": (True, ("y",), {}, "has `skip` without `norm_scale`"),
    "a sum of nothing": (False, ("y", "sum"), {}, "gives a sum without `skip`"),
    "codes of 3 bits": (False, ("y",), {"bits": 3}, "`bits` of `MatMulNBitsMlp` is `3`"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_standard_form_is_refused(name: str) -> None:
    skip, outputs, given_, words = REFUSED[name]
    sizes = {"activation": "silu", "K": K, "N": 7, "block_size": 32} | given_
    assert words in refusal("MatMulNBitsMlp", mlp(skip), outputs, **sizes)


def test_an_activation_along_an_axis_is_refused() -> None:
    inputs = {"A": normal(S, 7), "B": normal(7, 3)}
    given_ = {"activation": "Softmax", "activation_axis": 1}
    assert "`activation_axis`" in refusal("FusedMatMulActivation", inputs, **given_)
