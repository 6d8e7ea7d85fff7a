"""Folding of small integers, against onnx.reference on the same graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnx_kvtool.analysis.constants import LARGEST, ConstantFolder, constant_integers
from tests.grids import each

_X = helper.make_tensor_value_info("x", T.FLOAT, [2, "S", 5])
_Z = helper.make_tensor_value_info("z", T.FLOAT, [2, 3, 5])


def _graph(
    nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], inputs: Any = (_X, _Z)
) -> onnx.ModelProto:
    initializers = [numpy_helper.from_array(a, name) for name, a in constants.items()]
    out = onnx.ValueInfoProto(name="y")
    graph = helper.make_graph(nodes, "g", list(inputs), [out], initializer=initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])
    return onnx.shape_inference.infer_shapes(model)


def _i(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


_S = np.array(7, np.int64)
_CASES: dict[str, tuple[list[Any], dict[str, np.ndarray]]] = {
    "Shape of known sizes": ([("Shape", ["z"], {})], {}),
    "Shape, a part": ([("Shape", ["z"], {"start": -2, "end": 9})], {}),
    "Size": ([("Size", ["z"], {})], {}),
    "Gather of a scalar": ([("Gather", ["a", "b"], {})], {"a": _i(4, 5, 6), "b": np.array(-1)}),
    "Gather on axis 1": (
        [("Gather", ["a", "b"], {"axis": 1})],
        {"a": _i(*range(6)).reshape(2, 3), "b": _i(2, 0)},
    ),
    "Slice with a step": (
        [("Slice", ["a", "s", "e", "x0", "st"], {})],
        {"a": _i(*range(9)), "s": _i(-1), "e": _i(-100), "x0": _i(0), "st": _i(-2)},
    ),
    "Slice past the end": (
        [("Slice", ["a", "s", "e"], {})],
        {"a": _i(*range(5)), "s": _i(2), "e": _i(2**62)},
    ),
    "Concat": ([("Concat", ["a", "b", "a"], {"axis": 0})], {"a": _i(1, 2), "b": _i(3)}),
    "Squeeze of given axes": (
        [("Squeeze", ["a", "b"], {})],
        {"a": _i(1).reshape(1, 1), "b": _i(0)},
    ),
    "Squeeze of all": ([("Squeeze", ["a"], {})], {"a": _i(1, 2).reshape(1, 2, 1)}),
    "Unsqueeze": ([("Unsqueeze", ["a", "b"], {})], {"a": _i(1, 2), "b": _i(0, 3)[:1]}),
    "Reshape": ([("Reshape", ["a", "b"], {})], {"a": _i(*range(6)), "b": _i(3, -1)}),
    "Range": ([("Range", ["s", "e", "d"], {})], {"s": _S, "e": np.array(-3), "d": np.array(-4)}),
    "Where": (
        [("Where", ["c", "a", "b"], {})],
        {"c": np.array([True, False]), "a": _i(1, 2), "b": _i(3)},
    ),
    "Add": ([("Add", ["a", "b"], {})], {"a": _i(1, 2), "b": _i(3)}),
    "Sub": ([("Sub", ["a", "b"], {})], {"a": _i(1, 2), "b": _i(3)}),
    "Mul": ([("Mul", ["a", "b"], {})], {"a": _i(1, -2), "b": _i(3)}),
    "Div truncates": ([("Div", ["a", "b"], {})], {"a": _i(7, -7, 6), "b": _i(2, 2, -4)}),
    "Mod has the sign of the divisor": (
        [("Mod", ["a", "b"], {})],
        {"a": _i(7, -7, 7, -7), "b": _i(3, 3, -3, -3)},
    ),
    "Mod with fmod has the sign of the dividend": (
        [("Mod", ["a", "b"], {"fmod": 1})],
        {"a": _i(7, -7, 7, -7), "b": _i(3, 3, -3, -3)},
    ),
    "Neg": ([("Neg", ["a"], {})], {"a": _i(1, -2)}),
    "Equal, Not, Cast": (
        [("Equal", ["a", "b"], {}), ("Not", ["n0"], {}), ("Cast", ["n1"], {"to": T.INT64})],
        {"a": _i(1, 2), "b": _i(2)},
    ),
    "Less and Greater": (
        [("Less", ["a", "b"], {}), ("Greater", ["a", "b"], {}), ("Or", ["n0", "n1"], {})],
        {"a": _i(1, 2, 3), "b": _i(2)},
    ),
    "Cast to int32": ([("Cast", ["a"], {"to": T.INT32})], {"a": _i(5, -6)}),
    "Identity": ([("Identity", ["a"], {})], {"a": _i(5)}),
    "Slice along two axes": (
        [("Slice", ["a", "s", "e", "x0", "st"], {})],
        {
            "a": _i(*range(24)).reshape(2, 3, 4),
            "s": _i(1, 3),
            "e": _i(9, -9),
            "x0": _i(0, -1),
            "st": _i(1, -2),
        },
    ),
    "ConstantOfShape": (
        [("ConstantOfShape", ["a"], {"value": numpy_helper.from_array(np.array([7], np.int32))})],
        {"a": _i(2, 3)},
    ),
    "ConstantOfShape without elements": (
        [("ConstantOfShape", ["a"], {"value": numpy_helper.from_array(_i(7))})],
        {"a": _i(2, 0)},
    ),
    "Expand both ways": (
        [("Expand", ["a", "b"], {})],
        {"a": _i(1, 2, 3).reshape(3, 1), "b": _i(2, 1, 5)},
    ),
    "Tile": ([("Tile", ["a", "b"], {})], {"a": _i(*range(6)).reshape(2, 3), "b": _i(2, 3)}),
    "Transpose": ([("Transpose", ["a"], {"perm": [1, 0]})], {"a": _i(*range(6)).reshape(2, 3)}),
    "Transpose of all axes": ([("Transpose", ["a"], {})], {"a": _i(*range(6)).reshape(2, 3)}),
    "Flatten": ([("Flatten", ["a"], {"axis": -1})], {"a": _i(*range(12)).reshape(2, 3, 2)}),
    "Max and Min": (
        [("Max", ["a", "b", "c"], {}), ("Min", ["n0", "b"], {})],
        {"a": _i(1, 5, 3), "b": _i(2), "c": _i(0, 9, 4)},
    ),
    "Sum": ([("Sum", ["a", "b", "a"], {})], {"a": _i(1, 5, 3), "b": _i(2)}),
    "Abs and Sign": ([("Abs", ["a"], {}), ("Sign", ["n0"], {})], {"a": _i(-3, 0, 4)}),
    "Clip": (
        [("Clip", ["a", "b", "c"], {})],
        {"a": _i(1, 5, 9), "b": np.array(2), "c": np.array(6)},
    ),
    "Clip from above": ([("Clip", ["a", "", "c"], {})], {"a": _i(1, 5, 9), "c": np.array(6)}),
    "ReduceProd": ([("ReduceProd", ["a"], {"keepdims": 0})], {"a": _i(2, 3, 5)}),
    "ReduceProd of nothing": ([("ReduceProd", ["a"], {})], {"a": np.zeros(0, np.int64)}),
    "ReduceSum along an axis": (
        [("ReduceSum", ["a", "b"], {})],
        {"a": _i(*range(6)).reshape(2, 3), "b": _i(-1)},
    ),
    "ReduceSum along none": (
        [("ReduceSum", ["a", "b"], {"noop_with_empty_axes": 1})],
        {"a": _i(*range(6)).reshape(2, 3), "b": np.zeros(0, np.int64)},
    ),
    "ReduceMax and ReduceMin": (
        [("ReduceMax", ["a", "b"], {}), ("ReduceMin", ["n0"], {})],
        {"a": _i(*range(6)).reshape(2, 3), "b": _i(0)},
    ),
    "CumSum": ([("CumSum", ["a", "b"], {})], {"a": _i(2, 3, 5), "b": np.array(0)}),
    "CumSum from the end without the own element": (
        [("CumSum", ["a", "b"], {"exclusive": 1, "reverse": 1})],
        {"a": _i(2, 3, 5), "b": np.array(0)},
    ),
    "Trilu": (
        [("Trilu", ["a", "b"], {"upper": 0})],
        {"a": _i(*range(9)).reshape(3, 3), "b": _S - 8},
    ),
    "NonZero": ([("NonZero", ["a"], {})], {"a": _i(0, 3, 0, 5)}),
    "comparisons": (
        [
            ("GreaterOrEqual", ["a", "b"], {}),
            ("LessOrEqual", ["a", "b"], {}),
            ("Xor", ["n0", "n1"], {}),
        ],
        {"a": _i(1, 2, 3), "b": _i(2)},
    ),
    "CastLike": ([("CastLike", ["a", "b"], {})], {"a": _i(0, 3), "b": np.array([True])}),
}


def _nodes(steps: list[Any]) -> list[onnx.NodeProto]:
    last = len(steps) - 1
    return [
        helper.make_node(op, ins, ["y" if i == last else f"n{i}"], **attributes)
        for i, (op, ins, attributes) in enumerate(steps)
    ]


@pytest.mark.long
@each(("steps", "constants"), list(_CASES.values()))
def test_folding_agrees_with_the_reference(
    steps: list[Any], constants: dict[str, np.ndarray]
) -> None:
    model = _graph(_nodes(steps), constants)
    feeds = {"x": np.zeros((2, 4, 5), np.float32), "z": np.zeros((2, 3, 5), np.float32)}
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    graph: ir.Graph = ir.from_proto(model.graph)
    actual = ConstantFolder().integers(graph.outputs[0])
    assert actual is not None
    assert actual.shape == expected.shape
    assert actual.tolist() == expected.astype(np.int64).tolist()


_UNKNOWN: dict[str, tuple[list[Any], dict[str, np.ndarray]]] = {
    "the shape of a symbolic value": ([("Shape", ["x"], {})], {}),
    "the number of its elements": ([("Size", ["x"], {})], {}),
    "a symbolic size": ([("Shape", ["x"], {}), ("Gather", ["n0", "b"], {})], {"b": np.array(1)}),
    "division by zero": ([("Div", ["a", "b"], {})], {"a": _i(1), "b": _i(0)}),
    "an expansion to more than is folded": (
        [("Expand", ["a", "b"], {})],
        {"a": _i(1), "b": _i(LARGEST + 1)},
    ),
    "a filling of more than is folded": (
        [("ConstantOfShape", ["a"], {"value": numpy_helper.from_array(_i(7))})],
        {"a": _i(2**40, 2**40)},
    ),
    "a filling of a negative size": (
        [("ConstantOfShape", ["a"], {"value": numpy_helper.from_array(_i(7))})],
        {"a": _i(-1)},
    ),
    "repeats of more than is folded": ([("Tile", ["a", "b"], {})], {"a": _i(1), "b": _i(2**40)}),
    "a product that leaves int64": ([("ReduceProd", ["a"], {})], {"a": _i(2**40, 2**40)}),
    "the largest of nothing": ([("ReduceMax", ["a"], {})], {"a": np.zeros(0, np.int64)}),
    "a part that begins before the first element and goes back": (
        [("Slice", ["a", "s", "e", "x0", "st"], {})],
        {"a": _i(1, 2), "s": _i(-5), "e": _i(-9), "x0": _i(0), "st": _i(-1)},
    ),
    "an index out of range": ([("Gather", ["a", "b"], {})], {"a": _i(1), "b": _i(1)}),
    "a sum that leaves int32": (
        [("Add", ["a", "a"], {})],
        {"a": np.array([2**31 - 1], np.int32)},
    ),
    "uint8, which would wrap": ([("Add", ["a", "a"], {})], {"a": np.array([200], np.uint8)}),
    "floats": ([("Add", ["a", "a"], {})], {"a": np.array([1.0], np.float32)}),
    "a tensor as large as a weight": (
        [("Identity", ["a"], {})],
        {"a": np.zeros(LARGEST + 1, np.int64)},
    ),
    "an operator that is not folded": (
        [("BitShift", ["a", "a"], {"direction": "LEFT"})],
        {"a": _i(1)},
    ),
}


@each(("steps", "constants"), _UNKNOWN)
def test_unknown_stays_unknown(steps: list[Any], constants: dict[str, np.ndarray]) -> None:
    graph: ir.Graph = ir.from_proto(_graph(_nodes(steps), constants).graph)
    assert ConstantFolder().integers(graph.outputs[0]) is None


def test_known_elements_survive_beside_unknown_ones() -> None:
    steps = [("Shape", ["x"], {}), ("Concat", ["n0", "a"], {"axis": 0})]
    graph: ir.Graph = ir.from_proto(_graph(_nodes(steps), {"a": _i(9)}).graph)
    found = ConstantFolder().partial(graph.outputs[0])
    assert found is not None
    assert found.known.tolist() == [True, False, True, True]
    assert found.numbers[found.known].tolist() == [2, 5, 9]


def test_an_initializer_that_is_an_input_is_not_constant() -> None:
    overridable = helper.make_tensor_value_info("a", T.INT64, [1])
    steps = [("Identity", ["a"], {})]
    model = _graph(_nodes(steps), {"a": _i(5)}, inputs=[overridable])
    graph: ir.Graph = ir.from_proto(model.graph)
    assert ConstantFolder().integers(graph.outputs[0]) is None
    assert constant_integers(graph.inputs[0]) is None


def test_an_external_tensor_is_not_read() -> None:
    tensor = ir.ExternalTensor(
        "absent.data", 0, 8, ir.DataType.INT64, shape=ir.Shape([1]), name="a", base_dir="/nowhere"
    )
    value = ir.Value(name="a", const_value=tensor)
    ir.Graph([], [value], nodes=[], initializers=[value])
    assert constant_integers(value) is None


@pytest.mark.long
def test_a_long_chain_does_not_exhaust_the_stack() -> None:
    nodes = [helper.make_node("Identity", [f"n{i}"], [f"n{i + 1}"]) for i in range(5000)]
    nodes.append(helper.make_node("Identity", ["n5000"], ["y"]))
    graph: ir.Graph = ir.from_proto(_graph(nodes, {"n0": _i(3)}).graph)
    found = ConstantFolder().integers(graph.outputs[0])
    assert found is not None and found.tolist() == [3]
