"""QuantizeLinear and DequantizeLinear in plain arithmetic."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

from tests.grids import part
from tests.rewrite.lowering.single import check, one_node, refusal

_RNG = np.random.default_rng(19)
_X = np.concatenate(
    [_RNG.normal(scale=40, size=32), [0.5, 1.5, 2.5, -0.5, -1.5, 1e9, -1e9, 0.0]]
).astype(np.float32)  # ties and numbers beyond every limit
_X = _X.reshape(2, 4, 5)


def _scale(*shape: int) -> np.ndarray:
    return _RNG.choice([0.5, 1.0, 2.0, 0.25], shape).astype(np.float32)


_FORMS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "one scale": ((), {}),
    "one scale per index of the default axis": ((4,), {}),
    "one scale per index of the last axis": ((5,), {"axis": -1}),
    "one scale per block": ((2, 2, 5), {"axis": 1, "block_size": 2}),
    "a last block that is shorter": ((2, 4, 2), {"axis": 2, "block_size": 3}),
}


@part(3)
@pytest.mark.parametrize("target", [11, 13, 19])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
@pytest.mark.parametrize(("shape", "attributes"), list(_FORMS.values()), ids=list(_FORMS))
def test_quantize(shape: tuple[int, ...], attributes: Any, dtype: type, target: int) -> None:
    zero = np.full(shape, 3, dtype)
    inputs = {"x": _X, "y_scale": _scale(*shape), "y_zero_point": zero}
    model = one_node("QuantizeLinear", inputs, [dtype], opset=21, **attributes)
    axis = attributes.get("axis", 1) % 3
    scale = _whole(inputs["y_scale"], axis, attributes.get("block_size", 0))
    limits = np.iinfo(dtype)
    expected = np.clip(np.round(_X / scale) + 3, limits.min, limits.max).astype(dtype)
    check(model, inputs, target, [expected])


@part(3)
@pytest.mark.parametrize("target", [11, 13, 19])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
@pytest.mark.parametrize(("shape", "attributes"), list(_FORMS.values()), ids=list(_FORMS))
def test_dequantize(shape: tuple[int, ...], attributes: Any, dtype: type, target: int) -> None:
    limits = np.iinfo(dtype)
    x = _RNG.integers(limits.min, limits.max, (2, 4, 5), dtype=dtype, endpoint=True)
    zero = np.full(shape, limits.max, dtype)
    inputs = {"x": x, "x_scale": _scale(*shape), "x_zero_point": zero}
    model = one_node("DequantizeLinear", inputs, [np.float32], opset=21, **attributes)
    axis = attributes.get("axis", 1) % 3
    scale = _whole(inputs["x_scale"], axis, attributes.get("block_size", 0))
    expected = (x.astype(np.int64) - limits.max).astype(np.float32) * scale
    check(model, inputs, target, [expected])


@pytest.mark.long
@part(3)
@pytest.mark.parametrize("target", [11, 13, 19])
@pytest.mark.parametrize("zero_shape", [(), (1,), None], ids=str)
@pytest.mark.parametrize(
    ("shape", "known"), [((), True), ((1,), True), ((), False)], ids=["()", "(1,)", "unknown rank"]
)
def test_one_number_stays_one_number(
    shape: tuple[int, ...], zero_shape: tuple[int, ...] | None, target: int, known: bool
) -> None:
    for x in (np.array(3), np.array([3]), np.array([3, 4])):
        zero = None if zero_shape is None else np.full(zero_shape, 1, np.int16)
        offset = 0 if zero is None else 1
        dims = None if known else {"x": None}
        scale = np.full(shape, 0.5, np.float32)

        inputs = {"x": x.astype(np.int16), "x_scale": scale, "x_zero_point": zero}
        model = one_node("DequantizeLinear", inputs, [np.float32], opset=21, dims=dims)
        check(model, inputs, target, [np.asarray((x - offset) * 0.5, np.float32)])

        inputs = {"x": x.astype(np.float32), "y_scale": scale, "y_zero_point": zero}
        named = {} if zero is not None else {"output_dtype": TensorProto.INT16}
        model = one_node("QuantizeLinear", inputs, [np.int16], opset=21, dims=dims, **named)
        check(model, inputs, target, [np.asarray(x * 2 + offset, np.int16)])


def _whole(scale: np.ndarray, axis: int, block: int) -> np.ndarray:
    if block:
        return np.repeat(scale, block, axis)[tuple(slice(n) for n in (2, 4, 5))]
    return scale if scale.ndim != 1 else np.moveaxis(scale.reshape(-1, 1, 1), 0, axis)


def test_the_type_of_the_output_may_be_an_attribute() -> None:
    inputs = {"x": _X, "y_scale": np.array(0.5, np.float32)}
    model = one_node("QuantizeLinear", inputs, [np.int16], opset=21, output_dtype=5)
    expected = np.clip(np.round(_X * 2), -(2**15), 2**15 - 1).astype(np.int16)
    check(model, inputs, 13, [expected])


def test_a_zero_point_decides_beside_an_attribute_that_names_no_type() -> None:
    x, scale = np.array([[0.5, 1, -2]], np.float32), np.array(0.5, np.float32)
    inputs = {"x": x, "s": scale, "z": np.array(1, np.int8)}
    model = one_node("QuantizeLinear", inputs, [np.int8], opset=21, output_dtype=99)
    check(model, inputs, 18, [np.array([[2, 3, -3]], np.int8)])


def test_float16_is_dequantized_in_float32() -> None:
    x = np.array([-100, 3, 127], np.int8)
    inputs = {"x": x, "x_scale": np.array(0.1, np.float16)}
    model = one_node("DequantizeLinear", inputs, [np.float16], opset=19)
    expected = (x.astype(np.float32) * np.float32(np.float16(0.1))).astype(np.float16)
    check(model, inputs, 13, [expected])


def test_a_scale_of_unknown_shape_is_not_taken_for_one_number() -> None:
    """Before opset 13 the scale is one number, and a list of one per channel is not refused."""
    inputs = {"x": np.zeros((2, 3), np.int8), "x_scale": _scale(3)}
    model = one_node("DequantizeLinear", inputs, [np.float32], opset=13, dims={"x_scale": None})
    found = refusal(model, 12)
    assert (found.code, found.lowest_opset) == ("unknown-rank", 13)


def test_8_bit_floats_are_refused() -> None:
    dtype = ml_dtypes.float8_e4m3fn
    inputs = {
        "x": _X,
        "y_scale": np.array(1, np.float32),
        "y_zero_point": np.array(0, dtype),
    }
    found = refusal(one_node("QuantizeLinear", inputs, [dtype], opset=21), 18)
    assert (found.code, found.lowest_opset) == ("element-type", 19)
