"""Giving symbolic dimensions a size for good."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx_ir as ir

from onnx_kvtool.symbolic.dimensions import bind_dim

__all__ = ["fix_dims"]


def fix_dims(model: ir.Model, dims: Mapping[str, int]) -> None:
    """Put sizes in the place of names in all declared shapes, in place.

    Inputs, outputs and values of the main graph and of bodies have the numbers then, and what they
    declare in terms of the names (`2*batch`) follows. Nodes are not touched, and functions have
    dimensions of their own.

    Args:
        model: The model.
        dims: Sizes by the name of a dimension.
    """
    for value in _values(model.graph) if dims else ():  # a walk takes a tenth of a lowering
        old = value.shape
        if old is None or old.is_static():
            continue
        declared = [dim if isinstance(dim, int) else dim.value for dim in old]
        sizes = [bind_dim(dim, dims) for dim in declared]
        if sizes != declared:
            value.shape = ir.Shape(sizes, [old.get_denotation(axis) for axis in range(len(old))])


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    for node in graph.all_nodes():
        yield from node.outputs
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
                yield from attribute.as_graph().inputs
