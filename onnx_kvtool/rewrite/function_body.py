"""The graph of a function, which has no initializers."""

from __future__ import annotations

import onnx_ir as ir

__all__ = ["without_initializers"]


def without_initializers(graph: ir.Graph, opset: int) -> None:
    """Turn each initializer into a Constant at the start of the graph, in place.

    Args:
        graph: Graph of a function, to which rewrites added initializers.
        opset: Version of the default domain for which the new nodes are tagged.
    """
    constants = []
    for name, value in tuple(graph.initializers.items()):
        tensor = value.const_value
        if tensor is None:
            continue
        node = ir.Node(
            "", "Constant", [], [ir.AttrTensor("value", tensor)], version=opset, name=name
        )
        output = node.outputs[0]
        output.type, output.shape = value.type, value.shape
        del graph.initializers[name]
        value.replace_all_uses_with(output)
        output.name = name
        constants.append(node)
    first = next(iter(graph), None)
    if constants and first is not None:
        graph.insert_before(first, constants)
