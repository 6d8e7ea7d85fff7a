"""Softmax, LogSoftmax and Hardmax against sums of exponentials in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.normalization.batch import (
    forms_of_softmax,
    hardmax,
    log_softmax,
    softmax,
)
from tests.grids import each

_KINDS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "softmax": tuple(forms_of_softmax(softmax).values()),
    "log_softmax": tuple(forms_of_softmax(log_softmax).values()),
    "hardmax": tuple(forms_of_softmax(hardmax).values()),
}
_UNIT = {np.float64: 1e-13, np.float32: 1e-6, np.float16: 1e-3, ml_dtypes.bfloat16: 8e-3}


def _rows(kind: str, rows: np.ndarray) -> np.ndarray:
    """Compute each row of a matrix on its own."""
    found = []
    for row in rows.astype(np.float64):
        exponentials = np.exp(row)
        if kind == "softmax":
            found.append(exponentials / exponentials.sum())
        elif kind == "log_softmax":
            found.append(row - np.log(exponentials.sum()))
        else:
            found.append(np.eye(len(row))[int(np.flatnonzero(row == row.max())[0])])
    return np.array(found)


@each("axis", [-3, -2, -1, 0, 1, 2])
@each("kind", [*_KINDS])
def test_since_13_one_axis_counts_and_before_all_behind_it(kind: str, axis: int) -> None:
    x = np.random.default_rng(1).standard_normal((2, 3, 5)).astype(np.float32)
    old, new = (kernel(x, axis=axis) for kernel in _KINDS[kind])
    moved = np.moveaxis(x, axis, -1)
    expected = np.moveaxis(
        _rows(kind, moved.reshape(-1, moved.shape[-1])).reshape(moved.shape), -1, axis
    )
    np.testing.assert_allclose(new, expected, rtol=1e-5, atol=1e-6)
    rows = int(np.prod(x.shape[: axis % 3]))
    np.testing.assert_allclose(
        old, _rows(kind, x.reshape(rows, -1)).reshape(x.shape), rtol=1e-5, atol=1e-6
    )


@each("dtype", [*_UNIT])
@each("kind", [*_KINDS])
def test_every_type_is_rounded_once(kind: str, dtype: Any) -> None:
    x = np.random.default_rng(2).standard_normal((3, 700)).astype(dtype)
    before = x.copy()
    y = _KINDS[kind][1](x, axis=1)
    assert y.dtype == dtype
    assert x.tobytes() == before.tobytes()
    np.testing.assert_allclose(y.astype(np.float64), _rows(kind, x), rtol=_UNIT[dtype], atol=1e-7)


def test_great_numbers_do_not_overflow() -> None:
    x = np.array([[1e38, 1e38, -1e38]], np.float32)
    assert forms_of_softmax(softmax)[13](x, axis=1).tolist() == [[0.5, 0.5, 0.0]]
    assert np.isfinite(forms_of_softmax(log_softmax)[13](x / 1e35, axis=1)).all()


def test_hidden_keys_weigh_nothing_and_a_row_without_others_is_nan() -> None:
    x = np.array([[-np.inf, 0.0], [-np.inf, -np.inf]], np.float32)
    y = forms_of_softmax(softmax)[13](x, axis=1)
    assert y[0].tolist() == [0.0, 1.0]
    assert np.isnan(y[1]).all()


@pytest.mark.parametrize("kind", _KINDS)
def test_nothing_gives_nothing(kind: str) -> None:
    for kernel in _KINDS[kind]:
        for shape in ((0, 3), (3, 0)):
            assert kernel(np.zeros(shape, np.float32), axis=1).shape == shape


@each("kind", [*_KINDS])
@each("axis", [2, -3])
def test_an_axis_outside_the_rank_is_refused(kind: str, axis: int) -> None:
    for kernel in _KINDS[kind]:
        with pytest.raises(KernelError, match=r"`axis` is -?\d, expected -2 to 1"):
            kernel(np.zeros((2, 3), np.float32), axis=axis)
