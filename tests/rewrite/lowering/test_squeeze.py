"""Squeeze and Unsqueeze with axes that are known at run time only."""

from __future__ import annotations

import numpy as np
import pytest

from tests.grids import part
from tests.rewrite.lowering.single import check, one_node, refusal


def _data(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def _axes(*axes: int) -> np.ndarray:
    return np.array(axes, np.int64)


_CASES = {
    "unsqueeze in front": ("Unsqueeze", _data(2, 3), _axes(0)),
    "unsqueeze behind": ("Unsqueeze", _data(2, 3), _axes(2)),
    "unsqueeze in between, from behind": ("Unsqueeze", _data(2, 3, 5), _axes(-2)),
    "unsqueeze two in any order": ("Unsqueeze", _data(2, 3), _axes(3, 0)),
    "unsqueeze two side by side": ("Unsqueeze", _data(2, 3), _axes(1, 2)),
    "unsqueeze a number": ("Unsqueeze", _data(), _axes(0, 1)),
    "unsqueeze nothing": ("Unsqueeze", _data(2, 3), _axes()),
    "unsqueeze an empty value": ("Unsqueeze", _data(0, 0, 3), _axes(1)),
    "squeeze one of two": ("Squeeze", _data(1, 2, 1, 3), _axes(2)),
    "squeeze from behind": ("Squeeze", _data(1, 2, 1, 3), _axes(-2, 0)),
    "squeeze to a number": ("Squeeze", _data(1, 1), _axes(0, 1)),
    "squeeze an empty value": ("Squeeze", _data(1, 0, 3), _axes(0)),
}


@part(2)
@pytest.mark.parametrize("target", [11, 12])
@pytest.mark.parametrize(("op", "data", "axes"), list(_CASES.values()), ids=list(_CASES))
def test_run_time_axes(op: str, data: np.ndarray, axes: np.ndarray, target: int) -> None:
    inputs = {"data": data, "axes": axes}
    check(one_node(op, inputs, [np.float32], opset=13), inputs, target)


@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (2, 0)], ids=str)
def test_symbolic_dimensions_may_turn_out_to_be_zero(shape: tuple[int, ...]) -> None:
    inputs = {"data": _data(*shape), "axes": _axes(0)}
    model = one_node("Unsqueeze", inputs, [np.float32], opset=13, dims={"data": ["M", "N"]})
    check(model, inputs, 11)


def test_an_unknown_number_of_axes_is_refused() -> None:
    inputs = {"data": _data(2, 3), "axes": _axes(0)}
    model = one_node("Unsqueeze", inputs, [np.float32], opset=13, dims={"axes": ["n"]})
    found = refusal(model, 11)
    assert (found.code, found.lowest_opset) == ("dynamic-input", 13)
    assert found.message == "the axes are known at run time only, and their number is unknown"


def test_an_empty_list_to_squeeze_is_refused() -> None:
    inputs = {"data": _data(1, 3), "axes": _axes()}
    found = refusal(one_node("Squeeze", inputs, [np.float32], opset=13), 11)
    assert (found.code, found.lowest_opset) == ("empty-axes", 13)
