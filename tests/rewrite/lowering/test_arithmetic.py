"""Mod, Pow, Max and Min, and integer arithmetic, where an older opset lacks the element types."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.rewrite.lowering.single import check, one_node, refusal, results

_INF, _NAN = np.inf, np.nan


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_the_floored_remainder_has_the_sign_of_the_divisor(dtype: type) -> None:
    numbers = [5.5, -5.5, 0.0, -0.0, 2.0, -2.0, 0.7, -1e-3, _INF, -_INF, _NAN]
    pairs = np.array(list(itertools.product(numbers, numbers)), dtype)
    inputs = {"A": pairs[:, 0], "B": pairs[:, 1]}
    with np.errstate(all="ignore"):
        expected = np.mod(inputs["A"], inputs["B"])
    model = one_node("Mod", inputs, [dtype], opset=28)
    model.ir_version = 13
    check(model, inputs, 13, [expected])
    (got,) = results(_shaped(model), inputs, 13)
    zero = (expected == 0) & ~np.isinf(inputs["B"])
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(inputs["B"][zero]))


def _shaped(model):  # type: ignore[no-untyped-def]
    model.graph.output[0].type.tensor_type.shape.dim.add().dim_param = "n"
    return model


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


_INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


@pytest.mark.parametrize("dtype", _INTEGERS)
@pytest.mark.parametrize("op", ["Max", "Min"])
def test_the_extremes_of_a_type_stay_exact(op: str, dtype: type) -> None:
    limits = np.iinfo(dtype)
    x = np.array([limits.max, limits.max - 1, limits.min, limits.min + 1, 3], dtype)
    inputs = {"a": x[:, None], "b": x, "c": np.array([5], dtype)}
    compute = np.maximum if op == "Max" else np.minimum
    expected = compute(compute(x[:, None], x), np.array([5], dtype))
    check(one_node(op, inputs, [dtype], opset=13), inputs, 11, [expected])


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
