"""Reshape with `allowzero=1`, below opset 14."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.grids import part
from tests.rewrite.lowering.single import check, one_node, refusal

_CASES = {
    "a zero moves": ((0, 3, 5), (3, 5, 0)),
    "a zero stays and another size changes": ((2, 0, 3), (7, 0)),
    "no zero": ((2, 3), (3, 2)),
    "a size that is left open": ((2, 3), (-1, 2)),
}


@part(2)
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "at run time"])
@pytest.mark.parametrize("target", [11, 13])
@pytest.mark.parametrize(("data", "shape"), list(_CASES.values()), ids=list(_CASES))
def test_zeros_are_sizes(
    data: tuple[int, ...], shape: tuple[int, ...], target: int, constant: bool
) -> None:
    inputs = {
        "data": np.arange(np.prod(data), dtype=np.float32).reshape(data),
        "shape": np.array(shape, np.int64),
    }
    model = one_node(
        "Reshape",
        inputs,
        [np.float32],
        opset=14,
        constants=["shape"] if constant else [],
        dims={"data": [f"d{i}" for i in range(len(data))]},
        allowzero=1,
    )
    check(model, inputs, target)


def test_bfloat16_that_may_be_empty_is_refused() -> None:
    inputs = {
        "data": np.zeros((2, 0), ml_dtypes.bfloat16),
        "shape": np.array([0, 3], np.int64),
    }
    model = one_node("Reshape", inputs, [ml_dtypes.bfloat16], opset=14, allowzero=1)
    found = refusal(model, 13)
    assert (found.code, found.lowest_opset) == ("element-type", 14)
