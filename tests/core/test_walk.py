"""Every graph, node and tensor is met once, under the path that diagnostics print."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
from onnx import AttributeProto, helper

from onnx_kvtool.core.walk import contents, graphs, nodes, subgraphs, tensors
from onnx_kvtool.model_io.model import read
from tests.core.small import FLOAT, branched, save, with_function


def _message() -> onnx.ModelProto:
    """Branches, one of them with a list of bodies; functions, one with a body and an overload."""
    message = branched()
    functions = with_function()
    message.functions.extend(functions.functions)
    message.opset_import.add(domain="my", version=1)
    message.functions.add(domain="my", name="idle", input=["u"], output=["u"])
    branch = message.graph.node[-1].attribute[1].g
    bodies = [helper.make_graph([], name, [], []) for name in ("p", "q")]
    node = helper.make_node("Switch", ["a"], ["s"], domain="my", cases=bodies)
    branch.node.insert(0, node)
    inner = helper.make_graph(
        [helper.make_node("Abs", ["u"], ["b"])],
        "inner",
        [],
        [helper.make_tensor_value_info("b", FLOAT, None)],
        [helper.make_tensor("fw", FLOAT, [1], [1.0])],
    )
    message.functions[0].node.append(
        helper.make_node("If", ["u"], ["o"], then_branch=inner, else_branch=inner)
    )
    reference = message.functions[0].node[0].attribute.add(name="body", ref_attr_name="q")
    reference.type = AttributeProto.GRAPH
    constant = helper.make_tensor("", FLOAT, [1], [1.0])
    message.functions[0].attribute_proto.append(helper.make_attribute("d", constant))
    message.functions[0].node.append(helper.make_node("Constant", [], ["k"], value=constant))
    message.graph.node.append(helper.make_node("Many", [], ["m"], "many", domain="my"))
    message.graph.node[-1].attribute.append(helper.make_attribute("ts", [constant, constant]))
    return message


def _model(tmp_path: Path) -> ir.Model:
    return read(save(_message(), tmp_path / "m.onnx"))


def test_graphs(tmp_path: Path) -> None:
    found = [(path, graph.name) for path, graph in graphs(_model(tmp_path))]
    assert [path for path, _ in found] == [
        "main",
        "main/choice.then_branch",
        "main/choice.else_branch",
        "main/choice.else_branch/#0.cases[0]",
        "main/choice.else_branch/#0.cases[1]",
        "my::twice:long",
        "my::twice:long/#2.else_branch",
        "my::twice:long/#2.then_branch",
        "my::idle",
    ]
    assert [name for _, name in found][:5] == ["main", "yes", "no", "p", "q"]


def test_a_main_graph_without_a_name(tmp_path: Path) -> None:
    message = _message()
    message.graph.ClearField("name")
    model = read(save(message, tmp_path / "m.onnx"))
    assert next(graphs(model))[0] == "main_graph"


def test_nodes(tmp_path: Path) -> None:
    found = [(path, index, node.op_type) for path, index, node in nodes(_model(tmp_path))]
    assert found == [
        ("main", 0, "Relu"),
        ("main", 1, "Neg"),
        ("main", 2, "If"),
        ("main/choice.then_branch", 0, "Abs"),
        ("main/choice.then_branch", 1, "Add"),
        ("main/choice.else_branch", 0, "Switch"),
        ("main/choice.else_branch", 1, "Sqrt"),
        ("main/choice.else_branch", 2, "Add"),
        ("main", 3, "Many"),
        ("my::twice:long", 0, "Abs"),
        ("my::twice:long", 1, "Add"),
        ("my::twice:long", 2, "If"),
        ("my::twice:long/#2.else_branch", 0, "Abs"),
        ("my::twice:long/#2.then_branch", 0, "Abs"),
        ("my::twice:long", 3, "Constant"),
    ]


def test_a_node_may_be_removed_while_walking(tmp_path: Path) -> None:
    model = _model(tmp_path)
    seen = []
    for path, index, node in nodes(model):
        seen.append((path, index))
        if node.op_type == "Many":
            model.graph.remove(node)
    assert seen == [(path, index) for path, index, _ in nodes(_model(tmp_path))]


def test_subgraphs(tmp_path: Path) -> None:
    model = _model(tmp_path)
    by_op = {node.op_type: node for path, _, node in nodes(model) if path != "my::twice:long"}
    assert [name for name, _ in subgraphs(by_op["If"])] == ["then_branch", "else_branch"]
    assert [name for name, _ in subgraphs(by_op["Switch"])] == ["cases[0]", "cases[1]"]
    function = next(iter(model.functions.values()))
    assert list(subgraphs(function.graph[0])) == []  # a reference holds no graph


def test_tensors(tmp_path: Path) -> None:
    assert [str(place) for place, _ in tensors(_model(tmp_path))] == [
        "main, value `w`",
        "main, node `many` (my::Many), value `ts`",
        "main, node `many` (my::Many), value `ts`",
        "main/choice.then_branch, value `yes_w`",
        "main/choice.else_branch, value `no_w`",
        "my::twice:long, node `#3` (Constant), value `value`",
        "my::twice:long/#2.else_branch, value `fw`",
        "my::twice:long/#2.then_branch, value `fw`",
        "my::twice:long, value `d`",
    ]


def test_a_tensor_of_an_undefined_type(tmp_path: Path) -> None:
    message = _message()
    odd = onnx.TensorProto(name="odd")
    message.graph.node[0].attribute.append(helper.make_attribute("k", odd))
    found = [tensor.name for _, tensor in tensors(read(save(message, tmp_path / "m.onnx")))]
    assert "odd" in found


def test_contents(tmp_path: Path) -> None:
    model = _model(tmp_path)
    found = list(contents(model))
    assert [(path, graph) for path, graph, _ in found] == list(graphs(model))
    assert [listed for _, _, listed in found] == [tuple(graph) for _, graph in graphs(model)]
