"""MatMulNBits against onnxruntime, and against weights that are unpacked bit by bit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnx_kvtool.core.errors import KvtoolError
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


def test_every_accuracy_level_is_the_exact_one() -> None:
    inputs = inputs_of(4)
    expected = ours("MatMulNBits", inputs, **SIZES)["y"]
    for level in range(5):
        assert np.array_equal(
            ours("MatMulNBits", inputs, accuracy_level=level, **SIZES)["y"], expected
        )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"bits": 3}, "`bits` is `3`, expected `2` or `4` or `8`", id="three bits"),
        pytest.param({"block_size": 8}, "`block_size` is 8", id="a block of 8"),
        pytest.param({"block_size": 24}, "`block_size` is 24, expected a power of two", id="of 24"),
        pytest.param({"K": 39}, "`A` has shape .* expected 39 as the last dimension", id="K"),
        pytest.param({"N": 5}, r"`B` has shape .* expected \(5, 3, 8\)", id="N"),
        pytest.param({"N": 0}, "`N` is 0", id="no columns"),
        pytest.param({"weight_prepacked": 1}, "`weight_prepacked` is `1`", id="prepacked weights"),
        pytest.param({"accuracy_level": 5}, "`accuracy_level` is `5`", id="an unknown level"),
        pytest.param(
            {"g_idx": np.zeros(K, np.int32), "zero_points": np.zeros((N, 2), np.uint8)},
            "`g_idx` is given, which is not",
            id="g_idx beside packed zero points",
        ),
        pytest.param({"g_idx": np.full(K, 9, np.int32)}, "`g_idx` has 9", id="g_idx of no block"),
        pytest.param({"bias": np.zeros(5, np.float32)}, "`bias` has shape", id="a short bias"),
        pytest.param({"scales": np.zeros((N, 2), np.float32)}, "`scales` has shape", id="scales"),
        pytest.param(
            {"zero_points": np.zeros((N, BLOCKS), np.uint8)},
            r"`zero_points` has shape \(6, 3\), expected \(6, 2\)",
            id="zero points that are not packed",
        ),
    ],
)
def test_refusals(changes: dict[str, Any], message: str) -> None:
    arrays = {n: v for n, v in changes.items() if isinstance(v, np.ndarray)}
    attributes = SIZES | {n: v for n, v in changes.items() if n not in arrays}
    with pytest.raises(KvtoolError, match=message):
        ours("MatMulNBits", inputs_of(4) | arrays, **attributes)
