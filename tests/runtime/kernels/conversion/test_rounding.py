"""Every rounding to a narrow float against the oracle in rationals."""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_kvtool.runtime.kernels.conversion.cast import convert
from tests.grids import each, grid, part, rest, search
from tests.runtime.kernels.conversion.oracle import TYPES, NarrowType

pytestmark = pytest.mark.long

FLOAT8 = [name for name in TYPES if "float8" in name]


def codes(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint8 if array.itemsize == 1 else np.uint16).astype(np.int64)


NO_NAN = ("float6e2m3", "float6e3m2", "float4e2m1")


@functools.cache
def nearest(name: str, magnitude: float) -> int | None:
    return TYPES[name].nearest(magnitude)


def expected_code(name: str, x: float, saturate: bool) -> int | None:
    """Return the code by the tables of Cast; None for any NaN."""
    kind = TYPES[name]
    if math.isnan(x):
        return 1 << kind.bits if name in NO_NAN else None
    sign = 1 << kind.bits if math.copysign(1, x) < 0 else 0
    found = None if math.isinf(x) else nearest(name, abs(x))
    if found is not None:
        return found if found == 0 and kind.unsigned_zero else sign | found
    if name in NO_NAN or (name in FLOAT8 and saturate):
        return sign | kind.largest
    infinity = [code for code, what in kind.specials.items() if what == "inf"]
    return sign | infinity[0] if infinity else None


def check(name: str, values: np.ndarray, saturate: bool) -> None:
    kind = TYPES[name]
    got = convert(values, kind.dtype, saturate=saturate)
    assert got.dtype == kind.dtype and got.shape == values.shape
    with np.errstate(invalid="ignore"):  # signalling NaNs
        doubles = values.astype(np.float64)
    for x, code in zip(doubles.tolist(), codes(got).tolist(), strict=True):
        wanted = expected_code(name, x, saturate)
        if wanted is None:
            assert is_nan(kind, code), (x, hex(code))
        else:
            assert code == wanted, (x, hex(code), hex(wanted))


def is_nan(kind: NarrowType, code: int) -> bool:
    if kind.unsigned_zero:
        return code == 1 << kind.bits
    return kind.specials.get(code & ((1 << kind.bits) - 1)) == "nan"


@functools.cache
def boundaries(name: str) -> np.ndarray:
    """Return every number of a type and every midpoint in float64, with both neighbours."""
    kind = TYPES[name]
    numbers = [float(value) for value, _ in kind.finite()]
    step = numbers[-1] - numbers[-2]
    numbers += [numbers[-1] + step, numbers[-1] + 2 * step, 3e38, 1e300]
    middles = [(a + b) / 2 for a, b in itertools.pairwise(numbers)]
    exact = np.array(numbers + middles)
    near = np.concatenate([exact, np.nextafter(exact, np.inf), np.nextafter(exact, -np.inf)])
    return np.concatenate([near, -near, [np.nan, np.inf, -np.inf, 5e-324, -5e-324]])


@pytest.mark.parametrize("saturate", [True, False], ids=["saturating", "not saturating"])
@pytest.mark.parametrize("name", [n for n in TYPES if n not in ("float16", "bfloat16")])
def test_every_boundary_in_float64_and_float32(name: str, saturate: bool) -> None:
    doubles = boundaries(name)
    check(name, doubles, saturate)
    with np.errstate(over="ignore"):
        singles = doubles.astype(np.float32)
    near = [singles, np.nextafter(singles, np.float32(9)), np.nextafter(singles, np.float32(-9))]
    check(name, np.unique(np.concatenate(near)), saturate)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_boundaries_of_16_bits_in_float64(name: str) -> None:
    doubles = boundaries(name)
    check(name, doubles[:: 7 if name == "float16" else 5], saturate=True)


@grid(4, name=FLOAT8, source=["float16", "bfloat16"])
def test_all_65536_codes_of_16_bits_to_float8(name: str, source: str) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(TYPES[source].dtype)
    for saturate in (True, False):
        check(name, every, saturate)


@pytest.mark.long
@pytest.mark.parametrize("name", rest("float4e2m1", "float6e2m3", "float6e3m2"))
def test_all_65536_codes_of_float16_to_narrower_ones(name: str) -> None:
    check(name, np.arange(1 << 16, dtype=np.uint16).view(np.float16), saturate=True)


@pytest.mark.exhaustive
@pytest.mark.long
@each("target", list(TYPES))
@each("source", [n for n in TYPES if n not in ("float16", "bfloat16")])
def test_every_narrow_code_to_every_type(source: str, target: str) -> None:
    kind = TYPES[source]
    every = np.arange(2 << kind.bits, dtype=np.uint8).view(kind.dtype)
    if source == target:
        assert convert(every, kind.dtype) is every
        return
    check(target, every, saturate=True)


@pytest.mark.long
@pytest.mark.parametrize("name", TYPES)
def test_widening_is_exact(name: str) -> None:
    kind = TYPES[name]
    values, every = zip(*kind.finite(), strict=True)
    width = np.uint8 if kind.dtype.itemsize == 1 else np.uint16
    numbers = np.array(every, width).view(kind.dtype)
    for wide in (np.float64, np.float32):
        found = convert(numbers, np.dtype(wide)).tolist()
        assert [Fraction(one) for one in found] == [*values]


@part(2)
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("sign", [1, -1], ids=["positive", "negative"])
def test_integers_of_64_bits_round_once(name: str, sign: int) -> None:
    kind = TYPES[name]
    dtype = np.dtype(np.int64)
    middles = []
    for shift in range(3, 62 - kind.mantissa):
        unit = 1 << shift
        middle = (1 << kind.mantissa) * unit + unit // 2
        middles += [middle - 1, middle, middle + 1, middle + unit - 1, middle + unit]
    values = np.array([sign * m for m in middles if m < 2**63], dtype)
    exact = [expected_int(name, int(v)) for v in values]
    assert codes(convert(values, kind.dtype)).tolist() == exact


def expected_int(name: str, value: int) -> int:
    kind = TYPES[name]
    found = kind.nearest(value)
    sign = 1 << kind.bits if value < 0 else 0
    if found is None:
        if name in ("float16", "bfloat16"):
            return sign | next(c for c, s in kind.specials.items() if s == "inf")
        found = kind.largest
    return sign | found


def test_uint64_rounds_once() -> None:
    value = (0b100000001 << 55) + 1  # just above a midpoint of bfloat16, by less than float64 has
    got = convert(np.array([value, value - 1], np.uint64), np.dtype(ml_dtypes.bfloat16))
    assert got.astype(np.float64).tolist() == [0b10000001 * 2.0**56, 2.0**63]


def test_float64_to_bfloat16_does_not_round_twice() -> None:
    value = 1 + 2.0**-8 + 2.0**-40  # float32 would take it to the midpoint of bfloat16
    got = convert(np.array([value]), np.dtype(ml_dtypes.bfloat16))
    assert float(got[0]) == 1 + 2.0**-7


def test_nan_keeps_its_sign_where_the_table_says_so() -> None:
    nans = np.array([0x7FC00000, 0xFFC00000], np.uint32).view(np.float32)
    for name in ("float8e4m3fn", "float8e5m2"):
        got = codes(convert(nans, TYPES[name].dtype, saturate=False))
        assert [code >> 7 for code in got.tolist()] == [0, 1]


@search(200)
@given(
    x=st.floats(width=64),
    name=st.sampled_from(sorted(TYPES)),
    saturate=st.booleans(),
)
def test_any_double(x: float, name: str, saturate: bool) -> None:
    check(name, np.array([x]), saturate)
