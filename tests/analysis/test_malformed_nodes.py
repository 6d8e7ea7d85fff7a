"""A node that its operator does not allow means nothing: what it gives is unknown, and no crash."""

from __future__ import annotations

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from onnx_kvtool.analysis.constants import ConstantFolder
from onnx_kvtool.model_io.model import deserialize
from onnx_kvtool.symbolic.contents import IndexMap
from onnx_kvtool.symbolic.index_maps import IndexMaps
from tests.grids import each

_INPUTS = (
    "int64[B] start, int64[3] three, int64[2, 5] matrix, int64[] number, float[2, 3, 5, 7] cache"
)
_C23 = "a = Constant<value_ints = [2, 3]>()"
_C234 = "a = Constant<value_ints = [2, 3, 4]>()"

# Every result would have another value, or none at all, if the node were taken to mean something.
_NODES = {
    "Concat without an axis": f"{_C23} y = Concat(a, a)",
    "Concat of no value": "y = Concat<axis = 0>()",
    "Concat of an absent value": f'{_C23} y = Concat<axis = 0>(a, "", a)',
    "Concat along an axis that is not there": f"{_C23} y = Concat<axis = 1>(a, a)",
    "Concat of scalars": "a = Constant<value_int = 2>() y = Concat<axis = 0>(a, a)",
    "Concat of ranks that differ": f"{_C23} y = Concat<axis = 0>(a, matrix)",
    "Concat of ranks that differ, the larger one first": f"{_C23} y = Concat<axis = 1>(matrix, a)",
    "Concat with a list for its axis": f"{_C23} y = Concat<axis = [0]>(a, a)",
    "Gather along an axis that is not there": f"{_C23} y = Gather<axis = 1>(a, number)",
    "Gather from a scalar": "a = Constant<value_int = 2>() y = Gather(a, a)",
    "Gather with one input": f"{_C23} y = Gather(a)",
    "Gather with a float for its axis": f"{_C23} y = Gather<axis = 0.5>(a, number)",
    "GatherND of more axes than there are": (
        f"{_C23} b = Constant<value_ints = [0, 0]>() y = GatherND(a, b)"
    ),
    "GatherND with a list for its batch axes": (
        f"{_C23} b = Constant<value_ints = [0]>() y = GatherND<batch_dims = [0]>(a, b)"
    ),
    "Unsqueeze at an axis that is not there": f"{_C23} y = Unsqueeze(a, a)",
    "Unsqueeze twice at one axis": (
        f"{_C23} b = Constant<value_ints = [0, -3]>() y = Unsqueeze(a, b)"
    ),
    "Unsqueeze without axes": f"{_C23} y = Unsqueeze(a)",
    "Squeeze of an axis that is not there": f"{_C23} y = Squeeze(a, a)",
    "Squeeze of an axis whose size is not 1": (
        f"{_C23} b = Constant<value_ints = [0]>() y = Squeeze(a, b)"
    ),
    "Squeeze with attributes of another version": f"{_C23} y = Squeeze<axes = [0]>(a)",
    "Transpose by a permutation that is none": f"{_C23} y = Transpose<perm = [0, 0]>(a)",
    "Transpose by a permutation that is empty": f"{_C23} y = Transpose<perm = [1]>(a)",
    "Reshape to another number of elements": (
        f"{_C23} b = Constant<value_ints = [5]>() y = Reshape(a, b)"
    ),
    "Reshape with two sizes left open": (
        f"{_C23} b = Constant<value_ints = [-1, -1]>() y = Reshape(a, b)"
    ),
    "Slice along an axis that is not there": (
        f"{_C23} z = Constant<value_ints = [0]>() o = Constant<value_ints = [1]>()"
        " y = Slice(a, z, o, o)"
    ),
    "Slice with a step of 0": (
        f"{_C23} z = Constant<value_ints = [0]>() o = Constant<value_ints = [1]>()"
        " y = Slice(a, z, o, z, z)"
    ),
    "Slice without starts": f"{_C23} y = Slice(a)",
    "Split into sizes that are not the whole": f"{_C234} y, z = Split<axis = 0>(three, a)",
    "Add of sizes that do not broadcast": (
        f"{_C23} b = Constant<value_ints = [1, 5, 7]>() y = Add(a, b)"
    ),
    "Add of one value": f"{_C23} y = Add(a)",
    "Add of three values": f"{_C23} y = Add(a, a, a)",
    "Where of two values": f"{_C23} y = Where(a, a)",
    "Div by 0": f"{_C23} z = Constant<value_int = 0>() y = Div(a, z)",
    "Mod by 0": f"{_C23} z = Constant<value_int = 0>() y = Mod(a, z)",
    "Range of two inputs": "a = Constant<value_int = 2>() y = Range(a, a)",
    "Range of vectors": f"{_C23} y = Range(a, a, a)",
    "Range of 0 steps": "a = Constant<value_int = 0>() y = Range(a, a, a)",
    "Shape with a string for its start": 'y = Shape<start = "x">(cache)',
    "Shape of nothing": "y = Shape()",
    "Constant without a value": "y = Constant()",
    "Constant with a string for its tensor": 'y = Constant<value = "x">()',
    "Constant with an integer for its list": "y = Constant<value_ints = 3>()",
    "Cast without a type": f"{_C23} y = Cast(a)",
    "Cast to a type that is none": f"{_C23} y = Cast<to = 99>(a)",
    "ConstantOfShape of a negative size": (
        "a = Constant<value_ints = [-7]>() y = ConstantOfShape<value = int64[1] {1}>(a)"
    ),
    "ConstantOfShape with a string for its value": f'{_C23} y = ConstantOfShape<value = "x">(a)',
    "Tile a negative number of times": (f"{_C23} b = Constant<value_ints = [-2]>() y = Tile(a, b)"),
    "OneHot of three values": (f"{_C234} d = Constant<value_int = 3>() y = OneHot(number, d, a)"),
    "CumSum along an axis that is not there": (
        f"{_C23} b = Constant<value_int = 1>() y = CumSum(a, b)"
    ),
    "Expand to sizes that do not fit": f"{_C234} b = Constant<value_ints = [7]>() y = Expand(a, b)",
    "an operator that nobody knows": f"{_C23} y = NoSuchOperator(a)",
}


def _model(body: str) -> ir.Model:
    header = '<ir_version: 9, opset_import: ["" : 18]>'
    return ir.from_proto(onnx.parser.parse_model(f"{header} g ({_INPUTS}) => (y) {{ {body} }}"))


@each("body", _NODES)
def test_a_malformed_node_folds_to_nothing(body: str) -> None:
    (y,) = _model(body).graph.outputs
    assert ConstantFolder().integers(y) is None


@each("body", _NODES)
def test_a_malformed_node_holds_nothing(body: str) -> None:
    (y,) = _model(body).graph.outputs
    held = IndexMaps(18).of(y)
    assert held.shape is None or all(str(part).startswith("y") for part in held.parts), (
        f"it is said to hold {[str(part) for part in held.parts]}"
    )


@each("declared", [[5], [2, 1], [], [7, 7, 7]])
def test_a_value_that_contradicts_its_declaration_holds_nothing(declared: list[int]) -> None:
    model = _model(f"{_C23} y = Concat<axis = 0>(a, a)  z = Add(y, y)")
    (y,) = model.graph.outputs
    y.type, y.shape = ir.TensorType(ir.DataType.INT64), ir.Shape(declared)
    (z,) = (node.outputs[0] for node in model.graph if node.op_type == "Add")
    maps = IndexMaps(18)
    assert maps.of(y) == IndexMap(None, ir.DataType.INT64, None, ())
    assert not maps.of(z).parts


@each("first", ["one", "other"])
@each("op", ["Add", "Concat<axis = 0>", "Expand", "Gather"])
def test_values_that_are_made_from_each_other_hold_nothing(first: str, op: str) -> None:
    model = _model(f"one = Shape(start)  other = {op}(one, one)  y = Add(one, other)")
    nodes = {node.outputs[0].name: node for node in model.graph}
    nodes["one"].replace_input_with(0, nodes["other"].outputs[0])
    for value in (nodes[first].outputs[0], *model.graph.outputs):
        held = IndexMaps(18).of(value)
        assert all(part.number is None for part in held.parts)
        assert ConstantFolder().integers(value) is None


@each(
    ("dims", "data", "dtype"),
    [
        pytest.param([5], bytes(8), onnx.TensorProto.INT64, id="too few bytes"),
        pytest.param([1], bytes(7), onnx.TensorProto.INT64, id="a part of an element"),
        pytest.param([-1], bytes(8), onnx.TensorProto.INT64, id="a negative size"),
        pytest.param([2**40], bytes(8), onnx.TensorProto.INT64, id="an absurd size"),
        pytest.param([1], bytes(8), onnx.TensorProto.UNDEFINED, id="no type"),
        pytest.param([1] * 99, bytes(8), onnx.TensorProto.INT64, id="an absurd rank"),
    ],
)
@each("place", ["initializer", "Constant"])
def test_a_tensor_that_cannot_be_read_holds_nothing(
    place: str, dims: list[int], data: bytes, dtype: int
) -> None:
    tensor = onnx.TensorProto(name="w", dims=dims, data_type=dtype, raw_data=data)
    graph = onnx.GraphProto(name="g", output=[onnx.ValueInfoProto(name="y")])
    if place == "initializer":
        graph.initializer.append(tensor)
    else:
        graph.node.append(onnx.helper.make_node("Constant", [], ["w"], value=tensor))
    graph.node.append(onnx.helper.make_node("Identity", ["w"], ["y"]))
    message = onnx.ModelProto(ir_version=9, graph=graph)
    message.opset_import.add(version=18)
    (y,) = deserialize(message.SerializeToString()).graph.outputs
    assert ConstantFolder().integers(y) is None
    held = IndexMaps(18).of(y)
    assert all(str(part).startswith(("w", "y")) for part in held.parts)


@pytest.mark.parametrize(
    "numbers", [[-(2**63), 2**63 - 1], [2**63 - 1, -(2**63), 0], [0, 2**62, -(2**62), 5]]
)
def test_numbers_at_the_ends_of_their_type_do_not_wrap(numbers: list[int]) -> None:
    (y,) = _model(f"y = Constant<value_ints = {numbers}>()").graph.outputs
    held = IndexMaps(18).of(y)
    found = held.vector()
    assert found is None or [part.number for part in found] in (numbers, [None] * len(numbers))
