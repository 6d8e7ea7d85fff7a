"""The bodies of the nodes of a protobuf message, whatever node holds them.

Graphs stand in attributes of If, Loop, Scan and SequenceMap, and in those of operators of other
domains: `decoder` and `init_decoder` of onnxruntime's BeamSearch. So it is not the operator but the
attribute that is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

import onnx

__all__ = ["bodies", "every_holder", "every_node", "named_bodies"]

_A = onnx.AttributeProto
_MAY_HOLD = frozenset({_A.UNDEFINED, _A.GRAPH, _A.GRAPHS})
"""Types of the attributes that may hold graphs; files of early IR versions give none."""

_Holder = onnx.GraphProto | onnx.FunctionProto
"""What has nodes."""


def bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """Return the graphs that a node itself holds, in the order of its attributes.

    An attribute that refers to one of the enclosing function holds none.
    """
    return [graph for _, graph in named_bodies(node)]


def named_bodies(node: onnx.NodeProto) -> list[tuple[str, onnx.GraphProto]]:
    """Return the graphs that a node itself holds with the attributes that hold them.

    One of a list of graphs has its position behind the name: `branches[1]`.
    """
    found = []
    for attribute in node.attribute:
        if attribute.type in _MAY_HOLD:
            if attribute.HasField("g"):
                found.append((attribute.name, attribute.g))
            found += [(f"{attribute.name}[{i}]", g) for i, g in enumerate(attribute.graphs)]
    return found


def every_holder(root: onnx.ModelProto | _Holder, within: Set[str] | None = None) -> list[_Holder]:
    """Return all that has nodes: the main graph, the functions, then bodies after what holds them.

    Args:
        root: The model, or one graph or function.
        within: The operators whose bodies are wanted, of any domain; None for all. To look at
            the attributes of each node takes most of the time.
    """
    found = _outermost(root)
    for holder in found:  # which grows
        for node in holder.node:
            if within is None or node.op_type in within:
                found += bodies(node)
    return found


def every_node(
    root: onnx.ModelProto | _Holder, within: Set[str] | None = None
) -> Iterator[onnx.NodeProto]:
    """Yield all nodes, those of a graph together and before those of its bodies.

    Args:
        root: The model, or one graph or function.
        within: The operators whose bodies are wanted, of any domain; None for all.
    """
    pending = _outermost(root)
    for holder in pending:  # which grows
        for node in holder.node:
            yield node
            if within is None or node.op_type in within:
                pending += bodies(node)


def _outermost(root: onnx.ModelProto | _Holder) -> list[_Holder]:
    return [root.graph, *root.functions] if isinstance(root, onnx.ModelProto) else [root]
