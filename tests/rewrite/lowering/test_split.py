"""Split into sizes or a number of parts, for older opsets."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rewrite.lowering.single import check, one_node

_X = np.arange(2 * 3 * 5 * 7, dtype=np.float32).reshape(2, 3, 5, 7)


@pytest.mark.parametrize("target", [11, 12])
@pytest.mark.parametrize("sizes", [[2, 3], [5, 0], [0, 5]], ids=str)
def test_split_into_sizes_known_at_run_time_only(sizes: list[int], target: int) -> None:
    inputs = {"input": _X, "split": np.array(sizes)}
    model = one_node("Split", inputs, [np.float32] * 2, opset=18, axis=2)
    check(model, inputs, target)


@pytest.mark.parametrize("target", [11, 13])
def test_split_of_a_size_known_at_run_time_only_into_uneven_parts(target: int) -> None:
    inputs = {"input": _X}
    model = one_node(
        "Split",
        inputs,
        [np.float32] * 3,
        opset=18,
        dims={"input": ["a", "b", "c", "d"]},
        axis=3,
        num_outputs=3,
    )
    parts = [_X[..., :3], _X[..., 3:6], _X[..., 6:]]
    check(model, inputs, target, parts)
