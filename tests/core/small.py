"""Small messages that the tests of `core` change one thing of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx
from onnx import TensorProto, helper

FLOAT = TensorProto.FLOAT
INT64 = TensorProto.INT64
BOOL = TensorProto.BOOL


def plain() -> onnx.ModelProto:
    """`x (2, N) -> first Relu -> a -> second Neg -> y`, with the initializer `w (3, 5)` unread."""
    graph = helper.make_graph(
        [
            helper.make_node("Relu", ["x"], ["a"], name="first"),
            helper.make_node("Neg", ["a"], ["y"], name="second"),
        ],
        "main",
        [helper.make_tensor_value_info("x", FLOAT, [2, "N"])],
        [helper.make_tensor_value_info("y", FLOAT, [2, "N"])],
        [helper.make_tensor("w", FLOAT, [3, 5], bytes(60), raw=True)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=11)


def branched() -> onnx.ModelProto:
    """`plain` with an If named `choice`, whose branches read `a` from outside."""
    message = plain()
    branches = {
        name: helper.make_graph(
            [
                helper.make_node(op, ["a"], [f"{name}_in"], name=f"{name}_op"),
                helper.make_node("Add", [f"{name}_in", f"{name}_w"], [f"{name}_out"]),
            ],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_out", FLOAT, None)],
            [helper.make_tensor(f"{name}_w", FLOAT, [1], [2.0])],
        )
        for name, op in (("yes", "Abs"), ("no", "Sqrt"))
    }
    message.graph.input.append(helper.make_tensor_value_info("c", BOOL, []))
    message.graph.node.add(op_type="If", name="choice", input=["c"], output=["z"])
    for attribute, name in (("then_branch", "yes"), ("else_branch", "no")):
        message.graph.node[-1].attribute.append(helper.make_attribute(attribute, branches[name]))
    message.graph.output.append(helper.make_tensor_value_info("z", FLOAT, None))
    return message


def with_function() -> onnx.ModelProto:
    """`plain` with the function `my::twice:long (p; q = 1.5) u -> t -> v`, called by `call`."""
    message = plain()
    function = helper.make_function(
        "my",
        "twice",
        ["u"],
        ["v"],
        [
            helper.make_node("Abs", ["u"], ["t"], name="inner"),
            helper.make_node("Add", ["t", "t"], ["v"]),
        ],
        [helper.make_opsetid("", 21)],
        attributes=["p"],
        attribute_protos=[helper.make_attribute("q", 1.5)],
        doc_string="doubles",
        overload="long",
    )
    function.value_info.append(helper.make_tensor_value_info("t", FLOAT, [2, "N"]))
    function.metadata_props.add(key="k", value="v")
    message.functions.append(function)
    message.opset_import.append(helper.make_opsetid("my", 1))
    message.graph.node.append(
        helper.make_node("twice", ["y"], ["z"], "call", domain="my", overload="long")
    )
    message.graph.output.append(helper.make_tensor_value_info("z", FLOAT, [2, "N"]))
    return message


def external(
    name: str, dims: Sequence[int], *, dtype: int = FLOAT, **entries: str | int
) -> TensorProto:
    """An external tensor with these entries, in this order."""
    tensor = TensorProto(name=name, data_type=dtype, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def weighted(*tensors: TensorProto) -> onnx.ModelProto:
    """`plain` with these initializers in place of its own."""
    message = plain()
    del message.graph.initializer[:]
    message.graph.initializer.extend(tensors)
    return message


def save(message: onnx.ModelProto, path: Path) -> Path:
    """Write `message` as it is, and nothing beside it."""
    path.write_bytes(message.SerializeToString())
    return path
