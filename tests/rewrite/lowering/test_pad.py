"""Pad of some axes and Pad that wraps, for older opsets."""

from __future__ import annotations

import numpy as np
import pytest

from tests.grids import part
from tests.rewrite.lowering.single import check, one_node, refusal

_X = np.arange(2 * 3 * 5 * 7, dtype=np.float32).reshape(2, 3, 5, 7)


@part(3)
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "at run time"])
@pytest.mark.parametrize("target", [11, 13, 17])
@pytest.mark.parametrize("mode", ["constant", "reflect", "wrap"])
@pytest.mark.parametrize("axes", [[1], [3, 2], [-1, 0]], ids=str)
def test_pads_of_some_axes(axes: list[int], mode: str, target: int, constant: bool) -> None:
    pads = np.array([1, 0, 0, 1] if len(axes) == 2 else [1, 2])
    inputs = {"data": _X, "pads": pads, "value": None, "axes": np.array(axes)}
    constants = ["axes", "pads"] if constant else []
    model = one_node("Pad", inputs, [np.float32], opset=19, constants=constants, mode=mode)
    whole = [(0, 0)] * 4
    for i, axis in enumerate(axes):
        whole[axis] = (int(pads[i]), int(pads[i + len(axes)]))
    check(model, inputs, target, [np.pad(_X, whole, mode=mode)])


def test_negative_pads_crop_also_where_they_wrap() -> None:
    inputs = {"data": _X, "pads": np.array([0, -1, 2, 0, 0, 1, -2, 9])}
    expected = np.take(_X, [1, 2, 0], 1)
    expected = np.take(expected, [3, 4, 0, 1, 2], 2)
    expected = np.take(expected, [*range(7), *range(7), 0, 1], 3)
    model = one_node("Pad", inputs, [np.float32], opset=19, mode="wrap")
    check(model, inputs, 18, [expected])


def test_pads_of_some_axes_of_an_unknown_rank_are_refused() -> None:
    inputs = {"data": _X, "pads": np.array([1, 1]), "value": None, "axes": np.array([1])}
    model = one_node("Pad", inputs, [np.float32], opset=18, dims={"data": None})
    found = refusal(model, 17)
    assert (found.code, found.lowest_opset) == ("unknown-rank", 18)
