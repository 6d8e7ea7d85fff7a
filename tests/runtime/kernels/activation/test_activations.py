"""Activations against their formulas in float64, in every float type, and at their edges."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.activation import (
    celu_12,
    elu_1,
    gelu_20,
    hard_sigmoid_1,
    hard_swish_14,
    leaky_relu_1,
    mish_18,
    p_relu_1,
    p_relu_7,
    relu_1,
    selu_1,
    shrink_9,
    sigmoid_1,
    softplus_1,
    softsign_1,
    swi_glu_28,
    swish_24,
    thresholded_relu_10,
)
from tests.grids import each


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _softplus(x: float) -> float:
    return math.log1p(math.exp(x))


_A, _B = float(np.float32(0.3)), float(np.float32(1.7))

_FORMULAS: dict[str, tuple[Callable[..., Any], dict[str, Any], Callable[[float], float]]] = {
    "Relu": (relu_1, {}, lambda x: max(0.0, x)),
    "LeakyRelu": (leaky_relu_1, {"alpha": _A}, lambda x: _A * x if x < 0 else x),
    "ThresholdedRelu": (thresholded_relu_10, {"alpha": _A}, lambda x: x if x > _A else 0),
    "Elu": (elu_1, {"alpha": _A}, lambda x: _A * math.expm1(x) if x < 0 else x),
    "Selu": (
        selu_1,
        {"alpha": _A, "gamma": _B},
        lambda x: _B * (_A * math.expm1(x) if x <= 0 else x),
    ),
    "Celu": (
        celu_12,
        {"alpha": _B},
        lambda x: max(0, x) + min(0, _B * math.expm1(x / _B)),
    ),
    "HardSigmoid": (
        hard_sigmoid_1,
        {"alpha": _A, "beta": _B / 4},
        lambda x: max(0, min(1, _A * x + _B / 4)),
    ),
    "HardSwish": (hard_swish_14, {}, lambda x: x * max(0, min(1, x / 6 + 0.5))),
    "Shrink": (
        shrink_9,
        {"bias": _A, "lambd": _B},
        lambda x: x + _A if x < -_B else x - _A if x > _B else 0,
    ),
    "Sigmoid": (sigmoid_1, {}, _sigmoid),
    "Softplus": (softplus_1, {}, _softplus),
    "Softsign": (softsign_1, {}, lambda x: x / (1 + abs(x))),
    "Mish": (mish_18, {}, lambda x: x * math.tanh(_softplus(x))),
    "Gelu": (
        gelu_20,
        {"approximate": "none"},
        lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2)),
    ),
    "Gelu by tanh": (
        gelu_20,
        {"approximate": "tanh"},
        lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    ),
    "Swish": (swish_24, {"alpha": _B}, lambda x: x * _sigmoid(_B * x)),
}
_TYPES = {np.float64: 1e-14, np.float32: 1e-6, np.float16: 1e-3, ml_dtypes.bfloat16: 8e-3}


@each("dtype", list(_TYPES))
@each(("kernel", "attributes", "formula"), _FORMULAS)
def test_the_formula_holds(
    kernel: Any, attributes: dict[str, Any], formula: Any, dtype: Any
) -> None:
    grid = np.concatenate([np.linspace(-9, 9, 145), [_A, -_A, _B, -_B, 1e-3, -1e-3]])
    x = grid.astype(dtype).reshape(1, -1)
    before = x.copy()
    y = kernel(x, **attributes)
    assert y.dtype == dtype and y.shape == x.shape
    assert x.tobytes() == before.tobytes()
    expected = [[formula(v) for v in x[0].astype(np.float64).tolist()]]
    tolerance = _TYPES[dtype]
    np.testing.assert_allclose(
        y.astype(np.float64), expected, rtol=tolerance, atol=min(tolerance, 1e-3)
    )


@each(("kernel", "attributes", "formula"), _FORMULAS)
def test_a_value_without_dimensions_keeps_its_type(
    kernel: Any, attributes: dict[str, Any], formula: Any
) -> None:
    for dtype in _TYPES:
        y = kernel(np.asarray(0.75, dtype), **attributes)
        assert y.shape == () and y.dtype == dtype


_INF = math.inf
_EDGES: dict[str, list[float]] = {
    "Relu": [0, _INF],
    "LeakyRelu": [-_INF, _INF],
    "ThresholdedRelu": [0, _INF],
    "Elu": [-_A, _INF],
    "Selu": [-_A * _B, _INF],
    "Celu": [-_B, _INF],
    "HardSigmoid": [0, 1],
    "HardSwish": [math.nan, _INF],
    "Shrink": [-_INF, _INF],
    "Sigmoid": [0, 1],
    "Softplus": [0, _INF],
    "Softsign": [math.nan, math.nan],
    "Mish": [math.nan, _INF],
    "Gelu": [math.nan, _INF],
    "Gelu by tanh": [math.nan, _INF],
    "Swish": [math.nan, _INF],
}


@each("name", [*_FORMULAS])
def test_infinity_nan_and_great_numbers_follow_the_formula_without_a_warning(name: str) -> None:
    kernel, attributes, _ = _FORMULAS[name]
    y = kernel(np.array([-_INF, _INF], np.float32), **attributes)
    np.testing.assert_allclose(y, np.array(_EDGES[name], np.float32), rtol=1e-6)
    y = kernel(np.array([math.nan, -1e38, 1e38], np.float32), **attributes)
    becomes_zero = name in {"ThresholdedRelu", "Shrink"}  # which say: otherwise 0
    assert y[0] == 0 if becomes_zero else np.isnan(y[0])
    assert not np.isnan(y[1:]).any()


def test_sixteen_bits_are_rounded_once() -> None:
    """The result is the rounding of that in float32, not of roundings on the way."""
    x = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)
    y = swish_24(x, alpha=1.0)
    wide = swish_24(x.astype(np.float32), alpha=1.0)
    assert np.array_equal(y, wide.astype(ml_dtypes.bfloat16), equal_nan=True)


@each("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_relu_takes_integers(dtype: Any) -> None:
    least = np.iinfo(dtype).min
    y = relu_1(np.array([least, -1, 0, 5], dtype))
    assert y.dtype == dtype and y.tolist() == [0, 0, 0, 5]


def test_p_relu_broadcasts_a_slope_and_takes_integers() -> None:
    x = np.arange(-15, 15, dtype=np.int64).reshape(2, 3, 5)
    slope = np.array([[2], [3], [2**62]])
    y = p_relu_7(x, slope)
    exact = x.astype(object)
    exact = np.where(x < 0, exact * slope.astype(object), exact)
    assert y.tolist() == ((exact + 2**63) % 2**64 - 2**63).tolist()
    y = p_relu_7(np.array([7], np.uint32), np.array([9], np.uint32))
    assert y.dtype == np.uint32 and y.tolist() == [7]


def test_p_relu_1_has_one_slope_or_one_for_each_channel() -> None:
    x = -np.ones((2, 3, 5), np.float32)
    y = p_relu_1(x, np.array([1, 2, 3], np.float32))
    assert y[0].tolist() == [[-1.0] * 5, [-2.0] * 5, [-3.0] * 5]
    y = p_relu_1(x, np.array([4], np.float32))
    assert (y == -4).all()
    with pytest.raises(KernelError, match=r"`slope` has shape \(5,\), expected one element or"):
        p_relu_1(x, np.ones(5, np.float32))


@pytest.mark.parametrize(
    ("dtype", "bias", "lambd", "given", "expected"),
    [
        (np.int64, 0.0, 0.5, [-(2**62) - 1, 0, 2**62 + 1], [-(2**62) - 1, 0, 2**62 + 1]),
        (np.int32, 2.0, 1.5, [-3, -2, -1, 0, 1, 2, 3], [-1, 0, 0, 0, 0, 0, 1]),
        (np.int32, 0.5, 1.0, [-3, -1, 1, 3], [-2, 0, 0, 2]),
        (np.uint8, 3.0, 1.0, [0, 1, 2, 9], [0, 0, 255, 6]),
    ],
    ids=["exact above 2^53", "an integer bias", "a truncated sum", "wrapping around"],
)
def test_shrink_takes_integers(
    dtype: Any, bias: float, lambd: float, given: list[int], expected: list[int]
) -> None:
    y = shrink_9(np.array(given, dtype), bias=bias, lambd=lambd)
    assert y.dtype == dtype and y.tolist() == expected


def test_swi_glu_is_swish_times_the_other() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((2, 3, 5)).astype(np.float32)
    y = swi_glu_28(a, b, alpha=1.5)
    np.testing.assert_allclose(y, swish_24(a, alpha=1.5) * b, rtol=1e-6)
    with pytest.raises(KernelError, match=r"`B` has shape \(1, 5\), expected \(3, 5\) as `A`"):
        swi_glu_28(a, b[:1], alpha=1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: celu_12(x, alpha=0.0), "`alpha` is 0, and x is divided by it"),
        (
            lambda x: gelu_20(x, approximate="erf"),
            "`approximate` is `erf`, expected `none` or `tanh`",
        ),
        (
            lambda x: p_relu_7(x, np.ones((2, 1, 1), np.float32)),
            "`slope` has shape (2, 1, 1), which does not broadcast to (3, 5) of `X`",
        ),
        (
            lambda x: shrink_9(x.astype(np.int32), bias=math.inf, lambd=0.5),
            "`bias` is inf, expected a finite number for integers",
        ),
    ],
    ids=["Celu", "Gelu", "PRelu", "Shrink"],
)
def test_refused(call: Any, message: str) -> None:
    with pytest.raises(KernelError) as caught:
        call(np.ones((3, 5), np.float32))
    assert caught.value.message == message
