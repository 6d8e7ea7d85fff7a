"""QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear and BitCast."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.conversion.cast import bit_cast_26
from onnx_kvtool.runtime.kernels.conversion.quantize import (
    dequantize_linear_10,
    dynamic_quantize_linear_11,
    quantize_linear_10,
)
from tests.grids import each
from tests.runtime.kernels.arrays import recording

BF16, E4M3, E8M0, F4 = (
    ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu, ml_dtypes.float4_e2m1fn,
)  # fmt: skip
INT4, UINT4, INT2, UINT2 = ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2
F32, F16, U8, I8 = np.float32, np.float16, np.uint8, np.int8


def quantize(*inputs: Any, **attributes: Any) -> np.ndarray:
    return quantize_linear_10(*inputs, context=recording()[0], **attributes)


def f32(*values: Any) -> np.ndarray:
    return np.array(values, F32)


@each(("dtype", "low", "high"), [
        (U8, 0, 255), (I8, -128, 127), (np.uint16, 0, 65535), (np.int16, -32768, 32767),
        (UINT4, 0, 15), (INT4, -8, 7), (UINT2, 0, 3), (INT2, -2, 1),
    ])  # fmt: skip
def test_integers_saturate(dtype: Any, low: int, high: int) -> None:
    x = f32(-1e9, -np.inf, 1e9, np.inf, 0)
    got = quantize(x, np.array(0.5, F32), np.array(1, dtype))
    assert got.dtype == dtype
    assert got.astype(int).tolist() == [low, low, high, high, 1]


def test_halves_go_to_even_before_the_zero_point_is_added() -> None:
    got = quantize(f32(1, 3, 5, -1), np.array(2, F32), np.array(3, U8))
    assert got.tolist() == [3, 5, 5, 3]


def test_nan_becomes_the_least_number_with_a_warning() -> None:
    context, warnings = recording()
    got = quantize_linear_10(f32(np.nan, 1), np.array(1, F32), context=context)
    assert got.tolist() == [0, 1] and len(warnings) == 1


def test_per_axis_and_blocked_scales() -> None:
    x = np.arange(30, dtype=F32).reshape(2, 3, 5)
    scale = f32(1, 2, 5)
    zero = np.array([0, 1, 2], I8)
    got = quantize(x, scale, zero, axis=-2)
    expected = np.rint(x / scale[:, None]) + zero[:, None]
    assert got.tolist() == expected.tolist()
    blocks = np.arange(1, 13, dtype=F32).reshape(2, 3, 2)  # blocks of 3 and 2 along axis 2
    got = quantize(x, blocks, None, axis=2, block_size=3)
    assert got.tolist() == np.rint(x / np.repeat(blocks, 3, axis=2)[:, :, :5]).tolist()


def test_the_division_has_the_type_of_the_scale_or_of_precision() -> None:
    x, scale = f32(1000), np.array(3, F16)
    assert quantize(x, scale, output_dtype=int(ir.DataType.UINT16)).tolist() == [333]
    # float16 has 30009 as 30016, and a third of that, 10005.33, as 10008.
    x = f32(30009)
    for precision, expected in ((0, 10008), (int(ir.DataType.FLOAT), 10003)):
        got = quantize(x, scale, output_dtype=int(ir.DataType.UINT16), precision=precision)
        assert got.tolist() == [expected]


def test_float8_saturates_by_the_attribute() -> None:
    x, scale, zero = f32(1e6, -1e6, 3), np.array(2, F32), np.array(0, E4M3)
    assert quantize(x, scale, zero).astype(float).tolist() == [448, -448, 1.5]
    assert np.isnan(quantize(x, scale, zero, saturate=0).astype(float)).tolist() == [
        True, True, False,
    ]  # fmt: skip


def test_scales_that_are_powers_of_two() -> None:
    scale = np.array([128, 126], U8).view(E8M0)  # 2 and 0.5
    x = f32([3, 5], [3, 5])
    got = quantize(x, scale, axis=0, output_dtype=int(ir.DataType.FLOAT4E2M1))
    assert got.dtype == F4 and got.astype(float).tolist() == [[1.5, 2], [6, 6]]
    back = dequantize_linear_10(got, scale, axis=0, output_dtype=int(ir.DataType.FLOAT))
    assert back.dtype == F32 and back.tolist() == [[3, 4], [3, 3]]
    with pytest.raises(KernelError, match="`y` would be of dtype float8_e8m0fnu"):
        dequantize_linear_10(got, scale, axis=0)


@each(("inputs", "attributes", "message"), [
        pytest.param([f32([1, 2, 3]), f32(1, 2)], {}, r"`y_scale` has shape \(2,\), expected \(\) "
                     r"or \(3,\): axis 1 of `x` with shape \(1, 3\)", id="per axis"),
        pytest.param([f32([1, 2, 3]), f32([1, 1, 1])], {}, r"`y_scale` has shape \(1, 3\)",
                     id="the rank of x without blocks"),
        pytest.param([f32([1, 2, 3]), f32([1, 2, 3])], {"block_size": 2},
                     r"expected \(1, 2\): blocks of 2 along axis 1", id="blocks"),
        pytest.param([f32([1, 2, 3]), f32(1, 2, 3), np.zeros(2, U8)], {},
                     r"`y_zero_point` has shape \(2,\), expected \(3,\)", id="zero points"),
        pytest.param([f32([1, 2, 3]), f32(1, 2, 3)], {"axis": 2}, "`axis` is 2, expected -2 to 1",
                     id="the axis"),
        pytest.param([f32(1), f32(1), np.zeros(1, U8)], {"output_dtype": 3},
                     "`output_dtype` is int8, expected uint8 as `y_zero_point`", id="two types"),
        pytest.param([f32(1), f32(1)], {"output_dtype": 10}, "`y` would be of dtype float16",
                     id="a type that is none to quantize to"),
        pytest.param([f32(1), f32(1)], {"block_size": -1}, "`block_size` is -1", id="block size"),
    ])  # fmt: skip
def test_refusals(inputs: list[Any], attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(KernelError, match=message):
        quantize(*inputs, **attributes)


def test_dequantizing_multiplies_in_the_type_of_the_result() -> None:
    x, zero = np.array([0, 3, 200], U8), np.array(100, U8)
    got = dequantize_linear_10(x, np.array(0.1, F16), zero)
    assert got.dtype == F16
    assert got.tolist() == (np.array([-100, -97, 100], F16) * F16(0.1)).tolist()
    wide = dequantize_linear_10(x, np.array(0.1, F16), zero, output_dtype=1)
    assert wide.tolist() == (f32(-100, -97, 100) * F32(F16(0.1))).tolist()


def test_int32_has_no_zero_point() -> None:
    with pytest.raises(KernelError, match="`x_zero_point` is not 0"):
        dequantize_linear_10(np.array([4], np.int32), np.array(1, F32), np.array(1, np.int32))


@each("dtype", [INT4, UINT4, INT2, UINT2, I8, U8, np.int16, np.uint16])
def test_quantizing_what_was_dequantized_gives_the_codes_back(dtype: Any) -> None:
    bits = {INT4: 4, UINT4: 4, INT2: 2, UINT2: 2}.get(dtype) or 8 * np.dtype(dtype).itemsize
    low = -(1 << (bits - 1)) if dtype in (INT4, INT2, I8, np.int16) else 0
    codes = np.arange(low, low + (1 << bits)).astype(dtype)
    scale, zero = np.array(0.25, F32), np.array(1, dtype)
    wide = dequantize_linear_10(codes, scale, zero)
    assert (quantize(wide, scale, zero) == codes).all()


@pytest.mark.parametrize("x", [np.zeros((2, 3), F32), np.zeros((0,), F32)])
def test_dynamic_quantization_of_no_range(x: np.ndarray) -> None:
    context, warnings = recording()
    y, scale, zero = dynamic_quantize_linear_11(x, context=context)
    assert (y.tolist(), float(scale), int(zero)) == (x.astype(U8).tolist(), 1.0, 0)
    assert len(warnings) == 1


def test_dynamic_quantization_includes_zero_in_its_range() -> None:
    context, _ = recording()
    y, scale, zero = dynamic_quantize_linear_11(f32(2, 5.1), context=context)
    assert (int(zero), y.tolist()) == (0, [100, 255]) and scale == F32(5.1) / F32(255)


@each(
    ("x", "to", "expected"),
    [
        (f32(1.0, -0.0), np.int32, [0x3F800000, -(2**31)]),
        (np.array(-1, np.int64), np.uint64, 2**64 - 1),
        (np.array([-1, 7, -8], INT4), UINT4, [15, 7, 8]),
        (np.array([15, 8, 3], UINT4), INT4, [-1, -8, 3]),
        (np.array([3, 2, 1], UINT2), INT2, [-1, -2, 1]),
        (np.array([0.5, -6], F4), UINT4, [1, 15]),
        (np.array([1, 15], UINT4), F4, [0.5, -6]),
        (np.array([True, False]), U8, [1, 0]),
        (np.array([1 + 2j], np.complex64), np.float64, None),
        (np.array([2, 0], U8), np.bool_, [True, False]),
    ],
)
def test_bits_as_another_type(x: np.ndarray, to: Any, expected: Any) -> None:
    got = bit_cast_26(x, to=int(ir.DataType.from_numpy(np.dtype(to))))
    assert got.dtype == to and got.shape == x.shape
    assert got.tobytes() == x.tobytes() if expected is None else got.tolist() == expected


def test_bits_of_another_width_are_refused() -> None:
    with pytest.raises(KernelError, match="`input` has elements of 32 bits"):
        bit_cast_26(f32(1), to=int(ir.DataType.INT64))
    with pytest.raises(KernelError, match="strings have no bits"):
        bit_cast_26(np.array(["a"], object), to=1)
