"""Softmax-13, LogSoftmax-13 and Hardmax-13 along one axis, for opsets that flatten."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.rewrite.lowering.single import check, one_node, refusal

_X = np.random.default_rng(31).normal(size=(2, 3, 5, 7)).astype(np.float32)


def _softmax(x: np.ndarray, axis: int) -> np.ndarray:
    shares = np.exp(x.astype(np.float64))
    return shares / shares.sum(axis, keepdims=True)


def _hardmax(x: np.ndarray, axis: int) -> np.ndarray:
    first = np.expand_dims(x.argmax(axis), axis)
    expected = np.zeros_like(x)
    np.put_along_axis(expected, first, 1, axis)
    return expected


OPERATORS: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "Softmax": _softmax,
    "LogSoftmax": lambda x, axis: np.log(_softmax(x, axis)),
    "Hardmax": _hardmax,
}


@pytest.mark.parametrize("axis", [0, 1, -2, 3, -1])
@pytest.mark.parametrize(("op", "compute"), OPERATORS.items(), ids=OPERATORS)
def test_one_axis_of_four(
    op: str, compute: Callable[[np.ndarray, int], np.ndarray], axis: int
) -> None:
    model = one_node(op, {"input": _X}, [np.float32], opset=13, axis=axis)
    check(model, {"input": _X}, 12, [compute(_X, axis).astype(np.float32)], rtol=1e-6)


def test_the_last_axis_of_an_unknown_rank() -> None:
    model = one_node("Softmax", {"input": _X}, [np.float32], opset=13, dims={"input": None})
    check(model, {"input": _X}, 11, [_softmax(_X, -1).astype(np.float32)], rtol=1e-6)


def test_another_axis_of_an_unknown_rank_is_refused() -> None:
    model = one_node("Softmax", {"input": _X}, [np.float32], opset=13, dims={"input": None}, axis=1)
    found = refusal(model, 12)
    assert found.code == "unknown-rank"


def test_an_axis_outside_of_the_rank_is_refused() -> None:
    model = one_node("Softmax", {"input": _X}, [np.float32], opset=13, axis=4)
    assert refusal(model, 12).code == "axis-out-of-range"
