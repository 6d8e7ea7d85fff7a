"""Sequences and optionals, kernel by kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.control import optional, sequence_insert
from tests.grids import each

A, B, C = (np.full((2, size), size, np.float32) for size in (3, 5, 7))
ABC = [A, B, C]
X = np.arange(15, dtype=np.float32).reshape(3, 5)


def at(position: int) -> np.ndarray:
    return np.array(position, np.int64)


RESULTS = [
    pytest.param(lambda: sequence_insert(ABC, X), [A, B, C, X], id="inserted at the end"),
    pytest.param(lambda: sequence_insert(ABC, X, at(0)), [X, A, B, C], id="inserted in front"),
    pytest.param(lambda: sequence_insert(ABC, X, at(3)), [A, B, C, X], id="inserted behind all"),
    pytest.param(
        lambda: sequence_insert(ABC, X, at(-1)), [A, B, X, C], id="inserted before the last"
    ),
    pytest.param(lambda: sequence_insert([], X), [X], id="inserted into nothing"),
    pytest.param(lambda: optional(A), A, id="an optional with something"),
    pytest.param(lambda: optional(type=object()), None, id="an optional with nothing"),
]


@each(("call", "expected"), RESULTS)
def test_results(call: Callable[[], tuple[Any]], expected: Any) -> None:
    got = call()
    if isinstance(expected, list):
        assert isinstance(got, list)
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    else:
        assert got is expected


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(
            lambda: sequence_insert(ABC, X, at(4)), "is 4, expected -3 to 3", id="inserted too far"
        ),
        pytest.param(
            lambda: sequence_insert(ABC, X, np.array([0, 1])), "expected one element", id="twice"
        ),
        pytest.param(
            lambda: sequence_insert(ABC, X.astype(np.int32)),
            "dtype int32, expected float32",
            id="inserted with another type",
        ),
    ],
)
def test_what_makes_no_sense_fails(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(KernelError, match=message):
        call()
