"""A grown graph as a model: its interface, and a node of it in a body or a function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper

from tests.fuzz.catalogue import element

if TYPE_CHECKING:
    from tests.fuzz.graphs import Growth

__all__ = ["Drawn", "assembled"]


@dataclass
class Drawn:
    """A model, and what it is fed.

    Attributes:
        model: The model.
        feeds: Values of its inputs.
        ops: Its operators, for messages.
        empty: Those of its operators that make a value without elements.
    """

    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    ops: list[str]
    empty: frozenset[str]


def assembled(growth: Growth, outputs: Sequence[str]) -> Drawn:
    """Return what has grown as a model, some of it in a body or a function."""
    ops = [node.op_type for node in growth.nodes]
    empty = frozenset(
        node.op_type
        for node in growth.nodes
        if any(name and growth.values[name].size == 0 for name in node.output)
    )
    symbols = {2: "a", 3: "b", 5: "c", 0: "z"} if growth.rng.random() < 0.5 else {}
    inputs = [
        helper.make_tensor_value_info(
            name, element(value), [symbols.get(size, size) for size in value.shape]
        )
        for name, value in growth.feeds.items()
    ]
    nodes, functions = list(growth.nodes), []
    if nodes and growth.rng.random() < 0.3:
        _into_body(growth, nodes, inputs)
    elif nodes and growth.rng.random() < 0.4:
        functions.append(_into_function(growth, nodes))
    declared = [_declared(growth, name, name) for name in outputs]
    graph = helper.make_graph(nodes, f"fuzz_{growth.seed}", inputs, declared, growth.weights)
    imports = [helper.make_opsetid("", growth.opset)]
    imports += [helper.make_opsetid("local", 1)] if functions else []
    model = helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=11)
    return Drawn(model, growth.feeds, ops, empty)


def _declared(growth: Growth, name: str, like: str) -> onnx.ValueInfoProto:
    """Return a declaration that says type and rank, and leaves the sizes to inference."""
    value = growth.values[like]
    return helper.make_tensor_value_info(name, element(value), [None] * value.ndim)


def _into_body(
    growth: Growth, nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto]
) -> None:
    """Put one node into both branches of an If, which read its inputs from outside."""
    index = growth.rng.randrange(len(nodes))
    node = nodes[index]
    branches = []
    for branch in ("then", "else"):
        inner = onnx.NodeProto()
        inner.CopyFrom(node)
        inner.output[:] = [f"{branch}_{name}" for name in node.output]
        infos = [_declared(growth, f"{branch}_{name}", name) for name in node.output]
        branches.append(helper.make_graph([inner], branch, [], infos))
    then, other = branches
    nodes[index] = helper.make_node(
        "If", ["cond"], node.output, name=f"if_{index}", then_branch=then, else_branch=other
    )
    inputs.append(helper.make_tensor_value_info("cond", onnx.TensorProto.BOOL, []))
    growth.feeds = {**growth.feeds, "cond": np.asarray(growth.rng.random() < 0.5)}


def _into_function(growth: Growth, nodes: list[onnx.NodeProto]) -> onnx.FunctionProto:
    """Make one node the body of a function of the model."""
    index = growth.rng.randrange(len(nodes))
    node = nodes[index]
    read = list(dict.fromkeys(name for name in node.input if name))
    imports = [helper.make_opsetid("", growth.opset)]
    function = helper.make_function("local", "F", read, list(node.output), [node], imports)
    nodes[index] = helper.make_node("F", read, node.output, name="call", domain="local")
    return function
