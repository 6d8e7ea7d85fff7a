"""Pow of mixed types and of integers, for opset 11."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rewrite.lowering.single import check, one_node, refusal

_POWERS = {
    "float32 by int64": (np.float32, np.int64, [1.5, -2, 3], [2, 3, -2]),
    "float16 by uint8": (np.float16, np.uint8, [1.5, 2, 0.5], [2, 3, 1]),
    "int32 by int32": (np.int32, np.int32, [3, -7, 46340, 1, -1, 5], [2, 5, 2, -3, -3, 0]),
    "int32 by float32": (np.int32, np.float32, [4, 9, 10], [0.5, 1.5, 2]),
    "float32 by float64": (np.float32, np.float64, [1.5, 2.25, 9], [2, 3.5, -0.5]),
    "float64 by float32": (np.float64, np.float32, [1.1, 0.3], [7.5, -3]),
    "float16 by float32": (np.float16, np.float32, [1.5, 2, 0.5], [2, 3, 1.5]),
    "float64 by int32": (np.float64, np.int32, [1.1, -0.3], [7, 3]),
}


@pytest.mark.parametrize(("base", "exponent", "x", "y"), list(_POWERS.values()), ids=list(_POWERS))
def test_powers_of_mixed_types(base: type, exponent: type, x: list[float], y: list[float]) -> None:
    inputs = {"X": np.array(x, base), "Y": np.array(y, exponent)}
    expected = np.power(np.float64(x), np.float64(y)).astype(base)
    model = one_node("Pow", inputs, [base], opset=15)
    check(model, inputs, 11, [expected], rtol=1e-6 if np.issubdtype(base, np.floating) else 0)


def test_powers_of_64_bit_integers_are_refused() -> None:
    inputs = {"X": np.array([3]), "Y": np.array([2])}
    found = refusal(one_node("Pow", inputs, [np.int64], opset=15), 11)
    assert (found.code, found.lowest_opset) == ("element-type", 12)
