"""DynamicQuantizeMatMul and MatMulIntegerToFloat, bit for bit as onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.grids import each
from tests.runtime.kernels.contrib.node import needs_onnxruntime, ours, theirs

B, M, K, N = 2, 5, 7, 6

Arrays = dict[str, "np.ndarray[Any, Any] | None"]

SCALES = [pytest.param((), id="a scalar"), pytest.param((1,), id="one"), pytest.param((N,), id="N")]
ZEROS = [pytest.param(None, id="no zero point"), *SCALES]


def codes(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng([seed, *shape])
    info = np.iinfo(dtype)
    return np.asarray(rng.integers(info.min, info.max + 1, shape)).astype(dtype)


def reals(shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng([seed, *shape])
    return np.asarray(rng.standard_normal(shape)).astype(np.float32)


def demand_same_bits(op_type: str, inputs: Arrays) -> None:
    found, expected = ours(op_type, inputs)["y"], theirs(op_type, inputs)["y"]
    assert found.dtype == expected.dtype
    assert found.tobytes() == expected.tobytes()


@pytest.mark.long
@needs_onnxruntime
@each("bias", [True, False])
@each("zero", ZEROS)
@each("scale", SCALES)
@each("dtype", [np.int8, np.uint8])
def test_dynamic_quantize_mat_mul(
    dtype: Any, scale: tuple[int, ...], zero: tuple[int, ...] | None, bias: bool
) -> None:
    inputs: Arrays = {
        "A": reals((B, M, K)),
        "B": codes((K, N), dtype),
        "b_scale": np.asarray(np.abs(reals(scale)) / 50, np.float32),
        "b_zero_point": None if zero is None else codes(zero, dtype),
        "bias": reals((N,)) if bias else None,
    }
    demand_same_bits("DynamicQuantizeMatMul", inputs)


@pytest.mark.long
@needs_onnxruntime
@each("zero", ZEROS)
@each("scale", SCALES)
@each(("a", "b"), [(np.uint8, np.int8), (np.uint8, np.uint8), (np.int8, np.int8)])
def test_mat_mul_integer_to_float(
    a: Any, b: Any, scale: tuple[int, ...], zero: tuple[int, ...] | None
) -> None:
    inputs: Arrays = {
        "A": codes((B, M, K), a),
        "B": codes((K, N), b),
        "a_scale": np.asarray(0.125, np.float32),
        "b_scale": np.asarray(np.abs(reals(scale)) / 50, np.float32),
        "a_zero_point": None if zero is None else np.asarray(3, a),
        "b_zero_point": None if zero is None else codes(zero, b),
        "bias": reals((N,)),
    }
    demand_same_bits("MatMulIntegerToFloat", inputs)
