"""CumProd below opset 26."""

from __future__ import annotations

import numpy as np
import pytest

from tests.grids import part
from tests.rewrite.lowering.single import check, one_node, refusal

_X = np.random.default_rng(17).normal(size=(2, 3, 5))


@part(4)
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "at run time"])
@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2])
@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_products(exclusive: int, reverse: int, axis: int, constant: bool) -> None:
    inputs = {"x": _X, "axis": np.array(axis, np.int64)}
    turned = np.flip(_X, axis) if reverse else _X
    product = np.cumprod(turned, axis)
    if exclusive:
        first = np.ones_like(np.take(product, [0], axis))
        rest = np.take(product, range(product.shape[axis] - 1), axis)
        product = np.concatenate([first, rest], axis)
    expected = np.flip(product, axis) if reverse else product
    model = one_node(
        "CumProd",
        inputs,
        [np.float64],
        opset=26,
        constants=["axis"] if constant else [],
        exclusive=exclusive,
        reverse=reverse,
    )
    for target in (11, 18):
        check(model, inputs, target, [expected])


def test_integers_along_the_only_axis() -> None:
    inputs = {"x": np.array([1, 2, -3, 5], np.int32), "axis": np.array(0, np.int32)}
    expected = np.array([1, 2, -6, -30], np.int32)
    check(one_node("CumProd", inputs, [np.int32], opset=26), inputs, 11, [expected])


@pytest.mark.long
def test_an_unknown_rank_is_refused() -> None:
    inputs = {"x": _X, "axis": np.array(0, np.int64)}
    found = refusal(one_node("CumProd", inputs, [np.float64], opset=26, dims={"x": None}), 21)
    assert (found.code, found.lowest_opset) == ("unknown-rank", 26)


def test_a_scalar_is_refused() -> None:
    inputs = {"x": np.array(3, np.float32), "axis": np.array(0)}
    found = refusal(one_node("CumProd", inputs, [np.float32], opset=26), 18)
    assert found.code == "axis-out-of-range"
