"""If and Loop as opsets below 11 take them: branches of one shape, and something to carry."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.constants import Folder
from onnx_kvtool.core.location import Location
from onnx_kvtool.core.walk import nodes
from onnx_kvtool.emit.names import Names
from onnx_kvtool.ops.schema import is_standard
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.rewrite.engine.branches import decide_branches
from onnx_kvtool.rewrite.engine.edits import remove_unused
from onnx_kvtool.shapes.infer import annotate

__all__ = ["settle_branches", "settle_loops"]

_Trace = Mapping[ir.Node, Location]
_CARRIED = "kvtool/carried"


def settle_branches(model: ir.Model, trace: _Trace) -> list[Location]:
    """Replace each If whose condition is constant by the branch that it takes, in place.

    Args:
        model: A model of opset 11.
        trace: Where each node stands.

    Returns:
        Where they stood.
    """
    conditions = [node.inputs[0] for node in _all(model, "If")]
    if not conditions:
        return []
    annotations = annotate(model, lambda node: Trait.GIVES_SIZES in traits(node), fully=True)
    decided = decide_branches(model, Folder())
    annotations.remove()
    for condition in conditions:
        if condition is not None:
            remove_unused(condition)
    return [trace[node] for node in decided if node in trace]


def settle_loops(model: ir.Model, trace: dict[ir.Node, Location]) -> list[Location]:
    """Let each Loop without carried values carry a constant, in place.

    Args:
        model: A model of opset 11.
        trace: Where each node stands; the new nodes are added with the place of the old ones.

    Returns:
        Where they stood.
    """
    names, places, first = Names(model), [], None
    for node in _all(model, "Loop"):
        body = node.attributes["body"].as_graph()
        if len(body.inputs) > 2:
            continue
        if first is None:
            first = _carried(names.fresh(_CARRIED))
            first.const_value = ir.tensor(np.zeros((), np.int64), name=first.name)
            model.graph.register_initializer(first)
        loop = _with_carried(node, body, first, names)
        place = trace.get(node)
        if place is not None:
            trace[loop] = place
            places.append(place)
    return places


def _with_carried(node: ir.Node, body: ir.Graph, first: ir.Value, names: Names) -> ir.Node:
    """Put a Loop that carries one value through its body in the place of one that carries none."""
    given = _carried(names.fresh(_CARRIED))
    passed = ir.Node("", "Identity", [given], name=names.fresh(_CARRIED), version=node.version)
    passed.outputs[0].name = names.fresh(_CARRIED)
    passed.outputs[0].type = given.type
    passed.outputs[0].shape = given.shape
    body.append(passed)
    body.inputs.append(given)
    body.outputs.insert(1, passed.outputs[0])
    limits = [*node.inputs, None, None][:2]
    attributes = list(node.attributes.values())
    loop = ir.Node(
        "",
        "Loop",
        [*limits, first],
        attributes,
        num_outputs=len(node.outputs) + 1,
        version=node.version,
        name=node.name,
    )
    loop.metadata_props.update(node.metadata_props)
    loop.outputs[0].name = names.fresh(_CARRIED)
    graph = node.graph
    assert graph is not None
    ir.convenience.replace_nodes_and_values(
        graph,
        insertion_point=node,
        old_nodes=[node],
        new_nodes=[loop],
        old_values=node.outputs,
        new_values=loop.outputs[1:],
    )
    return loop


def _carried(name: str) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([]))


def _all(model: ir.Model, op_type: str) -> list[ir.Node]:
    return [n for _, _, n in nodes(model) if n.op_type == op_type and is_standard(n)]
