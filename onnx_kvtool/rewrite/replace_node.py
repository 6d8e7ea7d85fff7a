"""The edit that ends every rewrite of one node."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.rewrite.emit import Emitter
from onnx_kvtool.rewrite.lowering.context import Replacement

__all__ = ["replace_node"]


def replace_node(node: ir.Node, em: Emitter, replacement: Replacement) -> list[ir.Node]:
    """Put the emitted nodes in the place of `node`, in place; nothing can be refused any more.

    Each output takes the name of the one it replaces, so that graph outputs keep theirs, and the
    new nodes take the node's metadata.

    Args:
        node: The node; it is removed from its graph.
        em: Holds the new nodes; it is committed.
        replacement: What takes the place of the outputs.

    Returns:
        The new nodes, as they now stand in the graph.
    """
    graph = node.graph
    assert graph is not None
    old, new = [], []
    produced = {value for emitted in em.nodes for value in emitted.outputs}
    for output, value in zip(node.outputs, replacement.outputs, strict=True):
        if value is None:
            continue
        old.append(output)
        if value in produced and value not in new:
            new.append(value)
            continue
        # An output takes the name of the one it replaces; a value that has another name already
        # keeps it behind an Identity.
        copied = em.op("Identity", value, dtype=value.dtype or ir.DataType.UNDEFINED)
        copied.type = output.type
        new.append(copied)
    nodes = em.commit()
    for emitted in nodes:
        emitted.metadata_props.update(node.metadata_props)
    ir.convenience.replace_nodes_and_values(
        graph,
        insertion_point=node,
        old_nodes=[node],
        new_nodes=nodes,
        old_values=old,
        new_values=new,
    )
    return nodes
