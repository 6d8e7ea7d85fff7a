"""Bodies in protobuf messages are found whatever operator holds them."""

from __future__ import annotations

import onnx
from onnx import AttributeProto, helper

from onnx_kvtool.model_io.verbatim import bodies, every_holder, every_node, named_bodies
from tests.grids import each


def _body(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph([*nodes, helper.make_node("Abs", [name], [f"{name}.y"])], name, [], [])


def _message() -> onnx.ModelProto:
    """An If, a BeamSearch in one of its branches, a list of bodies, a function with a Loop."""
    search = helper.make_node(
        "BeamSearch",
        ["x"],
        ["s"],
        domain="com.microsoft",
        decoder=_body("decoder"),
        init_decoder=_body("init"),
        length=5,
    )
    switch = helper.make_node("Switch", ["x"], ["w"], domain="my", cases=[_body("p"), _body("q")])
    branches = {"then_branch": _body("then", search), "else_branch": _body("else")}
    choice = helper.make_node("If", ["c"], ["y"], **branches)
    loop = helper.make_node("Loop", ["m"], ["z"], body=_body("loop"))
    loop.attribute.add(name="given", type=AttributeProto.GRAPH, ref_attr_name="given")
    function = helper.make_function("my", "F", ["m"], ["z"], [loop], [], ["given"])
    graph = helper.make_graph([switch, choice], "main", [], [])
    return helper.make_model(graph, functions=[function])


def test_every_holder() -> None:
    found = [holder.name for holder in every_holder(_message())]
    assert found == ["main", "F", "p", "q", "else", "then", "loop", "decoder", "init"]


def test_every_holder_of_some_operators() -> None:
    found = [holder.name for holder in every_holder(_message(), {"If", "Loop"})]
    assert found == ["main", "F", "else", "then", "loop"]


@each("operators", [None, {"If", "Loop"}, {"Switch"}, set[str]()])
def test_every_node_is_that_of_every_holder(operators: set[str] | None) -> None:
    message = _message()
    for root in (message, message.graph, message.functions[0]):
        expected = [node for holder in every_holder(root, operators) for node in holder.node]
        assert list(every_node(root, operators)) == expected


def test_named_bodies() -> None:
    switch, choice = _message().graph.node
    assert [name for name, _ in named_bodies(switch)] == ["cases[0]", "cases[1]"]
    assert [name for name, _ in named_bodies(choice)] == ["else_branch", "then_branch"]
    assert [graph.name for graph in bodies(choice)] == ["else", "then"]


def test_a_body_whose_attribute_has_no_type() -> None:
    node = helper.make_node("If", ["c"], ["y"], then_branch=_body("then"))
    node.attribute[0].ClearField("type")
    assert [graph.name for graph in bodies(node)] == ["then"]
