"""Cast: the special values of its tables, and what it settles where the text is open."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.conversion.cast import cast_6, cast_like_15
from tests.grids import each, search
from tests.runtime.kernels.arrays import recording

INF, NAN = np.inf, np.nan
E8M0 = ml_dtypes.float8_e8m0fnu
INT4, UINT4, INT2, UINT2 = ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2


def cast(x: Any, to: Any, **attributes: Any) -> tuple[np.ndarray, list[str]]:
    context, warnings = recording()
    to_number = ir.DataType.from_numpy(np.dtype(to)) if to is not object else ir.DataType.STRING
    got = cast_6(x, to=int(to_number), context=context, **attributes)
    assert got.dtype == np.dtype(to) and got.shape == x.shape
    return got, warnings


SCALES = [
    # number, mode, saturated code, unsaturated code
    (0.0, "up", 0, 255),
    (0.0, "nearest", 0, 255),
    (NAN, "up", 255, 255),
    (INF, "up", 254, 255),
    (2.0**127, "up", 254, 254),
    (1.25 * 2.0**127, "up", 254, 255),
    (1.25 * 2.0**127, "down", 254, 255),
    (1.25 * 2.0**127, "nearest", 254, 255),
    (2.0**-127, "up", 0, 0),
    (2.0**-127, "down", 0, 0),
    (2.0**-127, "nearest", 0, 0),
    (1.5 * 2.0**-127, "up", 1, 1),
    (1.5 * 2.0**-127, "nearest", 1, 1),
    (1.25 * 2.0**-127, "nearest", 0, 0),
    (2.0**-128, "up", 0, 255),
    (2.0**-149, "nearest", 0, 255),
    (1.0, "up", 127, 127),
    (1.0000001, "up", 128, 128),
    (1.9999, "down", 127, 127),
    (1.5, "nearest", 128, 128),
    (1.4999, "nearest", 127, 127),
    (3.0, "nearest", 129, 129),
    (6.0, "down", 129, 129),
]


@each(("x", "mode", "saturated", "strict"), SCALES)
def test_scales_by_the_table(x: float, mode: str, saturated: int, strict: int) -> None:
    for saturate, expected in ((1, saturated), (0, strict)):
        got, warnings = cast(np.array([x]), E8M0, saturate=saturate, round_mode=mode)
        assert got.view(np.uint8).tolist() == [expected] and not warnings


def test_scales_of_float32_subnormals_survive_the_round_trip() -> None:
    every = np.arange(256, dtype=np.uint8).view(E8M0)
    wide, _ = cast(every, np.float32)
    assert wide[:255].astype(np.float64).tolist() == [2.0 ** (k - 127) for k in range(255)]
    for mode in ("up", "down", "nearest"):
        assert (cast(wide, E8M0, round_mode=mode)[0].view(np.uint8) == every.view(np.uint8)).all()


def test_negative_scales_are_nan_with_a_warning() -> None:
    got, warnings = cast(np.array([[1.0, -2.0, -0.0]], np.float32), E8M0)
    assert got.view(np.uint8).tolist() == [[127, 255, 0]]
    assert warnings == [
        "`input`[0, 1] is -2.0 (and 1 more): what it becomes as float8_e8m0fnu is undefined"
    ]


def test_an_unknown_rounding_is_refused() -> None:
    with pytest.raises(KernelError, match="`round_mode` is `even`, expected `up`"):
        cast(np.array([1.0]), E8M0, round_mode="even")


INTEGERS = [
    pytest.param([3.99, -3.99, -0.5], np.int8, [3, -3, 0], id="truncation towards zero"),
    pytest.param([9.0, -9.0], INT4, [-7, 7], id="int4 as the backend cases have it"),
    pytest.param([-3.0, 4.0], UINT2, [1, 0], id="uint2 as the backend cases have it"),
    pytest.param([2.0, -3.0], INT2, [-2, 1], id="int2 as the backend cases have it"),
    pytest.param([300.7, 70000.5, 3e9, NAN], np.uint8, [44, 112, 0, 0], id="uint8 through int32"),
    pytest.param([3e9, -INF, NAN], np.int32, [-(2**31)] * 3, id="int32 has its least number"),
    pytest.param([-1.0, 5e9], np.uint32, [2**32 - 1, 705032704], id="uint32 through int64"),
    pytest.param([2.0**63, -1e300], np.int64, [-(2**63)] * 2, id="int64 has its least number"),
    pytest.param([-1.0, NAN], np.uint64, [2**64 - 1, 2**63], id="uint64 through int64"),
]


@each(("values", "to", "expected"), INTEGERS)
def test_floats_to_integers(values: list[float], to: Any, expected: list[int]) -> None:
    got, warnings = cast(np.array(values), to)
    assert got.astype(object).tolist() == expected
    assert len(warnings) == (0 if values[0] == 3.99 else 1)


@pytest.mark.parametrize("source", [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.float16])
def test_nan_of_narrow_floats_is_undefined_among_integers(source: Any) -> None:
    got, warnings = cast(np.array([1.0, NAN, -3.5], source), np.int64)
    assert got.tolist() == [1, -(2**63), -3]
    assert warnings == ["`input`[1] is nan: what it becomes as int64 is undefined"]


def test_the_largest_uint64_is_in_range() -> None:
    got, warnings = cast(np.array([2.0**63, 2.0**64 - 2048]), np.uint64)
    assert got.tolist() == [2**63, 2**64 - 2048] and not warnings


def test_numpy_agrees_where_it_is_defined() -> None:
    values = np.random.default_rng(3).uniform(-200, 200, 1000)
    for to in (np.int16, np.int32, np.int64):
        assert (cast(values, to)[0] == values.astype(to)).all()


@each("source", [np.int64, np.int16, np.uint64])
@each("to", [np.int8, np.uint8, np.uint32, INT4, UINT4, INT2, UINT2])
def test_integers_lose_higher_bits(source: Any, to: Any) -> None:
    values = np.array([200, 7, 8, 13, 30000, 3], source)
    if np.dtype(source).kind == "i":
        values = np.concatenate([values, -values])
    bits = {INT4: 4, UINT4: 4, INT2: 2, UINT2: 2}.get(to) or 8 * np.dtype(to).itemsize
    signed = to in (INT4, INT2) or np.dtype(to).kind == "i"
    half = 1 << (bits - 1) if signed else 0
    expected = [((int(v) + half) % (1 << bits)) - half for v in values]
    got, warnings = cast(values, to)
    assert got.astype(np.int64).tolist() == expected and not warnings


@each("source", [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_all_but_zeros_are_true(source: Any) -> None:
    got, _ = cast(np.array([0.0, -0.0, NAN, INF, 0.25], source), np.bool_)
    assert got.tolist() == [False, False, True, True, True]


@each("to", [np.float32, np.int8, INT4, ml_dtypes.float8_e4m3fn, np.float16])
def test_bool_is_one_and_zero(to: Any) -> None:
    assert cast(np.array([True, False]), to)[0].astype(float).tolist() == [1, 0]


def test_float4_without_nan_warns() -> None:
    got, warnings = cast(np.array([NAN, INF, -INF, 5.0]), ml_dtypes.float4_e2m1fn)
    assert got.view(np.uint8).tolist() == [8, 7, 15, 6] and len(warnings) == 1


STRINGS = [
    pytest.param(np.array([1.0, -0.5], np.float32), ["1.0", "-0.5"], id="plain"),
    pytest.param(np.array([314.15926]), ["314.15926"], id="the example of the text"),
    pytest.param(np.array([1e20, 1e-7]), ["1" + "0" * 20 + ".0", "0.0000001"], id="no exponent"),
    pytest.param(np.array([0.1], np.float16), ["0.1"], id="the fewest digits of float16"),
    pytest.param(np.array([0.1], np.float32), ["0.1"], id="the fewest digits of float32"),
    pytest.param(np.array([NAN, INF, -INF]), ["NaN", "INF", "-INF"], id="special values"),
    pytest.param(np.array([-8, 7], INT4), ["-8", "7"], id="int4"),
    pytest.param(np.array([2**64 - 1], np.uint64), [str(2**64 - 1)], id="uint64"),
    pytest.param(np.array([True, False]), ["1", "0"], id="booleans as in onnxruntime"),
    pytest.param(np.array([0.5], ml_dtypes.bfloat16), ["0.5"], id="bfloat16"),
]


@each(("values", "expected"), STRINGS)
def test_numbers_to_strings(values: np.ndarray, expected: list[str]) -> None:
    got, _ = cast(values, object)
    assert got.tolist() == expected


PARSED = [
    pytest.param(["3.14", "1000", "1e-5", "1E8", " .5 "], np.float64,
                 [3.14, 1000, 1e-5, 1e8, 0.5], id="plain and scientific"),
    pytest.param(["inf", "+INF", "-Inf", "INF"], np.float32, [INF, INF, -INF, INF], id="infinity"),
    pytest.param(["1e400", "-1e400", "1e-400"], np.float32, [INF, -INF, 0], id="out of range"),
    pytest.param(["1000", "-7", "1e3"], np.int64, [1000, -7, 1000], id="integers"),
    pytest.param(["9007199254740993"], np.int64, [2**53 + 1], id="integers beyond float64"),
    pytest.param(["0", "2", "-0.0"], np.bool_, [False, True, False], id="booleans"),
    pytest.param(["448", "1e9"], ml_dtypes.float8_e4m3fn, [448, 448], id="float 8 saturates"),
    # Just above the midpoint of 1 and the next float32, by less than float64 resolves.
    pytest.param(["1.00000005960464477539062500000001"], np.float32, [1 + 2.0**-23],
                 id="float32 rounds the decimal once"),
    pytest.param(["1.06250000000000000000000000001"], ml_dtypes.float8_e4m3fn, [1.125],
                 id="float 8 rounds the decimal once"),
    pytest.param(["1.000000059604644775390625"], np.float32, [1.0], id="a tie goes to even"),
]  # fmt: skip


@each(("texts", "to", "expected"), PARSED)
def test_strings_to_numbers(texts: list[str], to: Any, expected: list[Any]) -> None:
    got, warnings = cast(np.array(texts, object), to)
    assert got.astype(object).tolist() == expected and not warnings


def test_strings_of_numpy_are_read_too() -> None:
    assert cast(np.array(["1.5", "-2"]), np.float32)[0].tolist() == [1.5, -2]


def test_nan_is_read_in_any_case() -> None:
    assert np.isnan(cast(np.array(["NaN", "nan", "NAN"], object), np.float32)[0]).all()


def test_fractions_to_integers_warn() -> None:
    got, warnings = cast(np.array(["100.5"], object), np.int32)
    assert got.tolist() == [100]
    assert warnings == [
        "`input`[0] is '100.5': a fraction cast to int32 is undefined, taken as truncated"
    ]


@each(
    ("text", "to", "message"),
    [
        ("Hello World!", np.float32, r"`input`\[0\] is 'Hello World!', expected a decimal number"),
        ("", np.float32, "is '', expected a decimal number"),
        ("1_000", np.float32, "expected a decimal number"),
        ("0x10", np.int32, "expected a decimal number"),
        ("infinity", np.float32, "expected a decimal number"),
        ("300", np.int8, "which int8 cannot represent: expected -128 to 127"),
        ("inf", np.int32, "which int32 cannot represent"),
        ("1e99999", np.int32, "expected an exponent of at most 3 digits"),
    ],
)
def test_strings_that_are_refused(text: str, to: Any, message: str) -> None:
    with pytest.raises(KernelError, match=message):
        cast(np.array([text], object), to)


def test_complex_numbers_and_unknown_types_are_refused() -> None:
    context, _ = recording()
    with pytest.raises(KernelError, match="complex64 cannot be cast"):
        cast_6(np.ones(2, np.complex64), to=1, context=context)
    with pytest.raises(KernelError, match="`to` is 99, expected the number of a data type"):
        cast_6(np.ones(2), to=99, context=context)


def test_cast_like_takes_the_type_of_any_shape() -> None:
    context, _ = recording()
    target = np.zeros((0, 3), ml_dtypes.float8_e5m2)
    got = cast_like_15(np.array(70000.0), target, saturate=0, context=context)
    assert got.dtype == target.dtype and got.shape == () and np.isinf(got)


@search(150)
@given(
    value=st.integers(-(2**63), 2**63 - 1),
    to=st.sampled_from([np.int8, np.uint8, np.int16, np.uint32, np.uint64, INT4, UINT2]),
)
def test_casting_to_integers_and_back_is_a_congruence(value: int, to: Any) -> None:
    got, _ = cast(np.array([value]), to)
    bits = {INT4: 4, UINT2: 2}.get(to) or 8 * np.dtype(to).itemsize
    assert (int(got[0]) - value) % (1 << bits) == 0


@search(150)
@given(value=st.floats(width=32, allow_nan=False), to=st.sampled_from([np.float64, np.float32]))
def test_strings_give_the_same_number_back(value: float, to: Any) -> None:
    number = np.array([value], to)
    assert cast(cast(number, object)[0], to)[0].tobytes() == number.tobytes()
