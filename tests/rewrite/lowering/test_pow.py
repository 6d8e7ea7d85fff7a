"""Pow of mixed types and of integers, for opset 11."""

from __future__ import annotations

import numpy as np
import pytest

from tests.grids import each
from tests.rewrite.lowering.single import check, one_node

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


@each(("base", "exponent", "x", "y"), _POWERS)
def test_powers_of_mixed_types(base: type, exponent: type, x: list[float], y: list[float]) -> None:
    inputs = {"X": np.array(x, base), "Y": np.array(y, exponent)}
    expected = np.power(np.float64(x), np.float64(y)).astype(base)
    model = one_node("Pow", inputs, [base], opset=15)
    check(model, inputs, 11, [expected], rtol=1e-6 if np.issubdtype(base, np.floating) else 0)


def test_powers_of_64_bits_and_floats_are_those_of_float64() -> None:
    x, y = np.array([3, -7, 2**40 + 1, 9]), np.array([2, 3, 1, 0.5], np.float32)
    inputs = {"X": x, "Y": y}
    expected = np.power(np.float64(x), np.float64(y)).astype(np.int64)
    check(one_node("Pow", inputs, [np.int64], opset=15), inputs, 11, [expected])


_EXPONENTS = [0, 1, 2, 3, 7, 62, 63, 64, 65, -1, -2, -9, 2**62, -(2**63)]


@pytest.mark.parametrize("base", [2, 3, -5, 1, -1, 10, 2**31 + 5])
def test_powers_of_64_bits_are_whole(base: int) -> None:
    """Each that int64 holds is exact; beyond, nothing is said."""
    held = {y: _whole(base, y) for y in _EXPONENTS}
    held = {y: power for y, power in held.items() if power is not None}
    inputs = {"X": np.array([[base]]), "Y": np.array(list(held))}
    model = one_node("Pow", inputs, [np.int64], opset=15)
    check(model, inputs, 11, [np.array([list(held.values())])])


def _whole(base: int, exponent: int) -> int | None:
    """Return a power cut off to an integer; None where int64 does not hold it."""
    if abs(base) == 1:
        return 1 if exponent % 2 == 0 else base
    if exponent < 0:
        return 0
    power = base**exponent if exponent < 64 else 2**64
    return power if -(2**63) <= power < 2**63 else None
