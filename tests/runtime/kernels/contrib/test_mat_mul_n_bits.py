"""MatMulNBits against onnxruntime, and against weights that are unpacked bit by bit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.grids import each
from tests.runtime.kernels.contrib.node import needs_onnxruntime, ours, theirs

K, N, BLOCK = 40, 6, 16
BLOCKS = 3
SIZES = {"K": K, "N": N, "block_size": BLOCK}

ZERO_POINTS = ["none", "packed", "packed and flat", "numbers"]


def inputs_of(
    bits: int, zero_points: str = "none", bias: bool = False, dtype: Any = np.float32
) -> dict[str, np.ndarray[Any, Any] | None]:
    rng = np.random.default_rng(bits)
    zeros: np.ndarray[Any, Any] | None = None
    if zero_points == "numbers":
        zeros = rng.standard_normal((N, BLOCKS)).astype(dtype)
    elif zero_points != "none":
        zeros = rng.integers(0, 256, (N, -(-BLOCKS * bits // 8)), np.uint8)
        zeros = zeros.reshape(-1) if "flat" in zero_points else zeros
    return {
        "A": rng.standard_normal((2, 3, K)).astype(dtype),
        "B": rng.integers(0, 256, (N, BLOCKS, BLOCK * bits // 8), np.uint8),
        "scales": rng.standard_normal((N, BLOCKS)).astype(dtype),
        "zero_points": zeros,
        "g_idx": None,
        "bias": rng.standard_normal(N).astype(dtype) if bias else None,
    }


def bits_of(packed: np.ndarray[Any, Any], bits: int, index: int) -> int:
    """Return element `index` of bytes that hold elements of `bits` bits, the low ones first."""
    return int(packed[index * bits // 8]) >> (index * bits % 8) & (2**bits - 1)


def product(inputs: dict[str, np.ndarray[Any, Any] | None], bits: int) -> np.ndarray[Any, Any]:
    """Return the result in float64, element by element of the weights."""
    a, b, scales, zeros = (inputs[name] for name in ("A", "B", "scales", "zero_points"))
    assert a is not None and b is not None and scales is not None
    weights = np.zeros((K, N))
    for k, n in np.ndindex(K, N):
        block, inside = divmod(k, BLOCK)
        zero: float = 2 ** (bits - 1)
        if zeros is not None and zeros.dtype == np.uint8:
            zero = bits_of(zeros.reshape(N, -1)[n], bits, block)
        elif zeros is not None:
            zero = float(zeros[n, block])
        scale = float(scales[n, block])
        weights[k, n] = (bits_of(b[n, block], bits, inside) - zero) * scale
    bias = inputs["bias"]
    return a.astype(np.float64) @ weights + (0 if bias is None else bias.astype(np.float64))


@pytest.mark.long
@needs_onnxruntime
@each("bias", [False, True])
@each(
    ("bits", "zero_points"),
    # onnxruntime has no zero points of 8 bits that are numbers.
    [(bits, z) for bits in (2, 4, 8) for z in ZERO_POINTS if (bits, z) != (8, "numbers")],
)
def test_against_onnxruntime(bits: int, zero_points: str, bias: bool) -> None:
    inputs = inputs_of(bits, zero_points, bias)
    found = ours("MatMulNBits", inputs, bits=bits, **SIZES)["y"]
    expected = theirs("MatMulNBits", inputs, bits=bits, **SIZES)["y"]
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * 4**bits)


@pytest.mark.long
@each(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float16, 1e-3), (ml_dtypes.bfloat16, 8e-3)])
@each("zero_points", ZERO_POINTS)
@each("bits", [2, 4, 8])
def test_against_weights_unpacked_one_by_one(
    bits: int, zero_points: str, dtype: Any, tolerance: float
) -> None:
    inputs = inputs_of(bits, zero_points, True, dtype)
    found = ours("MatMulNBits", inputs, bits=bits, **SIZES)["y"]
    assert found.dtype == dtype
    expected = product(inputs, bits)
    largest = np.abs(expected).max()
    np.testing.assert_allclose(
        found.astype(np.float64), expected, rtol=tolerance, atol=tolerance * largest
    )


def test_scales_may_be_flat() -> None:
    inputs = inputs_of(4)
    scales = inputs["scales"]
    assert scales is not None
    flat = inputs | {"scales": scales.reshape(-1)}
    expected = ours("MatMulNBits", inputs, **SIZES)["y"]
    assert np.array_equal(ours("MatMulNBits", flat, **SIZES)["y"], expected)


@pytest.mark.long
def test_every_accuracy_level_is_the_exact_one() -> None:
    inputs = inputs_of(4)
    expected = ours("MatMulNBits", inputs, **SIZES)["y"]
    for level in range(5):
        assert np.array_equal(
            ours("MatMulNBits", inputs, accuracy_level=level, **SIZES)["y"], expected
        )
