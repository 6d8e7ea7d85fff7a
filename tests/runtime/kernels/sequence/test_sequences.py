"""Sequences and optionals, kernel by kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.sequence.joining import concat_from_sequence, split_to_sequence
from onnx_kvtool.runtime.kernels.sequence.optionals import (
    optional,
    optional_get_element,
    optional_has_element,
)
from onnx_kvtool.runtime.kernels.sequence.sequences import (
    sequence_at,
    sequence_construct,
    sequence_empty,
    sequence_erase,
    sequence_insert,
    sequence_length,
)

A, B, C = (np.full((2, size), size, np.float32) for size in (3, 5, 7))
ABC = [A, B, C]
X = np.arange(15, dtype=np.float32).reshape(3, 5)


def at(position: int) -> np.ndarray:
    return np.array(position, np.int64)


RESULTS = [
    pytest.param(lambda: sequence_construct(A, B), [A, B], id="a sequence of two"),
    pytest.param(lambda: sequence_empty(dtype=1), [], id="a sequence of nothing"),
    pytest.param(lambda: sequence_length(ABC), np.array(3), id="a length"),
    pytest.param(lambda: sequence_at(ABC, at(1)), B, id="the second"),
    pytest.param(lambda: sequence_at(ABC, at(-3)), A, id="the first, from the back"),
    pytest.param(lambda: sequence_insert(ABC, X), [A, B, C, X], id="inserted at the end"),
    pytest.param(lambda: sequence_insert(ABC, X, at(0)), [X, A, B, C], id="inserted in front"),
    pytest.param(lambda: sequence_insert(ABC, X, at(3)), [A, B, C, X], id="inserted behind all"),
    pytest.param(
        lambda: sequence_insert(ABC, X, at(-1)), [A, B, X, C], id="inserted before the last"
    ),
    pytest.param(lambda: sequence_insert([], X), [X], id="inserted into nothing"),
    pytest.param(lambda: sequence_erase(ABC), [A, B], id="the last erased"),
    pytest.param(lambda: sequence_erase(ABC, at(-3)), [B, C], id="the first erased from the back"),
    pytest.param(
        lambda: split_to_sequence(X, axis=0, keepdims=0), list(X), id="split without the axis"
    ),
    pytest.param(
        lambda: split_to_sequence(X, axis=0, keepdims=1),
        [X[0:1], X[1:2], X[2:3]],
        id="split with the axis kept",
    ),
    pytest.param(
        lambda: split_to_sequence(X, at(2), axis=-1, keepdims=0),
        [X[:, :2], X[:, 2:4], X[:, 4:]],
        id="split in parts of two, the last smaller",
    ),
    pytest.param(
        lambda: split_to_sequence(X, np.array([4, 0, 1]), axis=1, keepdims=0),
        [X[:, :4], X[:, 4:4], X[:, 4:]],
        id="split by sizes, one of them empty",
    ),
    pytest.param(
        lambda: concat_from_sequence(ABC, axis=1, new_axis=0),
        np.concatenate(ABC, axis=1),
        id="joined along an axis",
    ),
    pytest.param(
        lambda: concat_from_sequence([A, A], axis=-1, new_axis=1),
        np.stack([A, A], axis=-1),
        id="joined along a new last axis",
    ),
    pytest.param(lambda: optional(A), A, id="an optional with something"),
    pytest.param(lambda: optional(type=object()), None, id="an optional with nothing"),
    pytest.param(lambda: optional_get_element([A, B]), [A, B], id="the sequence in an optional"),
    pytest.param(lambda: optional_has_element(A), np.array(True), id="something is there"),
    pytest.param(lambda: optional_has_element(None), np.array(False), id="nothing is there"),
    pytest.param(lambda: optional_has_element([]), np.array(True), id="an empty sequence is there"),
]


@pytest.mark.parametrize(("call", "expected"), RESULTS)
def test_results(call: Callable[[], tuple[Any]], expected: Any) -> None:
    (got,) = call()
    if isinstance(expected, list):
        assert isinstance(got, list)
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    elif expected is None:
        assert got is None
    else:
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(lambda: sequence_at(ABC, at(3)), "is 3, expected -3 to 2", id="at the end"),
        pytest.param(lambda: sequence_at([], at(0)), "the sequence is empty", id="at in nothing"),
        pytest.param(
            lambda: sequence_insert(ABC, X, at(4)), "is 4, expected -3 to 3", id="inserted too far"
        ),
        pytest.param(
            lambda: sequence_insert(ABC, X.astype(np.int32)),
            "dtype int32, expected float32",
            id="inserted with another type",
        ),
        pytest.param(lambda: sequence_erase([]), "is empty, expected", id="erased from nothing"),
        pytest.param(
            lambda: split_to_sequence(X, np.array([2, 2]), axis=1, keepdims=0),
            r"\[2, 2\], expected sizes with the sum 5",
            id="sizes that do not add up",
        ),
        pytest.param(
            lambda: split_to_sequence(X, np.array([6, -1]), axis=1, keepdims=0),
            r"\[6, -1\], expected sizes",
            id="a negative size",
        ),
        pytest.param(
            lambda: split_to_sequence(X, at(0), axis=1, keepdims=0), "is 0, expected 1", id="size 0"
        ),
        pytest.param(
            lambda: concat_from_sequence([A, B], axis=0, new_axis=0),
            r"\[1\] has shape \(2, 5\), which cannot be joined with \(2, 3\) along axis 0",
            id="joined with other sizes",
        ),
        pytest.param(
            lambda: concat_from_sequence([A, B], axis=0, new_axis=1),
            "cannot be joined",
            id="stacked",
        ),
        pytest.param(
            lambda: concat_from_sequence([], axis=0, new_axis=0), "is empty", id="nothing joined"
        ),
        pytest.param(lambda: optional_get_element(None), "holds nothing", id="nothing to get"),
    ],
)
def test_what_makes_no_sense_fails(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(KernelError, match=message):
        call()
