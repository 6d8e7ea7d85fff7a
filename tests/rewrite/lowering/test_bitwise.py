"""BitwiseAnd, Or, Xor and Not, for opsets that lack them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.grids import each, part
from tests.rewrite.lowering.integers import SIGNED, UNSIGNED, numbers
from tests.rewrite.lowering.single import check, one_node, refusal


@pytest.mark.long
@part(8)
@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED)
@pytest.mark.parametrize("op", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
def test_bitwise_operators_of_two_operands(op: str, dtype: type) -> None:
    x = numbers(dtype)
    compute = {
        "BitwiseAnd": np.bitwise_and,
        "BitwiseOr": np.bitwise_or,
        "BitwiseXor": np.bitwise_xor,
    }[op]
    inputs = {"A": x[:, None], "B": x[::-1]}
    model = one_node(op, inputs, [dtype], opset=18)
    for target in (11, 17):
        check(model, inputs, target, [compute(x[:, None], x[::-1])])


@each("dtype", SIGNED + UNSIGNED)
def test_bitwise_not(dtype: type) -> None:
    inputs = {"X": numbers(dtype)}
    check(one_node("BitwiseNot", inputs, [dtype], opset=18), inputs, 11, [~inputs["X"]])


def test_bitwise_operators_of_unknown_rank_are_refused() -> None:
    inputs = {"A": numbers(np.int32), "B": numbers(np.int32)}
    model = one_node("BitwiseAnd", inputs, [np.int32], opset=18, dims={"A": None})
    found = refusal(model, 17)
    assert (found.code, found.lowest_opset) == ("unknown-rank", 18)
