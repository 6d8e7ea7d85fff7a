"""Literals: every element type by its name, rounded once or held exactly, else refused."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.evaluation.literal import literal_array, natural_dtype, parse_json
from onnx_kvtool.ops.traits import DTYPE_NAMES, dtype_name, dtype_named
from tests.grids import each

EXACT = [
    ("float32", "[1, -2.5, 1e3]", np.array([1, -2.5, 1000], np.float32)),
    ("float64", "[0.1, 1e300]", np.array([0.1, 1e300], np.float64)),
    ("float16", "[65504, 6e-8]", np.array([65504, 6e-8], np.float16)),
    ("bfloat16", "[1, 3.140625]", np.array([1, 3.140625], ml_dtypes.bfloat16)),
    ("float8e4m3fn", "[448, -0.001953125]", np.array([448, -(2**-9)], ml_dtypes.float8_e4m3fn)),
    ("float8e4m3fnuz", "[240, 0.5]", np.array([240, 0.5], ml_dtypes.float8_e4m3fnuz)),
    ("float8e5m2", "[57344, -1]", np.array([57344, -1], ml_dtypes.float8_e5m2)),
    ("float8e5m2fnuz", "[57344, -1]", np.array([57344, -1], ml_dtypes.float8_e5m2fnuz)),
    ("float8e8m0", "[0.5, 4]", np.array([0.5, 4], ml_dtypes.float8_e8m0fnu)),
    ("float6e2m3", "[7.5, -0.125]", np.array([7.5, -0.125], ml_dtypes.float6_e2m3fn)),
    ("float6e3m2", "[28, -0.0625]", np.array([28, -0.0625], ml_dtypes.float6_e3m2fn)),
    ("float4e2m1", "[6, -0.5]", np.array([6, -0.5], ml_dtypes.float4_e2m1fn)),
    ("int64", "[9223372036854775807, -1]", np.array([2**63 - 1, -1], np.int64)),
    ("uint64", "[18446744073709551615]", np.array([2**64 - 1], np.uint64)),
    ("int32", "[-2147483648, 2.0]", np.array([-(2**31), 2], np.int32)),
    ("uint32", "[4294967295]", np.array([2**32 - 1], np.uint32)),
    ("int16", "[-32768, 1e2]", np.array([-32768, 100], np.int16)),
    ("uint16", "[65535]", np.array([65535], np.uint16)),
    ("int8", "[-128, 127]", np.array([-128, 127], np.int8)),
    ("uint8", "[0, 255]", np.array([0, 255], np.uint8)),
    ("int4", "[-8, 7]", np.array([-8, 7], ml_dtypes.int4)),
    ("uint4", "[0, 15]", np.array([0, 15], ml_dtypes.uint4)),
    ("int2", "[-2, 1]", np.array([-2, 1], ml_dtypes.int2)),
    ("uint2", "[0, 3]", np.array([0, 3], ml_dtypes.uint2)),
    ("bool", "[true, false, 1, 0]", np.array([True, False, True, False])),
    ("string", '["a", ""]', np.array(["a", ""], object)),
    ("complex64", '[1, "1+2j"]', np.array([1, 1 + 2j], np.complex64)),
    ("complex128", '[0.1, "-2j"]', np.array([0.1, -2j], np.complex128)),
]


@each(("name", "text", "expected"), EXACT)
def test_each_element_type(name, text, expected) -> None:
    dtype = dtype_named(name)
    assert dtype is not None
    found = literal_array(parse_json(text), dtype)
    assert found.dtype == expected.dtype
    assert found.tolist() == expected.tolist()


def test_each_element_type_has_a_case_and_one_name() -> None:
    assert {name for name, _, _ in EXACT} == set(DTYPE_NAMES)
    assert len(set(DTYPE_NAMES)) == len(DTYPE_NAMES)
    for name in DTYPE_NAMES:
        dtype = dtype_named(name)
        assert dtype is not None and dtype_name(dtype) == name


@each(
    ("name", "dtype"),
    [
        ("float", ir.DataType.FLOAT),
        ("DOUBLE", ir.DataType.DOUBLE),
        ("float8_e4m3fn", ir.DataType.FLOAT8E4M3FN),
        ("Float4_E2M1FN", ir.DataType.FLOAT4E2M1),
        ("float8_e8m0fnu", ir.DataType.FLOAT8E8M0),
        ("undefined", None),
        ("object", None),
        ("floaty", None),
    ],
)
def test_other_spellings(name, dtype) -> None:
    assert dtype_named(name) == dtype


@each(
    ("name", "text", "expected"),
    [
        pytest.param("float16", "2049", 2048.0, id="a tie goes to the even neighbour"),
        pytest.param("float16", "2049.000000001", 2050.0, id="above a tie by less than float32"),
        pytest.param("bfloat16", "1.00390625000000001", 1.0078125, id="above a tie by less still"),
        pytest.param("bfloat16", "1.00390625", 1.0, id="the tie itself"),
        pytest.param("float16", "65519.99", 65504.0, id="just below what becomes infinity"),
        pytest.param("float4e2m1", "6.9", 6.0, id="rounded down to the largest"),
        pytest.param("float8e8m0", "2.9", 2.0, id="to the nearest power of two"),
        pytest.param("float32", "16777217", 16777216.0, id="an integer is rounded"),
        pytest.param("float32", "-0.0", -0.0, id="a sign of zero"),
        pytest.param("float32", "Infinity", np.inf, id="infinity as a token"),
        pytest.param("float32", '"-inf"', -np.inf, id="infinity as text"),
        pytest.param("float8e5m2", '"inf"', np.inf, id="an infinity that the type has"),
    ],
)
def test_numbers_are_rounded_once(name, text, expected) -> None:
    dtype = dtype_named(name)
    assert dtype is not None
    found = float(literal_array(parse_json(text), dtype))
    assert (found, np.signbit(found)) == (expected, np.signbit(expected))


@each("text", ["NaN", '"nan"', '"NaN"'])
@each("name", ["float32", "bfloat16", "float8e4m3fn", "float8e8m0"])
def test_nan(name, text) -> None:
    dtype = dtype_named(name)
    assert dtype is not None
    assert np.isnan(float(literal_array(parse_json(text), dtype)))


@each(
    ("name", "text", "message"),
    [
        pytest.param("int8", "128", "out of the range of int8, expected -128 to 127", id="int8"),
        pytest.param("int4", "[0, 8]", "8, which is out of the range of int4", id="int4"),
        pytest.param("uint64", "-1", "out of the range", id="a negative number"),
        pytest.param("int64", "9223372036854775808", "out of the range", id="beyond int64"),
        pytest.param("int64", "1e999999", "out of the range", id="a huge exponent"),
        pytest.param("int64", "1.5", "no integer", id="a fraction"),
        pytest.param("int64", "NaN", "out of the range", id="nan for integers"),
        pytest.param("int64", "true", "true, which int64 cannot represent", id="a boolean"),
        pytest.param("int64", '"1"', '"1", which int64 cannot represent', id="text for a number"),
        pytest.param("float16", "65520", "out of the range of float16", id="float16"),
        pytest.param("float32", "1e39", "out of the range of float32", id="float32"),
        pytest.param("float64", "1e309", "out of the range of float64", id="float64"),
        pytest.param("bfloat16", "3.4e38", "out of the range", id="bfloat16"),
        pytest.param("float8e4m3fn", "465", "out of the range", id="float8e4m3fn"),
        pytest.param("float8e4m3fn", '"inf"', "out of the range", id="no infinity"),
        pytest.param("float8e5m2", "-70000", "out of the range", id="float8e5m2"),
        pytest.param("float8e8m0", "0", "out of the range", id="no zero"),
        pytest.param("float8e8m0", "-1", "out of the range", id="no sign"),
        pytest.param("float4e2m1", "7", "out of the range", id="float4e2m1"),
        pytest.param("float4e2m1", "NaN", "out of the range", id="no nan"),
        pytest.param("float32", "false", "false, which float32 cannot represent", id="a flag"),
        pytest.param("float32", '"one"', '"one", which float32 cannot represent', id="a word"),
        pytest.param("float32", "null", "null, which float32 cannot represent", id="null"),
        pytest.param("float32", '{"a": 1}', "an object, which", id="an object"),
        pytest.param("bool", "2", "2, which bool cannot represent", id="another number for bool"),
        pytest.param("string", "1", "1, which string cannot represent", id="a number for text"),
        pytest.param("complex64", '"1+"', "cannot represent", id="no complex number"),
        pytest.param("float32", "[[1, 2], [3]]", "different lengths", id="ragged"),
        pytest.param("float32", "[[1], 2]", "different depths", id="a number beside a list"),
        pytest.param("float32", "[1, [2]]", "different depths", id="a list beside a number"),
        pytest.param("float32", "[[], [1]]", "different lengths", id="an empty list beside one"),
        pytest.param("float32", f"{'[' * 33}1{']' * 33}", "32 dimensions", id="too deep"),
    ],
)
def test_what_does_not_fit_is_refused(name, text, message) -> None:
    dtype = dtype_named(name)
    assert dtype is not None
    with pytest.raises(UsageError, match=message):
        literal_array(parse_json(text), dtype)


@each(
    ("text", "shape"),
    [("5", ()), ("[]", (0,)), ("[[], []]", (2, 0)), ("[[[1]], [[2]]]", (2, 1, 1))],
)
def test_shape(text, shape) -> None:
    assert literal_array(parse_json(text), ir.DataType.FLOAT).shape == shape


@each(
    ("text", "name"),
    [
        ("[1, 2]", "int64"),
        ("[1, 2.0]", "float32"),
        ("[1, NaN]", "float32"),
        ("[true]", "bool"),
        ('["a"]', "string"),
        ("[]", "float32"),
    ],
)
def test_natural_type(text, name) -> None:
    assert dtype_name(natural_dtype(parse_json(text))) == name


@each("text", ["[1, true]", '["a", 1]', "[null]", '{"a": 1}'])
def test_no_natural_type(text) -> None:
    with pytest.raises(UsageError):
        natural_dtype(parse_json(text))


@each("text", ["[1, 2", "[1,, 2]", "[1] 2", "'a'", "[" * 100_000, "01"])
def test_no_json(text) -> None:
    with pytest.raises(UsageError, match="is no JSON"):
        parse_json(text)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_floats_survive_being_written(numbers: list[float]) -> None:
    found = literal_array(parse_json(repr(numbers)), ir.DataType.FLOAT)
    assert found.tobytes() == np.array(numbers, np.float32).tobytes()
