"""Sizes that follow from a TensorScatter alone, and that no scatter by index says any more."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from onnx_kvtool.core.walk import nodes
from onnx_kvtool.ops.tensor_scatter import TensorScatter
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.symbolic.dimensions import Dim, dims_of

__all__ = ["declared_updates"]


def declared_updates(model: ir.Model, opset: int) -> Callable[[], None]:
    """Return a function that declares what only a TensorScatter says of its update, in place.

    TensorScatter demands that an update has the sizes of the cache but along its axis. A scatter by
    index writes a part of the cache where they differ, so that the graph no longer says that they
    do not; the declared shape of the update does. What inference finds is not declared, and inputs
    and outputs of graphs keep their shape.

    Args:
        model: A model whose types and shapes are inferred, before it is lowered. The function is to
            be called when it is lowered and what was inferred is taken away.
        opset: Version of the default domain.
    """
    found: dict[ir.Value, dict[int, Dim]] = {}
    unknown: dict[ir.Value, tuple[ir.TypeProtocol | None, tuple[Dim, ...]]] = {}
    for _, _, node in nodes(model):
        if node.op_type != "TensorScatter" or node.domain != "":
            continue
        try:
            view = TensorScatter(node, node.version if node.version is not None else opset)
            axis = view.sequence_axis
        except MalformedNode:
            continue
        producer = view.update.producer()
        if producer is None or producer.graph is not node.graph:
            continue  # in another graph it is there, too, where this node never runs
        past, update = dims_of(view.past_cache), dims_of(view.update)
        if axis is None or past is None or (update is not None and len(update) != len(past)):
            continue
        lacking = {
            i: size
            for i, size in enumerate(past)
            if i != axis and size is not None and (update is None or update[i] is None)
        }
        if lacking:
            found.setdefault(view.update, {}).update(lacking)
            unknown[view.update] = view.past_cache.type, (None,) * len(past)

    def declare() -> None:
        for value, sizes in found.items():
            type_, dims = unknown[value]
            if value.is_graph_output():
                continue
            value.type = value.type or type_
            dims = dims_of(value) or dims
            value.shape = ir.Shape([sizes.get(i) if d is None else d for i, d in enumerate(dims)])

    return declare
