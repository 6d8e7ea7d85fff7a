"""Pools that round up, where an older opset begins windows in the padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rewrite.lowering.single import check, one_node, refusal

_IMAGE = np.random.default_rng(23).normal(size=(2, 3, 5, 7)).astype(np.float32)

_POOL = {"kernel_shape": [3, 3], "ceil_mode": 1}


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        ({"strides": [2, 2]}, None),
        ({"strides": [2, 2], "pads": [1, 1, 0, 1]}, None),
        ({"kernel_shape": [1, 1], "strides": [4, 4], "pads": [0, 0, 0, 2]}, "changed-meaning"),
    ],
    ids=["windows that begin inside", "padding", "a window that begins in the padding"],
)
def test_pools_that_round_up(op: str, attributes: Any, code: str | None) -> None:
    inputs = {"X": _IMAGE}
    model = one_node(op, inputs, [np.float32], opset=22, **(_POOL | attributes))
    if code is None:
        check(model, inputs, 12, rtol=1e-5)
    else:
        assert refusal(model, 12).code == code


def test_pools_of_unknown_size_that_round_up_are_refused() -> None:
    model = one_node(
        "MaxPool",
        {"X": _IMAGE},
        [np.float32],
        opset=22,
        dims={"X": [2, 3, "H", "W"]},
        **_POOL,
    )
    found = refusal(model, 21)
    assert (found.code, found.lowest_opset) == ("changed-meaning", 22)
