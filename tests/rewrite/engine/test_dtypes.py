"""The detours of operators that an older opset lacks for an element type."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.rewrite.lowering.single import check, one_node, refusal

_BF16 = ml_dtypes.bfloat16


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.uint8, np.uint16])
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
def test_narrow_integers_wrap(op: str, dtype: type) -> None:
    limits = np.iinfo(dtype)
    x = np.array([limits.max, limits.min, 7, 100, 3], dtype)
    y = np.array([limits.max, 1, 3, 2, limits.max], dtype)
    with np.errstate(all="ignore"):
        expected = {
            "Add": lambda: x + y,
            "Sub": lambda: x - y,
            "Mul": lambda: x * y,
            "Div": lambda: (x.astype(np.int64) / y.astype(np.int64)).astype(dtype),
        }[op]()
    inputs = {"A": x, "B": y}
    check(one_node(op, inputs, [dtype], opset=14), inputs, 13, [expected])


_PATTERNS = np.arange(2**16, dtype=np.uint16).view(_BF16)
_NUMBERS = _PATTERNS[~np.isnan(_PATTERNS.astype(np.float32))]


@pytest.mark.parametrize("target", [13, 18])
def test_every_bfloat16_number_passes_through_float32(target: int) -> None:
    inputs = {
        "input": _NUMBERS.reshape(2, -1),
        "sequence_lens": np.array([_NUMBERS.size // 2, 3]),
    }
    expected = inputs["input"].copy()
    expected[0] = expected[0, ::-1]
    expected[1, :3] = expected[1, 2::-1]
    model = one_node("ReverseSequence", inputs, [_BF16], opset=28, batch_axis=0, time_axis=1)
    model.ir_version = 13
    check(model, inputs, target, [expected])


def test_an_element_type_that_cast_lacks_too_is_refused() -> None:
    inputs = {"input": np.ones((2, 3), _BF16), "condition": np.array([True, False])}
    model = one_node("Compress", inputs, [_BF16], opset=28, axis=0)
    model.ir_version = 13
    found = refusal(model, 12)
    assert (found.code, found.lowest_opset) == ("element-type", 13)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_max_pool_of_bytes(dtype: type) -> None:
    x = np.random.default_rng(29).integers(0, 100, (1, 2, 5, 7)).astype(dtype)
    inputs = {"X": x}
    model = one_node("MaxPool", inputs, [dtype], opset=12, kernel_shape=[2, 2])
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 2), axis=(2, 3))
    check(model, inputs, 11, [windows.max(axis=(-2, -1))])


def test_is_inf_of_float16() -> None:
    x = np.array([np.inf, -np.inf, 65504, np.nan, 0], np.float16)
    model = one_node("IsInf", {"X": x}, [np.bool_], opset=20, detect_negative=0)
    check(model, {"X": x}, 19, [np.array([True, False, False, False, False])])


@pytest.mark.parametrize("target", [13, 23])
@pytest.mark.parametrize("dtype", [np.float16, _BF16])
@pytest.mark.parametrize(
    "bounds",
    [(0, 1000, 0.1), (5, 3, 1), (10, -4, -2)],
    ids=["a thousand small steps", "none", "downwards"],
)
def test_a_range_of_narrow_floats_is_counted_in_float32(
    bounds: tuple[float, ...], dtype: type, target: int
) -> None:
    start, limit, delta = (np.array(number, dtype) for number in bounds)
    inputs = {"start": start, "limit": limit, "delta": delta}
    wide = [np.float32(number) for number in (start, limit, delta)]
    steps = np.arange(max(np.ceil((wide[1] - wide[0]) / wide[2]), 0), dtype=np.float32)
    model = one_node("Range", inputs, [dtype], opset=27)
    model.ir_version = 13
    check(model, inputs, target, [(wide[0] + steps * wide[2]).astype(dtype)], by_reference=True)
