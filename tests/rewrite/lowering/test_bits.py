"""BitShift, Bitwise* and BitCast of integers, for opsets that lack them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.rewrite.lowering.single import check, one_node, refusal

_SIGNED = [np.int8, np.int16, np.int32, np.int64]
_UNSIGNED = [np.uint8, np.uint16, np.uint32, np.uint64]


def _numbers(dtype: type) -> np.ndarray:
    """Return the limits of a type and numbers between them."""
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(13)
    drawn = rng.integers(limits.min, limits.max, 20, dtype=dtype, endpoint=True)
    edges = [limits.min, limits.min + 1, limits.max, 0, 1, limits.max // 3]
    return np.concatenate([np.array(edges, dtype), drawn])


@pytest.mark.parametrize("dtype", _SIGNED)
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts_of_signed_integers(direction: str, dtype: type) -> None:
    """Every number by every amount, those outside of the width among them."""
    width = np.iinfo(dtype).bits
    x, y = _numbers(dtype), np.arange(-2, width + 3).astype(dtype)
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


@pytest.mark.parametrize("dtype", _SIGNED + _UNSIGNED)
@pytest.mark.parametrize("op", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
def test_bitwise_operators_of_two_operands(op: str, dtype: type) -> None:
    x = _numbers(dtype)
    compute = {
        "BitwiseAnd": np.bitwise_and,
        "BitwiseOr": np.bitwise_or,
        "BitwiseXor": np.bitwise_xor,
    }[op]
    inputs = {"A": x[:, None], "B": x[::-1]}
    model = one_node(op, inputs, [dtype], opset=18)
    for target in (11, 17):
        check(model, inputs, target, [compute(x[:, None], x[::-1])])


@pytest.mark.parametrize("dtype", _SIGNED + _UNSIGNED)
def test_bitwise_not(dtype: type) -> None:
    inputs = {"X": _numbers(dtype)}
    check(one_node("BitwiseNot", inputs, [dtype], opset=18), inputs, 11, [~inputs["X"]])


def test_bitwise_operators_of_unknown_rank_are_refused() -> None:
    inputs = {"A": _numbers(np.int32), "B": _numbers(np.int32)}
    model = one_node("BitwiseAnd", inputs, [np.int32], opset=18, dims={"A": None})
    found = refusal(model, 17)
    assert (found.code, found.lowest_opset) == ("unknown-rank", 18)


@pytest.mark.parametrize(("signed", "unsigned"), list(zip(_SIGNED, _UNSIGNED, strict=True)))
def test_bit_casts_between_integers_of_one_width(signed: type, unsigned: type) -> None:
    for given, to in ((signed, unsigned), (unsigned, signed), (signed, signed)):
        inputs = {"input": _numbers(given)}
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
