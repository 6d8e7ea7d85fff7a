"""ArgMax and ArgMin with `select_last_index`, at opset 11."""

from __future__ import annotations

import numpy as np
import pytest

from tests.grids import part
from tests.rewrite.lowering.single import check, one_node

_X = np.array([[[3, 3, 1], [1, 3, 1]], [[1, 0, 0], [0, 0, 2]]], np.float32)  # (2, 2, 3)


@part(2)
@pytest.mark.parametrize("symbolic", [False, True], ids=["numbers", "symbols"])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_the_last_of_equal_elements(op: str, axis: int, keepdims: int, symbolic: bool) -> None:
    inputs = {"data": _X}
    dims = {"data": ["A", "B", "C"]} if symbolic else None
    model = one_node(
        op,
        inputs,
        [np.int64],
        opset=13,
        dims=dims,
        axis=axis,
        keepdims=keepdims,
        select_last_index=1,
    )
    check(model, inputs, 11)
