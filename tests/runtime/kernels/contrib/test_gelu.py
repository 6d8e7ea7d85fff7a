"""The forms of Gelu that onnxruntime has."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.grids import each
from tests.runtime.kernels.contrib.node import needs_onnxruntime, ours, theirs

X = np.linspace(-8, 8, 2 * 5 * 7).reshape(2, 5, 7)
BIAS = np.linspace(-2, 2, 7)

CASES = [
    pytest.param("Gelu", False, {}, id="Gelu"),
    pytest.param("BiasGelu", True, {}, id="BiasGelu"),
    pytest.param("FastGelu", False, {}, id="FastGelu"),
    pytest.param("FastGelu", True, {}, id="FastGelu with a bias"),
    pytest.param("QuickGelu", False, {}, id="QuickGelu"),
    pytest.param("QuickGelu", False, {"alpha": 1.0}, id="QuickGelu that is a SiLU"),
    pytest.param("QuickGelu", False, {"alpha": -0.5}, id="QuickGelu of a negative alpha"),
]


def inputs_of(op_type: str, bias: bool, dtype: Any) -> dict[str, np.ndarray[Any, Any]]:
    first, second = ("A", "B") if op_type == "BiasGelu" else ("X", "bias")
    inputs = {first: X.astype(dtype)}
    return inputs | {second: BIAS.astype(dtype)} if bias else inputs


def formula(op_type: str, x: np.ndarray[Any, Any], alpha: float) -> np.ndarray[Any, Any]:
    if op_type == "QuickGelu":
        return x / (1 + np.exp(-alpha * x))
    if op_type == "FastGelu":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


@needs_onnxruntime
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-6), (np.float16, 1e-2)])
@pytest.mark.parametrize(("op_type", "bias", "attributes"), CASES)
def test_against_onnxruntime(
    op_type: str, bias: bool, attributes: dict[str, float], dtype: Any, tolerance: float
) -> None:
    inputs = inputs_of(op_type, bias, dtype)
    found, expected = ours(op_type, inputs, **attributes), theirs(op_type, inputs, **attributes)
    assert found["y"].dtype == expected["y"].dtype
    np.testing.assert_allclose(found["y"], expected["y"], rtol=tolerance, atol=tolerance)


@pytest.mark.long
@each(
    ("dtype", "tolerance"),
    [(np.float64, 1e-9), (np.float32, 1e-6), (np.float16, 5e-4), (ml_dtypes.bfloat16, 4e-3)],
)
@each(("op_type", "bias", "attributes"), CASES)
def test_against_the_formula(
    op_type: str, bias: bool, attributes: dict[str, float], dtype: Any, tolerance: float
) -> None:
    """Rounded once: within half a unit of the type, but for what float32 adds."""
    inputs = inputs_of(op_type, bias, dtype)
    alpha = float(np.float32(attributes.get("alpha", 1.702)))
    total = sum(value.astype(np.float64) for value in inputs.values())
    found = ours(op_type, inputs, **attributes)["y"]
    assert found.dtype == dtype
    expected = formula(op_type, np.asarray(total), alpha)
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=tolerance, atol=tolerance)
