"""BitShift of signed integers, for opsets that lack it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rewrite.lowering.integers import SIGNED, numbers
from tests.rewrite.lowering.single import check, one_node


@pytest.mark.parametrize("dtype", SIGNED)
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts_of_signed_integers(direction: str, dtype: type) -> None:
    """Every number by every amount, those outside of the width among them."""
    width = np.iinfo(dtype).bits
    x, y = numbers(dtype), np.arange(-2, width + 3).astype(dtype)
    expected = np.zeros((len(x), len(y)), dtype)
    for i, number in enumerate(x):
        for j, amount in enumerate(y):
            count = width if not 0 <= amount < width else int(amount)
            exact = int(number) >> count if direction == "RIGHT" else int(number) << count
            wrapped = (exact + 2 ** (width - 1)) % 2**width - 2 ** (width - 1)
            expected[i, j] = wrapped
    inputs = {"X": x[:, None], "Y": y}
    model = one_node("BitShift", inputs, [dtype], opset=28, direction=direction)
    model.ir_version = 13
    for target in (11, 21):
        check(model, inputs, target, [expected])
