"""Axes that are known at run time only, below opset 11, where an If gives equal shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.core.walk import nodes
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.runtime import onnxruntime
from tests.grids import part
from tests.rewrite.lowering.single import check, one_node

_RNG = np.random.default_rng(59)
_DATA = _RNG.normal(size=(2, 3, 5)).astype(np.float32)
_NAMES = {"data": ["A", "B", "C"]}


@pytest.mark.long
@part(6)
@pytest.mark.parametrize("target", [9, 10])
@pytest.mark.parametrize("dims", [None, _NAMES], ids=["known", "named"])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [[1], [-1, 0], [0, 1, 2]], ids=str)
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax", "ReduceMean", "ReduceL2", "ReduceProd"])
def test_reductions(op: str, axes: list[int], keepdims: int, dims: Any, target: int) -> None:
    inputs = {"data": _DATA, "axes": np.array(axes, np.int64)}
    model = one_node(op, inputs, [np.float32], opset=18, dims=dims, keepdims=keepdims)
    check(model, inputs, target, rtol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("dims", [["n"], None], ids=["any number", "none"])
@pytest.mark.parametrize("noop", [0, 1])
def test_no_axes(noop: int, dims: Any) -> None:
    inputs = {"data": _DATA, "axes": np.array([], np.int64)}
    model = one_node(
        "ReduceSum",
        inputs,
        [np.float32],
        opset=18,
        dims=dims and {"axes": dims},
        noop_with_empty_axes=noop,
    )
    check(model, inputs, 9, rtol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("axes", [[0], [1], [0, 1]], ids=str)
def test_reductions_over_nothing(axes: list[int]) -> None:
    inputs = {"data": np.zeros((2, 0, 4), np.float32), "axes": np.array(axes)}
    model = one_node("ReduceSum", inputs, [np.float32], opset=18, keepdims=0)
    check(model, inputs, 9)


@pytest.mark.long
@part(3)
@pytest.mark.parametrize("op", ["CumSum", "CumProd"])
@pytest.mark.parametrize("target", [9, 10])
@pytest.mark.parametrize("dims", [None, {"x": ["A", "B", "C"]}], ids=["known", "named"])
@pytest.mark.parametrize(("axis", "form"), [(0, {}), (-2, {"exclusive": 1}), (2, {"reverse": 1})])
def test_running_sums_and_products(op: str, axis: int, form: Any, dims: Any, target: int) -> None:
    inputs = {"x": _DATA, "axis": np.array(axis)}
    opset = 14 if op == "CumSum" else 26
    model = one_node(op, inputs, [np.float32], opset=opset, dims=dims, **form)
    accumulate = np.add if op == "CumSum" else np.multiply
    along = np.flip(_DATA, axis) if form.get("reverse") else _DATA
    if form.get("exclusive"):
        start = np.full_like(along.take([0], axis), accumulate.identity)
        along = np.concatenate([start, np.delete(along, -1, axis)], axis)
    expected = accumulate.accumulate(along, axis)
    expected = np.flip(expected, axis) if form.get("reverse") else expected
    check(model, inputs, target, [expected], rtol=1e-6)


@pytest.mark.parametrize(
    ("data", "shape"),
    [((0, 3, 4), [3, 4, 0]), ((0, 2), [0, 7]), ((2, 3), [3, -1]), ((2, 3), [6, 1])],
    ids=str,
)
def test_zeros_of_a_shape_are_sizes(data: tuple[int, ...], shape: list[int]) -> None:
    inputs = {"data": _RNG.normal(size=data).astype(np.float32), "shape": np.array(shape)}
    dims = {"data": [f"d{i}" for i in range(len(data))]}
    model = one_node("Reshape", inputs, [np.float32], opset=14, dims=dims, allowzero=1)
    check(model, inputs, 10, [inputs["data"].reshape(shape)])


@pytest.mark.long
def test_there_is_no_if() -> None:
    inputs = {"data": _DATA, "axes": np.array([1])}
    model = one_node("ReduceSum", inputs, [np.float32], opset=18, dims=_NAMES, keepdims=0)
    lowered, _ = lower(ir.from_proto(model), opset=10, verify=False)
    assert "If" not in {node.op_type for _, _, node in nodes(lowered)}


@pytest.mark.long
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax", "ReduceL2"])
def test_onnxruntime_runs_what_drops_dimensions(op: str) -> None:
    """It takes a Reshape of the shape for one of the data; onnx.reference is not asked here."""
    inputs = {"data": _DATA, "axes": np.array([-1])}
    model = one_node(op, inputs, [np.float32], opset=18, keepdims=0)
    lowered, _ = lower(ir.from_proto(model), opset=9, verify=False)
    (found,) = onnxruntime.Session(serialize(lowered), "").run(inputs).values()
    function = {"ReduceSum": np.sum, "ReduceMax": np.max, "ReduceL2": np.linalg.norm}[op]
    np.testing.assert_allclose(found, function(_DATA, axis=-1), rtol=1e-5)  # type: ignore[operator]


@pytest.mark.parametrize("axis", [0, 1, -2])
def test_a_transform_of_the_same_length_is_cut_out(axis: int) -> None:
    data = _RNG.normal(size=(2, 4, 5, 2)).astype(np.float32)
    inputs = {"input": data, "dft_length": None, "axis": np.array(axis)}
    model = one_node("DFT", inputs, [np.float32], opset=20)
    place = axis if axis >= 0 else axis + 4
    found = np.fft.fft(data[..., 0] + 1j * data[..., 1], axis=place)
    expected = np.stack([found.real, found.imag], -1).astype(np.float32)
    check(model, inputs, 10, [expected], rtol=1e-5)
