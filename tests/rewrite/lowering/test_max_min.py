"""Max and Min of integers, for opset 11."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rewrite.lowering.integers import SIGNED, UNSIGNED
from tests.rewrite.lowering.single import check, one_node


@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED)
@pytest.mark.parametrize("op", ["Max", "Min"])
def test_the_extremes_of_a_type_stay_exact(op: str, dtype: type) -> None:
    limits = np.iinfo(dtype)
    x = np.array([limits.max, limits.max - 1, limits.min, limits.min + 1, 3], dtype)
    inputs = {"a": x[:, None], "b": x, "c": np.array([5], dtype)}
    compute = np.maximum if op == "Max" else np.minimum
    expected = compute(compute(x[:, None], x), np.array([5], dtype))
    check(one_node(op, inputs, [dtype], opset=13), inputs, 11, [expected])
