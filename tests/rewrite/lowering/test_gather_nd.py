"""GatherND with batch dimensions, for opset 11."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.rewrite.lowering.single import check, one_node, refusal

_X = np.arange(2 * 3 * 5 * 7, dtype=np.float32).reshape(2, 3, 5, 7)


@pytest.mark.parametrize("symbolic", [False, True], ids=["numbers", "symbols"])
@pytest.mark.parametrize("batch", [1, 2])
def test_gather_nd_with_batch_dimensions(batch: int, symbolic: bool) -> None:
    indices = np.array([[[4, 6], [0, 1], [2, 2]], [[1, 0], [3, 5], [4, 4]]])  # (2, 3, 2)
    data = _X[:, 0] if batch == 1 else _X
    indices = indices if batch == 1 else indices[..., :1]
    inputs = {"data": data, "indices": indices}
    dims: Any = {"data": [f"d{i}" for i in range(data.ndim)]} if symbolic else None
    model = one_node("GatherND", inputs, [np.float32], opset=13, dims=dims, batch_dims=batch)
    check(model, inputs, 11)


def test_gather_nd_of_unknown_rank_is_refused() -> None:
    inputs = {"data": _X, "indices": np.zeros((2, 1), np.int64)}
    model = one_node(
        "GatherND", inputs, [np.float32], opset=13, dims={"indices": None}, batch_dims=1
    )
    found = refusal(model, 11)
    assert (found.code, found.lowest_opset) == ("unknown-rank", 12)
