"""ArgMax, ArgMin and TopK."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.reduction import positions_of, top_k_1, top_k_10
from tests.grids import each, search

ARG_MAX, ARG_MIN = positions_of(np.argmax), positions_of(np.argmin)
DATA = np.array([[2, 7, 7, 1], [1, 0, 5, 0]], np.float32)


@each(
    ("kernel", "attributes", "expected"),
    [
        (ARG_MAX, {"axis": 1}, [[1], [2]]),
        (ARG_MAX, {"axis": -1, "keepdims": 0, "select_last_index": 1}, [2, 2]),
        (ARG_MAX, {}, [[0, 0, 0, 0]]),
        (ARG_MIN, {"axis": 1, "keepdims": 0}, [3, 1]),
        (ARG_MIN, {"axis": 1, "keepdims": 0, "select_last_index": 1}, [3, 3]),
    ],
)
@each("dtype", [np.float32, np.int8, np.float16, ml_dtypes.bfloat16])
def test_positions(kernel: Any, attributes: dict[str, int], expected: Any, dtype: Any) -> None:
    got = kernel(DATA.astype(dtype), **attributes)
    assert got.dtype == np.int64 and got.tolist() == expected


def test_an_axis_that_is_empty_or_missing_is_refused() -> None:
    with pytest.raises(KernelError, match=r"axis 1 of `data` with shape \(2, 0\) is empty"):
        ARG_MAX(np.zeros((2, 0)), axis=1)
    with pytest.raises(KernelError, match="`axis` is 2, expected -2 to 1"):
        ARG_MIN(DATA, axis=2)


@search(100)
@given(
    values=st.lists(st.integers(-3, 3), min_size=10, max_size=10),
    k=st.integers(0, 5),
    largest=st.booleans(),
    dtype=st.sampled_from([np.float32, np.int64, np.uint8, ml_dtypes.bfloat16]),
)
def test_equal_elements_come_by_their_index(
    values: list[int], k: int, largest: bool, dtype: Any
) -> None:
    x = np.array(values, np.int64).reshape(2, 5) % (4 if dtype == np.uint8 else 99)
    x = x.astype(dtype)
    top, positions = top_k_10(x, np.array([k]), largest=int(largest))
    assert top.dtype == dtype and positions.dtype == np.int64 and top.shape == (2, k)
    for row, chosen, found in zip(x, top, positions, strict=True):
        sign = -1 if largest else 1
        order = sorted(range(5), key=lambda i: (sign * float(row[i]), i))[:k]
        assert found.tolist() == order
        assert chosen.tolist() == row[order].tolist()


def test_the_least_integer_is_the_smallest() -> None:
    x = np.array([-128, 127, -128], np.int8)
    top, positions = top_k_10(x, np.array([3]))
    assert top.tolist() == [127, -128, -128] and positions.tolist() == [1, 0, 2]


def test_other_axes_and_the_attribute_form() -> None:
    top, positions = top_k_1(DATA, k=1, axis=0)
    assert top.tolist() == [[2, 7, 7, 1]] and positions.tolist() == [[0, 0, 0, 0]]


@each(
    ("k", "message"),
    [
        (np.array([5]), r"`K` is 5, expected 0 to 4: axis 1 of `X` with shape \(2, 4\)"),
        (np.array([-1]), "`K` is -1"),
        (np.array([1, 2]), r"`K` has shape \(2,\), expected \(1,\)"),
        (np.array(1), "`K` has shape"),
    ],
)
def test_wrong_counts_are_refused(k: np.ndarray, message: str) -> None:
    with pytest.raises(KernelError, match=message):
        top_k_10(DATA, k)
