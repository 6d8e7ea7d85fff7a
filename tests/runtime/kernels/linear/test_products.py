"""MatMul, Gemm and their quantized forms."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.linear import (
    gemm_7,
    mat_mul_1,
    mat_mul_integer_10,
    q_linear_mat_mul_10,
)
from tests.grids import each, search
from tests.runtime.kernels.arrays import same

BF16, E4M3 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
F32, F16, I8, I32, U8 = np.float32, np.float16, np.int8, np.int32, np.uint8


def whole(dtype: Any, *shape: int, seed: int = 0, high: int = 4) -> np.ndarray:
    low = 0 if np.dtype(dtype).kind == "u" else -high
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


@each(("a", "b"), [
        ((2, 3), (3, 5)), ((3,), (3, 5)), ((2, 3), (3,)), ((3,), (3,)),
        ((7, 1, 2, 3), (4, 3, 5)), ((7, 2, 3), (3,)), ((3,), (7, 3, 5)), ((2, 0), (0, 5)),
    ])  # fmt: skip
@each("dtype", [F32, np.float64, F16, BF16, I32, np.int64, np.uint32])
def test_shapes_and_types(a: tuple[int, ...], b: tuple[int, ...], dtype: Any) -> None:
    one, other = whole(dtype, *a), whole(dtype, *b, seed=1)
    got = mat_mul_1(one, other)
    expected = np.asarray(np.matmul(one.astype(np.int64), other.astype(np.int64)))
    assert same(got, expected.astype(dtype))


def test_sums_of_narrow_floats_are_not_rounded_on_the_way() -> None:
    ones = np.ones((1, 4096), F16)
    assert mat_mul_1(ones, ones.T).tolist() == [[4096]]
    ones = np.ones((1, 1024), BF16)
    assert float(mat_mul_1(ones, ones.T)[0, 0]) == 1024


@search(60)
@given(
    bits=st.integers(1, 62),
    size=st.integers(1, 5),
    seed=st.integers(0, 99),
    dtype=st.sampled_from([np.int64, np.int32, np.uint64]),
)
def test_integers_are_exact_and_wrap_around(bits: int, size: int, seed: int, dtype: Any) -> None:
    width = 8 * np.dtype(dtype).itemsize
    high = 1 << min(bits, width - 2)
    rng = np.random.default_rng(seed)
    low = 0 if np.dtype(dtype).kind == "u" else -high
    a = rng.integers(low, high, (2, size), np.int64).astype(dtype)
    b = rng.integers(low, high, (size, 3), np.int64).astype(dtype)
    got = mat_mul_1(a, b)
    for row in range(2):
        for column in range(3):
            total = sum(int(a[row, k]) * int(b[k, column]) for k in range(size))
            assert (int(got[row, column]) - total) % (1 << width) == 0


@each(
    ("a", "b", "message"),
    [
        ((2, 3), (5, 7), r"axis -1 of `A` with shape \(2, 3\) has size 3, expected 5 as axis -2"),
        ((2, 3), (5,), "expected 5 as axis -1 of `B`"),
        ((), (5,), "`A` is a scalar"),
        ((2, 3, 5, 7), (4, 7, 2), "do not broadcast: axis -3 has sizes 3 and 4"),
    ],
)
def test_factors_that_do_not_fit(a: tuple[int, ...], b: tuple[int, ...], message: str) -> None:
    with pytest.raises(KernelError, match=message):
        mat_mul_1(np.ones(a, F32), np.ones(b, F32))


@each("trans_a", [0, 1])
@each("trans_b", [0, 1])
@each("c_shape", [None, (), (5,), (1, 5), (2, 1), (2, 5)])
@each("dtype", [F32, F16, BF16, np.float64, I32])
def test_gemm(trans_a: int, trans_b: int, c_shape: Any, dtype: Any) -> None:
    a, b = whole(dtype, 2, 3), whole(dtype, 3, 5, seed=1)
    c = None if c_shape is None else whole(dtype, *c_shape, seed=2)
    got = gemm_7(
        a.T if trans_a else a, b.T if trans_b else b, c,
        alpha=0.5, beta=2.0, transA=trans_a, transB=trans_b,
    )  # fmt: skip
    expected = 0.5 * np.matmul(a.astype(float), b.astype(float))
    if c is not None:
        expected = expected + 2 * c.astype(float)
    if dtype == I32:
        expected = np.trunc(expected)
    assert got.shape == (2, 5) and same(got + np.zeros((), dtype), (expected + 0.0).astype(dtype))


@each(
    ("a", "b", "c", "message"),
    [
        ((2, 3), (5, 3), None, "have no common dimension: axis 1 of `A` has size 3, axis 0"),
        ((2, 3, 1), (3, 5), None, r"`A` has shape \(2, 3, 1\), expected rank 2"),
        ((2, 3), (3, 5), (2,), r"`C` with shape \(2,\) does not broadcast to \(2, 5\): axis -1"),
        ((1, 3), (3, 5), (2, 5), "axis -2 has size 2, expected 1 or 1"),
        ((2, 3), (3, 5), (1, 2, 5), r"`C` has shape \(1, 2, 5\)"),
    ],
)
def test_gemm_refuses(a: Any, b: Any, c: Any, message: str) -> None:
    with pytest.raises(KernelError, match=message):
        gemm_7(np.ones(a, F32), np.ones(b, F32), None if c is None else np.ones(c, F32))


@each("a_type", [I8, U8])
@each("b_type", [I8, U8])
@each("a_zero", [None, (), (1,), (2,), (7, 2, 1)])
@each("b_zero", [None, (), (5,), (7, 1, 5)])
def test_codes_without_their_zero_points(
    a_type: Any, b_type: Any, a_zero: Any, b_zero: Any
) -> None:
    a, b = whole(a_type, 7, 2, 3, high=127), whole(b_type, 7, 3, 5, seed=1, high=127)
    za = None if a_zero is None else whole(a_type, *a_zero, seed=2)
    zb = None if b_zero is None else whole(b_type, *b_zero, seed=3)
    got = mat_mul_integer_10(a, b, za, zb)
    left = a.astype(int) - (0 if za is None else _rows(za))
    right = b.astype(int) - (0 if zb is None else zb.astype(int))
    assert got.dtype == I32 and got.tolist() == np.matmul(left, right).tolist()


def _rows(zero: np.ndarray) -> np.ndarray:
    wide = zero.astype(int)
    return wide[:, None] if zero.shape == (2,) else wide


@pytest.mark.parametrize(
    ("zero", "message"),
    [
        (np.zeros(3, U8), r"`a_zero_point` has shape \(3,\), expected \(\), one element per row"),
        (np.zeros((1, 3), U8), "one element per row"),
    ],
)
def test_zero_points_that_do_not_fit(zero: np.ndarray, message: str) -> None:
    with pytest.raises(KernelError, match=message):
        mat_mul_integer_10(np.ones((2, 3), U8), np.ones((3, 5), U8), zero)


@pytest.mark.parametrize("dtype", [I8, U8, E4M3])
def test_quantized_products(dtype: Any) -> None:
    a, b = whole(dtype, 2, 3), whole(dtype, 3, 5, seed=1)
    a_scale, b_scale = np.array([0.5, 0.25], F32), np.array(2, F32)
    a_zero, b_zero = np.array([0, 1]).astype(dtype), np.array(0).astype(dtype)
    y_scale, y_zero = np.array(0.5, F32), np.array(2).astype(dtype)
    got = q_linear_mat_mul_10(a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero)
    left = (a.astype(float) - a_zero.astype(float)[:, None]) * a_scale[:, None]
    wanted = np.matmul(left, b.astype(float) * 2) / 0.5
    if dtype != E4M3:
        wanted = np.clip(np.rint(wanted) + 2, np.iinfo(dtype).min, np.iinfo(dtype).max)
        assert same(got, wanted.astype(dtype))
    else:
        assert same(got, (wanted + 2).astype(E4M3))


def test_rows_of_a_product_that_has_none() -> None:
    a, b = whole(U8, 3), whole(U8, 3, 5, seed=1)
    one, zero = np.array(1, F32), np.array(0, U8)
    with pytest.raises(KernelError, match=r"`y_scale` has shape \(2, 1\), expected \(\)"):
        q_linear_mat_mul_10(a, one, zero, b, one, zero, np.ones((2, 1), F32), zero)
