"""The error function against that of Python's math."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from onnx_kvtool.runtime.kernels.elementwise.unary import erf


def points() -> np.ndarray:
    rng = np.random.default_rng(5)
    tiny = 10.0 ** rng.uniform(-300, 0, 20_000)
    edges = np.array([0.84375, 6.0, 0.5, 4.0, 5e-324, 1e308])
    near = np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, np.inf)])
    return np.concatenate([rng.uniform(-7, 7, 60_000), tiny, near, -near])


def test_float64_is_within_two_units_in_the_last_place() -> None:
    x = points()
    expected = np.array([math.erf(v) for v in x.tolist()])
    assert (np.abs(erf(x) - expected) <= 2 * np.spacing(np.abs(expected))).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_narrower_types_are_rounded_once(dtype: type) -> None:
    with np.errstate(all="ignore"):
        x = points().astype(dtype)
        expected = np.array([math.erf(v) for v in x.astype(np.float64).tolist()]).astype(dtype)
    got = erf(x)
    assert got.dtype == dtype
    assert (got == expected).mean() > 0.9999
    assert np.allclose(got.astype(float), expected.astype(float), atol=0, rtol=0.01)


def test_special_values_and_shapes() -> None:
    got = erf(np.array([np.inf, -np.inf, -0.0, 0.0]))
    assert got.tolist() == [1, -1, 0, 0] and np.signbit(got).tolist() == [False, True, True, False]
    assert np.isnan(erf(np.array(np.nan))).all()
    assert erf(np.zeros((2, 0, 3), np.float32)).shape == (2, 0, 3)
    assert erf(np.zeros((2, 3)).T).shape == (3, 2)
