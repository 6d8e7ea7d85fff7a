"""Bodies whose branches are decided, and bodies that may not read outer values."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto as T
from onnx import helper

from onnx_kvtool.analysis.constants import ConstantFolder
from onnx_kvtool.commands.lower import lower
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.rewrite.engine.expand import decide_branches
from onnx_kvtool.runtime.onnxruntime import Session
from tests.cache_models import model, value


def _choosing(condition: str) -> ir.Model:
    """A model whose If negates or doubles, by the rank of `x`, which is 2, or by an input."""
    branches = []
    for name, op in (("then_branch", "Neg"), ("else_branch", "Abs")):
        node = helper.make_node(op, ["x"], ["same"])
        branches.append(helper.make_graph([node], name, [], [value("same", T.FLOAT, [2, 3])]))
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Size", ["shape"], ["rank"]),
        helper.make_node("Constant", [], ["two"], value_int=2),
        helper.make_node("Equal", ["rank", "two"], ["known"]),
        helper.make_node(
            "If", [condition], ["chosen"], then_branch=branches[0], else_branch=branches[1]
        ),
        helper.make_node("Identity", ["chosen"], ["y"]),
    ]
    inputs = [value("x", T.FLOAT, [2, 3]), value("open", T.BOOL, [])]
    proto = model(nodes, inputs, [value("y", T.FLOAT, [2, 3])], opset=18)
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto))


@pytest.mark.parametrize(("condition", "left"), [("known", []), ("open", ["If"])])
def test_a_branch_takes_the_place_of_a_decided_if(condition: str, left: list[str]) -> None:
    work = _choosing(condition)
    decide_branches(work, ConstantFolder())
    assert [node.op_type for node in work.graph if node.op_type == "If"] == left
    onnx.checker.check_model(ir.to_proto(work), full_check=True)
    x = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
    feeds = {"x": x, "open": np.array(True)}
    np.testing.assert_array_equal(Session(serialize(work), "").run(feeds)["y"], -x)


def test_a_constant_that_a_branch_hands_out_has_the_name_of_the_output() -> None:
    work = _choosing("known")
    chosen = next(node for node in work.graph if node.op_type == "If")
    branch = chosen.attributes["then_branch"].as_graph()
    (old,) = branch
    held = ir.Value(name="held", const_value=ir.tensor(np.ones((2, 3), np.float32)))
    branch.register_initializer(held)
    branch.outputs[0] = held
    branch.remove(old, safe=True)
    work.graph.outputs[0] = chosen.outputs[0]
    decide_branches(work, ConstantFolder())
    (output,) = work.graph.outputs
    assert output.name == "chosen"
    producer = output.producer()
    assert producer is not None and producer.op_type == "Identity"
    assert producer.inputs[0] is held and held.graph is work.graph


def test_constants_for_the_body_of_a_stranger_stay_in_the_body() -> None:
    """Only ONNX's own control flow is known to let a body read values of outer graphs."""
    inner = helper.make_graph(
        [helper.make_node("Shape", ["v"], ["size"], start=1)],
        "body",
        [value("v", T.FLOAT, [2, "columns"])],
        [value("size", T.INT64, [1])],
    )
    node = helper.make_node("Apply", ["x"], ["y"], domain="me", body=inner)
    source = model([node], [value("x", T.FLOAT, [2, 3])], [value("y", T.INT64, [1])], opset=18)
    result, _ = lower(ir.from_proto(source), opset=13, verify=False)
    (apply,) = result.graph
    body = apply.attributes["body"].as_graph()
    assert [inside.op_type for inside in body] == ["Shape", "Slice"]
    assert not result.graph.initializers
    assert len(body.initializers) == 2
