"""FusedMatMul against onnxruntime and numpy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.grids import each
from tests.runtime.kernels.contrib.node import needs_onnxruntime, ours, theirs

B, H, M, K, N = 2, 3, 5, 4, 7

SHAPES = [
    pytest.param((M, K), (K, N), {}, id="two matrices"),
    pytest.param((M, K), (N, K), {"transB": 1}, id="B transposed"),
    pytest.param((K, M), (K, N), {"transA": 1}, id="A transposed"),
    pytest.param((K, M), (N, K), {"transA": 1, "transB": 1}, id="both transposed"),
    pytest.param((B, H, M, K), (B, H, N, K), {"transB": 1}, id="stacks"),
    pytest.param((B, H, M, K), (1, K, N), {}, id="a stack that broadcasts"),
    pytest.param((B, K, M), (K, N), {"transA": 1}, id="a stack and a matrix"),
    pytest.param((K,), (B, K, N), {"transA": 1}, id="a vector, of which nothing is transposed"),
    pytest.param((B, M, K), (K,), {"transB": 1}, id="a vector behind"),
    pytest.param((K,), (K,), {}, id="two vectors"),
    pytest.param((M, B, K), (B, K, N), {"transBatchA": 1}, id="the batch of A"),
    pytest.param((B, M, K), (K, B, N), {"transBatchB": 1}, id="the batch of B"),
    pytest.param((K, B, M), (B, K, N), {"transBatchA": 1, "transA": 1}, id="A in both ways"),
    pytest.param((B, M, K), (N, B, K), {"transBatchB": 1, "transB": 1}, id="B in both ways"),
    pytest.param((M, B, H, K), (B, H, K, N), {"transBatchA": 1}, id="a batch of two axes"),
    pytest.param((M, 0), (0, N), {}, id="nothing to add up"),
]


def normal(shape: tuple[int, ...], dtype: Any, seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.long
@needs_onnxruntime
@each("dtype", [np.float32, np.float64])
@each("alpha", [1.0, -0.25])
@each(("a", "b", "attributes"), SHAPES)
def test_against_onnxruntime(
    a: tuple[int, ...], b: tuple[int, ...], attributes: dict[str, int], alpha: float, dtype: Any
) -> None:
    inputs = {"A": normal(a, dtype, 1), "B": normal(b, dtype, 2)}
    found = ours("FusedMatMul", inputs, alpha=alpha, **attributes)["y"]
    expected = theirs("FusedMatMul", inputs, alpha=alpha, **attributes)["y"]
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2), (np.float32, 1e-6)]
)
def test_the_factor_is_applied_before_the_only_rounding(dtype: Any, tolerance: float) -> None:
    inputs = {"A": normal((B, M, K), dtype, 1), "B": normal((B, N, K), dtype, 2)}
    found = ours("FusedMatMul", inputs, alpha=0.125, transB=1)["y"]
    a, b = (value.astype(np.float64) for value in inputs.values())
    assert found.dtype == dtype
    np.testing.assert_allclose(
        found.astype(np.float64), 0.125 * (a @ b.swapaxes(1, 2)), rtol=tolerance, atol=tolerance
    )
