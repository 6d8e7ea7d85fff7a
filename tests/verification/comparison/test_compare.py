"""What counts as a difference between two values of an output."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

from onnx_kvtool.verification.comparison.differences import (
    OutputDifference,
    Tolerance,
    bits_differ,
    compare,
    largest,
    tolerance_of,
)
from tests.grids import each

F = np.float32


def f32(*values: float) -> np.ndarray:
    return np.array(values, F)


def bits(*words: int) -> np.ndarray:
    """Return float32 numbers of these bits."""
    return np.array(words, np.uint32).view(F)


def text(*values: str) -> np.ndarray:
    return np.array(values, object)


class Case(NamedTuple):
    """Two values, what is asked for, and what must be found."""

    expected: Any
    actual: Any
    exact: Any = False
    bit_equal: bool = False
    largest: float | None = 0.0
    mismatch: str | None = None


def bf16(value: float) -> np.ndarray:
    return np.array([value], ml_dtypes.bfloat16)


def e4m3(value: float) -> np.ndarray:
    return np.array([value], ml_dtypes.float8_e4m3fn)


AGREE: dict[str, Case] = {
    "equal": Case(f32(1, 2), f32(1, 2), exact=True, bit_equal=True),
    "within the tolerance": Case(f32(1, 2), f32(1, 2.0001), largest=1e-4),
    "small values within the absolute tolerance": Case(f32(0), f32(9e-6), largest=9e-6),
    "NaN and another NaN": Case(bits(0x7FC00000, 0), bits(0x7FC00001, 0)),
    "infinities of one sign": Case(f32(np.inf, -np.inf), f32(np.inf, -np.inf), bit_equal=True),
    "zeros of two signs": Case(f32(0.0), f32(-0.0)),
    "no elements": Case(np.zeros((0, 3), F), np.zeros((0, 3), F), exact=True, bit_equal=True),
    "equal strings": Case(text("a", "b"), text("a", "b"), exact=True, bit_equal=True),
    "bfloat16 within its tolerance": Case(bf16(2), bf16(2.0625), largest=0.0625),
    "float8 one unit apart": Case(e4m3(16), e4m3(18), largest=2.0),
    "complex within the tolerance": Case(
        np.array([1 + 1j], np.complex64), np.array([1 + 1.00001j], np.complex64), largest=1e-5
    ),
    "exact where it is asked for": Case(
        f32(1, 2), f32(1.00001, 2), exact=np.array([False, True]), largest=1e-5
    ),
}

DIFFER: dict[str, Case] = {
    "rounding where bits are asked for": Case(
        *(f32(1, 2), f32(1, 2.5)), exact=True, largest=0.5, mismatch="at [1] is 2.5, expected 2"
    ),
    "beyond the tolerance": Case(
        f32(1, 2), f32(1, 2.001), largest=1e-3, mismatch="at [1] is 2.00099993, expected 2"
    ),
    "another payload is another NaN in bits": Case(
        *(bits(0x7FC00001), bits(0x7FC00002)),
        exact=True,
        mismatch="at [0] is nan (0x7fc00002), expected nan (0x7fc00001)",
    ),
    "NaN is no number": Case(
        f32(np.nan), f32(1), mismatch="at [0] is 1, expected nan (0x7fc00000)"
    ),
    "infinities of two signs": Case(
        f32(np.inf), f32(-np.inf), mismatch="at [0] is -inf, expected inf"
    ),
    "an infinity is no large number": Case(
        f32(2.0**127), f32(np.inf), mismatch="at [0] is inf, expected 1.70141183e+38"
    ),
    "zeros of two signs in bits": Case(
        f32(0.0), f32(-0.0), exact=True, mismatch="at [0] is -0, expected 0"
    ),
    "a scalar": Case(F(1), F(3), largest=2.0, mismatch="is 3, expected 1"),
    "another shape": Case(np.zeros((2, 3), F), np.zeros((3, 2), F), largest=None),
    "another shape without elements": Case(np.zeros((0, 3), F), np.zeros((0, 5), F), largest=None),
    "another dtype": Case(f32(1), np.array([1.0]), largest=None),
    "integers have no tolerance": Case(
        *(np.array([7, 2**40]), np.array([7, 2**40 + 1])),
        largest=1.0,
        mismatch="at [1] is 1099511627777, expected 1099511627776",
    ),
    "integers at both ends": Case(
        *(np.array([-(2**63)]), np.array([2**63 - 1])),
        largest=2.0**64,
        mismatch="at [0] is 9223372036854775807, expected -9223372036854775808",
    ),
    "booleans": Case(
        *(np.array([True, False]), np.array([True, True])),
        largest=1.0,
        mismatch="at [1] is True, expected False",
    ),
    "strings": Case(text("a", "b"), text("a", "c"), mismatch="at [1] is 'c', expected 'b'"),
    "bfloat16 beyond its tolerance": Case(
        bf16(2), bf16(2.25), largest=0.25, mismatch="at [0] is 2.25, expected 2"
    ),
    "float8 two units apart": Case(
        e4m3(16), e4m3(20), largest=4.0, mismatch="at [0] is 20, expected 16"
    ),
    "int4": Case(
        *(np.array([-8, 1], ml_dtypes.int4), np.array([7, 1], ml_dtypes.int4)),
        largest=15.0,
        mismatch="at [0] is 7, expected -8",
    ),
    "both parts of a complex number": Case(
        *(np.array([1, 2], np.complex128), np.array([1, 2 + 1j], np.complex128)),
        exact=True,
        largest=1.0,
        mismatch="at [1] is (2+1j), expected (2+0j)",
    ),
    "not exact where it is asked for": Case(
        *(f32(2, 2), f32(2.00001, 2.00001)),
        exact=np.array([False, True]),
        largest=1e-5,
        mismatch="at [1] is 2.00001001, expected 2",
    ),
}


@each("case", [pytest.param(c, id=name) for name, c in AGREE.items()])
def test_values_that_agree(case: Case) -> None:
    found = compare("y", case.expected, case.actual, exact=case.exact)
    assert (found.within, found.bit_equal) == (True, case.bit_equal)
    assert found.max_abs_diff == pytest.approx(case.largest, rel=1e-2)
    assert (found.first_mismatch, found.reason) == (None, None)


@each("case", [pytest.param(c, id=name) for name, c in DIFFER.items()])
def test_values_that_differ(case: Case) -> None:
    found = compare("y", case.expected, case.actual, exact=case.exact)
    assert (found.within, found.bit_equal) == (False, False)
    assert found.max_abs_diff == (case.largest and pytest.approx(case.largest, rel=1e-2))
    assert (found.first_mismatch and str(found.first_mismatch)) == case.mismatch
    assert found.reason is not None
    assert (case.mismatch or "expected") in found.reason


def test_the_first_of_several_mismatches_is_named_and_all_are_counted() -> None:
    expected = np.zeros((2, 3, 5), F)
    actual = expected.copy()
    actual[0, 2, 4] = actual[1, 0, 0] = 7
    assert compare("present", expected, actual) == OutputDifference(
        name="present",
        bit_equal=False,
        within=False,
        max_abs_diff=7.0,
        first_mismatch=compare("present", expected, actual).first_mismatch,
        reason="output `present` at [0, 2, 4] is 7, expected 0 (2 of 30 elements differ)",
    )


def test_another_shape_shows_both() -> None:
    found = compare("y", np.zeros((2, 3), F), np.zeros((3, 2), np.float16))
    assert found.reason == (
        "output `y` is of dtype float16 and shape (3, 2), expected float32 and (2, 3)"
    )


def test_given_tolerances_take_the_place_of_those_of_the_dtype() -> None:
    assert not compare("y", f32(2), f32(2.0001), Tolerance(0.0, 1e-5)).within
    assert compare("y", f32(2), f32(2.5), Tolerance(0.0, 0.5)).within
    assert compare("y", np.array([5]), np.array([6]), Tolerance(0.0, 1.0)).within
    assert not compare("y", np.array([True]), np.array([False]), Tolerance(0.0, 9.0)).within


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float4_e2m1fn])
def test_the_unused_half_of_a_byte_does_not_count(dtype: Any) -> None:
    low = np.array([0x03, 0x05], np.uint8).view(dtype)
    high = np.array([0xF3, 0x06], np.uint8).view(dtype)
    assert bits_differ(low, high).tolist() == [False, True]


@each("dtype", [np.int64, np.bool_, np.uint8, object, ml_dtypes.int4])
def test_rounding_cannot_reach_discrete_types(dtype: Any) -> None:
    tolerance = tolerance_of(np.dtype(dtype))
    assert (tolerance.rtol, tolerance.atol) == (0.0, 0.0)


@each(
    ("values", "left_out", "expected"),
    [
        pytest.param(np.array([1.0, -3.0, 2.0], np.float32), False, 3.0, id="of either sign"),
        pytest.param(np.array([1, np.nan, -np.inf], np.float16), False, 1.0, id="finite ones only"),
        pytest.param(np.array([np.nan], ml_dtypes.bfloat16), False, 0.0, id="none"),
        pytest.param(np.zeros((0, 3)), False, 0.0, id="no element"),
        pytest.param(np.array([3 + 4j, 1]), False, 5.0, id="complex"),
        pytest.param(np.array([-128, 7], np.int8), False, 128.0, id="the least of an integer type"),
        pytest.param(np.full((), 2.5), False, 2.5, id="a scalar"),
        pytest.param(
            np.array([[5.0, 1.0], [4.0, 2.0]]),
            np.array([[True, False], [True, False]]),
            2.0,
            id="without some",
        ),
        pytest.param(np.array([5.0]), True, 0.0, id="without any"),
        pytest.param(np.arange(600_000), np.arange(600_000) > 599_990, 599_990.0, id="many"),
    ],
)
def test_the_largest_magnitude(values: Any, left_out: Any, expected: float) -> None:
    assert largest(values, left_out) == expected
