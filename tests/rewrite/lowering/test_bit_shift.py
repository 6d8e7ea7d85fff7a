"""BitShift, for opsets that lack it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from tests.dialect import departures
from tests.grids import part
from tests.rewrite.lowering.integers import SIGNED, UNSIGNED, numbers
from tests.rewrite.lowering.single import check, one_node


@pytest.mark.long
@part(2)
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
    for target in (9, 11, 21):
        check(model, inputs, target, [expected])


@pytest.mark.parametrize("dtype", UNSIGNED)
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts_of_unsigned_integers(direction: str, dtype: type) -> None:
    """By amounts up to 63, of which those beyond the width leave nothing."""
    x, y = numbers(dtype), np.arange(64).astype(dtype)
    exact = [[int(n) << k if direction == "LEFT" else int(n) >> k for k in range(64)] for n in x]
    expected = (np.array(exact, object) % 2 ** np.iinfo(dtype).bits).astype(dtype)
    model = one_node("BitShift", {"X": x[:, None], "Y": y}, [dtype], opset=11, direction=direction)
    check(model, {"X": x[:, None], "Y": y}, 10, [expected])


@part(2)
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize(
    ("dtype", "opset", "target"),
    [
        *((dtype, 11, 10) for dtype in (np.uint8, np.uint16)),
        *((dtype, 28, to) for dtype in (np.int8, np.int16, np.int32) for to in (9, 18)),
    ],
)
def test_numbers_that_int32_holds_are_shifted_by_such(dtype, opset, target, direction) -> None:
    x = numbers(dtype)
    model = one_node("BitShift", {"X": x, "Y": x}, [dtype], opset=opset, direction=direction)
    model.ir_version = 13 if opset > 25 else 10
    lowered, _ = kv.lower(model, opset=target, verify=False)
    assert departures(lowered, ir.from_proto(model)) == []
