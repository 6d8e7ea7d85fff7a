"""Weights of element types that the target lacks: int4 and fp8, blocked and not, bit for bit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import onnx_kvtool as kv
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.runtime import onnxruntime
from onnx_kvtool.runtime.kernels.conversion.quantize import dequantize_linear_10, quantize_linear_10
from onnx_kvtool.runtime.kernels.kernel import Context
from tests.rewrite.lowering.single import check, one_node

_INTEGERS = {"int4": (21, -8, 8), "uint4": (21, 0, 16), "int2": (25, -2, 2), "uint2": (25, 0, 4)}
_FLOATS = {
    "float8_e4m3fn": 19,
    "float8_e4m3fnuz": 19,
    "float8_e5m2": 19,
    "float8_e5m2fnuz": 19,
    "float4_e2m1fn": 23,
}


def _codes(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    dtype = np.dtype(getattr(ml_dtypes, name))
    if name in _INTEGERS:
        _, low, high = _INTEGERS[name]
        return rng.integers(low, high, shape).astype(dtype)
    codes = rng.integers(0, 16 if name == "float4_e2m1fn" else 256, shape).astype(np.uint8)
    return codes.view(dtype)


@st.composite
def _cases(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(st.sampled_from([*_INTEGERS, *_FLOATS]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    kind = draw(st.sampled_from(["tensor", "axis", "block"]))
    size = shape[axis]
    block = draw(st.integers(1, size)) if kind == "block" else 0
    scales = [*shape]
    scales[axis] = -(-size // block) if block else size
    scale_shape = {"tensor": (), "axis": (size,), "block": tuple(scales)}[kind]
    scale_type = draw(st.sampled_from([np.float32, np.float16]))
    scale = rng.uniform(0.01, 3, scale_shape).astype(scale_type)
    zero = _codes(rng, name, scale_shape) if name in _INTEGERS and draw(st.booleans()) else None
    first = _INTEGERS[name][0] if name in _INTEGERS else _FLOATS[name]
    return {
        "x": _codes(rng, name, shape),
        "x_scale": scale,
        "x_zero_point": zero,
        "opset": max(first, 21),
        "attributes": {"axis": axis, **({"block_size": block} if block else {})},
        "output": draw(st.sampled_from([None, np.float32, np.float16])),
        "target": draw(st.sampled_from([11, 12, 13, 17, 18, 19, 21, 22, 23])),
        "fed": draw(st.booleans()),
    }


@given(_cases())
def test_dequantized_as_the_reference_kernel(case: dict[str, Any]) -> None:
    """Constant weights of each type, at opsets that have it and at those that lack it."""
    inputs = {name: case[name] for name in ("x", "x_scale", "x_zero_point")}
    attributes, opset = dict(case["attributes"]), case["opset"]
    dtype = np.dtype(case["x_scale"].dtype)
    if case["output"] is not None:
        opset, dtype = max(opset, 23), np.dtype(case["output"])
        attributes["output_dtype"] = {np.dtype(np.float32): 1, np.dtype(np.float16): 10}[dtype]
    constants = ["x"] + (["x_zero_point"] if inputs["x_zero_point"] is not None else [])
    if not case["fed"]:
        constants.append("x_scale")
    target = min(case["target"], opset - 1)
    model = one_node(
        "DequantizeLinear", inputs, [dtype], opset=opset, constants=constants, **attributes
    )
    expected = dequantize_linear_10(*inputs.values(), **attributes)
    # From 23 on the operator stays, and onnxruntime 1.31.1 rounds the product alone to the type
    # that is asked for, not the scale before it.
    is_rounded_once = target >= 23 and dtype != case["x_scale"].dtype
    check(model, inputs, target, [expected], rtol=2.0**-9 if is_rounded_once else 0.0)


def test_blocks_of_floats_of_8_bits_run_at_an_opset_that_has_none() -> None:
    rng = np.random.default_rng(5)
    inputs = {
        "x": _codes(rng, "float8_e5m2", (5, 6)),
        "x_scale": rng.uniform(0.5, 3, (5, 2)).astype(np.float32),
        "x_zero_point": None,
    }
    attributes = {"axis": 1, "block_size": 3}
    model = one_node(
        "DequantizeLinear", inputs, [np.float32], opset=21, constants=["x"], **attributes
    )
    expected = dequantize_linear_10(*inputs.values(), **attributes)
    check(model, inputs, 20, [expected])


_TYPES = {np.dtype(np.float32): 1, np.dtype(np.float16): 10, np.dtype(ml_dtypes.bfloat16): 16}
_OUTPUTS = {"int8": 3, "uint8": 2, "int16": 5, "uint16": 4, "int4": 22, "uint4": 21}


@pytest.mark.parametrize("stored", ["int4", "uint4"])
def test_blocks_of_codes_of_4_bits_run(stored: str) -> None:
    """The blocks are joined before the Cast: onnxruntime has no Reshape of 4 bits."""
    x = np.linspace(-20, 40, 30, dtype=np.float32).reshape(5, 6)
    scale = np.linspace(0.5, 3, 10, dtype=np.float32).reshape(5, 2)
    attributes = {"axis": 1, "block_size": 3, "output_dtype": _OUTPUTS[stored], "precision": 16}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "y_scale"], ["codes"], **attributes),
        helper.make_node("Cast", ["codes"], ["out0"], to=TensorProto.INT32),
    ]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)]
    made = [helper.make_tensor_value_info("out0", TensorProto.INT32, x.shape)]
    weight = numpy_helper.from_array(scale, "y_scale")
    graph = helper.make_graph(nodes, "blocks", given, made, [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    lowered, _ = kv.lower(model, opset=21, verify=False)
    context = Context(23, 1, lambda text: None)
    codes = quantize_linear_10(x, scale, None, **attributes, context=context)
    found = onnxruntime.Session(serialize(lowered), "").run({"x": x})["out0"]
    np.testing.assert_array_equal(found, codes.astype(np.int32))


@st.composite
def _quantized(draw: st.DrawFn) -> dict[str, Any]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    kind = draw(st.sampled_from(["tensor", "axis", "block"]))
    size = shape[axis]
    block = draw(st.integers(1, size)) if kind == "block" else 0
    scales = [*shape]
    scales[axis] = -(-size // block) if block else size
    scale_shape = {"tensor": (), "axis": (size,), "block": tuple(scales)}[kind]
    dtype = draw(st.sampled_from(list(_TYPES)))
    stored = draw(st.sampled_from(["int8", "uint8", "int16", "uint16", "int4", "uint4"]))
    zero = None
    if draw(st.booleans()):
        number = np.dtype(stored if "4" not in stored else getattr(ml_dtypes, stored))
        zero = rng.integers(0, 8, scale_shape).astype(number)
    attributes: dict[str, Any] = {"axis": axis} | ({"block_size": block} if block else {})
    if zero is None:
        attributes["output_dtype"] = _OUTPUTS[stored]
    precision = draw(st.sampled_from([0, 0, 1, 10]))
    if precision:
        attributes["precision"] = precision
    return {
        "x": np.concatenate([rng.normal(scale=9, size=shape)]).astype(dtype),
        "y_scale": rng.choice([0.5, 1.0, 0.3, 2.0, 0.07], scale_shape).astype(dtype),
        "y_zero_point": zero,
        "attributes": attributes,
        "target": draw(st.sampled_from([13, 17, 19, 21, 22] + [11, 12] * (dtype != "bfloat16"))),
    }


@given(_quantized())
def test_quantized_and_dequantized_as_the_reference_kernels(case: dict[str, Any]) -> None:
    """A type that the target lacks stands between the two nodes alone."""
    x, scale, zero = (case[name] for name in ("x", "y_scale", "y_zero_point"))
    attributes = case["attributes"]
    codes = quantize_linear_10(
        x, scale, zero, **attributes, context=Context(23, 1, lambda text: None)
    )
    moved = {n: v for n, v in attributes.items() if n in ("axis", "block_size")}
    expected = dequantize_linear_10(codes, scale, zero, **moved)
    names = ["x", "y_scale"] + ["y_zero_point"] * (zero is not None)
    quantize = helper.make_node("QuantizeLinear", names, ["codes"], **attributes)
    held = helper.make_node("Identity", ["codes"], ["held"])
    back = helper.make_node("DequantizeLinear", ["held", *names[1:]], ["out0"], **moved)
    graph = helper.make_graph(
        [quantize, held, back],
        "pair",
        [helper.make_tensor_value_info("x", _TYPES[x.dtype], x.shape)],
        [helper.make_tensor_value_info("out0", _TYPES[x.dtype], None)],
        [
            numpy_helper.from_array(value, name)
            for name, value in (("y_scale", scale), ("y_zero_point", zero))
            if value is not None
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    # onnxruntime takes out casts to float16 and back, as it does in its own kernel.
    rounds = _TYPES[x.dtype] == 10 or attributes.get("precision") == 10
    check(model, {"x": x}, case["target"], [expected], by_reference=rounds)
