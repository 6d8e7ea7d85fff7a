"""Names, documentation and metadata of a node, copied to the nodes that replace it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from onnx_kvtool.core.walk import subgraphs

__all__ = ["copy_metadata"]


def copy_metadata(node: ir.Node, emitted: Sequence[ir.Node]) -> None:
    """Make new nodes known by what the node was known by whose place they took, in place.

    The node that computes the first output takes the name, the documentation and the device
    configurations; each output takes documentation and metadata of the one it replaces. A value
    whose element type is unknown declares no type: a file has no form for one without.

    Args:
        node: The node that was replaced; it no longer stands in a graph.
        emitted: What replaced it; outputs have the names of those they replace.
    """
    for value in _values(emitted):
        if value.dtype == ir.DataType.UNDEFINED:
            value.type = None
    producers = {output.name: output for new in emitted for output in new.outputs if output.name}
    for old in node.outputs:
        output = producers.get(old.name) if old.name else None
        if output is None:
            continue
        output.doc_string = old.doc_string
        output.metadata_props.update(old.metadata_props)
    found = (producers.get(output.name) for output in node.outputs if output.name)
    first = next((output for output in found if output is not None), None)
    producer = None if first is None else first.producer()
    if producer is None:
        return
    producer.name = node.name or producer.name
    producer.doc_string = node.doc_string
    producer.device_configurations = node.device_configurations


def _values(emitted: Sequence[ir.Node]) -> Iterator[ir.Value]:
    for node in emitted:
        yield from node.outputs
        for _, body in subgraphs(node):
            yield from _values(tuple(body))
