"""ScatterND and ScatterElements that reduce, for opsets that lack it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rewrite.lowering.single import check, one_node, refusal

_REDUCTIONS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@pytest.mark.parametrize("target", [11, 13, 15])
@pytest.mark.parametrize("reduction", list(_REDUCTIONS))
def test_scatter_nd_reduces_at_distinct_places(reduction: str, target: int) -> None:
    data = np.array([[3, -1, 5], [2, 7, 1]], np.float32)
    indices = np.array([[1, 0], [0, -1], [-2, 1]])
    updates = np.array([4, 4, 4], np.float32)
    inputs = {"data": data, "indices": indices, "updates": updates}
    expected = data.copy()
    for place, update in zip(indices, updates, strict=True):
        expected[tuple(place)] = _REDUCTIONS[reduction](expected[tuple(place)], update)
    model = one_node(
        "ScatterND", inputs, [np.float32], opset=18, constants=["indices"], reduction=reduction
    )
    check(model, inputs, target, [expected])


@pytest.mark.parametrize("reduction", list(_REDUCTIONS))
def test_scatter_elements_reduces_at_distinct_places(reduction: str) -> None:
    data = np.array([[3, -1, 5], [2, 7, 1]], np.float32)
    indices = np.array([[0, 2], [1, 0]])
    updates = np.array([[4, 4], [1, 1]], np.float32)
    inputs = {"data": data, "indices": indices, "updates": updates}
    expected = data.copy()
    for row, column in np.ndindex(2, 2):
        place = (row, indices[row, column])
        expected[place] = _REDUCTIONS[reduction](expected[place], updates[row, column])
    model = one_node(
        "ScatterElements",
        inputs,
        [np.float32],
        opset=18,
        constants=["indices"],
        axis=1,
        reduction=reduction,
    )
    check(model, inputs, 15, [expected])


_REPEATED = {
    "the same tuple": ([[1, 0], [1, 0]], True),
    "the same tuple counted from the end": ([[1, 0], [-1, -3]], True),
    "indices known at run time only": ([[1, 0], [0, 0]], False),
}


@pytest.mark.parametrize(("indices", "constant"), list(_REPEATED.values()), ids=list(_REPEATED))
def test_a_place_that_may_be_named_twice_is_refused(
    indices: list[list[int]], constant: bool
) -> None:
    inputs = {
        "data": np.zeros((2, 3), np.float32),
        "indices": np.array(indices),
        "updates": np.ones(2, np.float32),
    }
    constants = ["indices"] if constant else []
    model = one_node(
        "ScatterND", inputs, [np.float32], opset=18, constants=constants, reduction="add"
    )
    found = refusal(model, 13)
    assert (found.code, found.lowest_opset) == ("repeated-index", 16)
