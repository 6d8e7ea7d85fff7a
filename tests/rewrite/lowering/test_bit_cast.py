"""BitCast of integers, for opsets that lack it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rewrite.lowering.integers import SIGNED, UNSIGNED, numbers
from tests.rewrite.lowering.single import check, one_node, refusal


@pytest.mark.parametrize(("signed", "unsigned"), list(zip(SIGNED, UNSIGNED, strict=True)))
def test_bit_casts_between_integers_of_one_width(signed: type, unsigned: type) -> None:
    for given, to in ((signed, unsigned), (unsigned, signed), (signed, signed)):
        inputs = {"input": numbers(given)}
        number = {
            np.int8: 3, np.int16: 5, np.int32: 6, np.int64: 7,
            np.uint8: 2, np.uint16: 4, np.uint32: 12, np.uint64: 13,
        }[to]  # fmt: skip
        model = one_node("BitCast", inputs, [to], opset=26, to=number)
        check(model, inputs, 18, [inputs["input"].view(to)])


def test_bit_casts_of_floats_are_refused() -> None:
    inputs = {"input": np.ones(3, np.float32)}
    found = refusal(one_node("BitCast", inputs, [np.int32], opset=26, to=6), 21)
    assert (found.code, found.lowest_opset) == ("element-type", 26)


@pytest.mark.parametrize(("to", "number"), [(np.uint8, 2), (np.int8, 3)])
def test_a_bool_is_a_byte(to: type, number: int) -> None:
    inputs = {"input": np.array([True, False, True])}
    model = one_node("BitCast", inputs, [to], opset=26, to=number)
    check(model, inputs, 13, [np.array([1, 0, 1], to)])


def test_bytes_are_no_bools() -> None:
    inputs = {"input": np.array([0, 1, 2], np.uint8)}
    assert refusal(one_node("BitCast", inputs, [np.bool_], opset=26, to=9), 21).lowest_opset == 26
