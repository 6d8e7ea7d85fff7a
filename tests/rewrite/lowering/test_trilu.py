"""Trilu below opset 14."""

from __future__ import annotations

import numpy as np
import pytest

from tests.grids import part
from tests.rewrite.lowering.single import check, one_node, refusal

_X = np.random.default_rng(5).normal(size=(2, 3, 5)).astype(np.float32)
_X[0, 2, 0] = np.nan  # below the diagonal: zero, not NaN, where it is cut off


@part(2)
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "at run time"])
@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [None, -7, -1, 0, 2, 7])
def test_triangles(k: int | None, upper: int, constant: bool) -> None:
    inputs = {"input": _X, "k": None if k is None else np.array(k, np.int64)}
    constants = ["k"] if constant and k is not None else []
    model = one_node("Trilu", inputs, [np.float32], opset=14, constants=constants, upper=upper)
    check(model, inputs, 11)


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.int64, np.float16, np.uint16])
def test_element_types(dtype: type) -> None:
    inputs = {"input": np.ones((3, 5), dtype)}
    expected = np.triu(np.ones((3, 5))).astype(dtype)
    check(one_node("Trilu", inputs, [dtype], opset=14), inputs, 13, [expected])


@pytest.mark.parametrize("dims", [None, ["B", "M", "N"]], ids=["no rank", "symbolic"])
def test_shapes_that_are_unknown(dims: list[str] | None) -> None:
    inputs = {"input": _X}
    check(one_node("Trilu", inputs, [np.float32], opset=14, dims={"input": dims}), inputs, 11)


def test_complex_numbers_are_refused() -> None:
    inputs = {"input": np.ones((3, 5), np.complex64)}
    found = refusal(one_node("Trilu", inputs, [np.complex64], opset=14), 13)
    assert (found.code, found.lowest_opset) == ("element-type", 14)
