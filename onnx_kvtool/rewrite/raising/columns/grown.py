"""Which axes of which values are as long as the rows in use after a step, before anything is done.

Once caches have a capacity, nothing in a model says that two of its sizes are that one number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx_ir as ir

from onnx_kvtool.ops.element_type import WHOLE_TYPES
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.rewrite.raising.growing.sizes import Sizes
from onnx_kvtool.rewrite.raising.stage import GROWN, LONGER, Grown, Size
from onnx_kvtool.symbolic.dimensions import bind_dim
from onnx_kvtool.symbolic.expressions import Dimension, Expr, text

__all__ = ["grown_values"]


def grown_values(model: ir.Model, sizes: Sizes, step: Expr, dims: Mapping[str, int]) -> Grown:
    """Return which values of the main graph are as long as the rows in use.

    Args:
        model: The model, its types and shapes inferred and written on the values.
        sizes: What is known of them.
        step: How many rows a step adds.
        dims: Sizes that the result has in place of names.
    """
    total = sizes.length + step
    longer = [sizes.equal.resolved(size) for size in _longer(sizes)]

    def number(size: Expr) -> Size:
        if sizes.equal.same(size, total):
            return GROWN
        found = bind_dim(text(size), dims) if size.number is None else size.number
        if not isinstance(found, int):
            return LONGER if sizes.equal.resolved(size) in longer else None
        return found

    graph = model.graph
    shapes = {
        value: tuple(map(number, shape))
        for value in (*graph.inputs, *graph.initializers.values(), *_results(graph))
        if (shape := sizes.knowledge.shapes.get(value)) is not None
    }
    for node in graph:
        _carry(node, shapes)
    types = {value: value.dtype for value in shapes if value.dtype is not None}
    return Grown(shapes, types, dims)


def _carry(node: ir.Node, shapes: dict[ir.Value, tuple[Size, ...]]) -> None:
    """Find the length of an input again, where a Reshape does not say that it keeps it."""
    kept = node.op_type == "Reshape" or Trait.KEEPS_SHAPE in traits(node)
    source = node.inputs[0] if kept and node.domain == "" and node.inputs else None
    before, after = (shapes.get(v, ()) if v is not None else () for v in (source, node.outputs[0]))
    if before.count(LONGER) != 1 or len(after) != len(before) or after.count(None) != 1:
        return
    axis = after.index(None)
    if before == (*after[:axis], LONGER, *after[axis + 1 :]):
        shapes[node.outputs[0]] = before


def _longer(sizes: Sizes) -> Iterator[Expr]:
    """Yield the lengths of inputs (B, ..) that may say something of each key, by other names."""
    for value, axis in sizes.inputs():
        known = sizes.knowledge.shapes.get(value)
        if known is None or len(known) != 2 or axis != 1 or value.dtype not in WHOLE_TYPES:
            continue
        if isinstance(known[1].atom, Dimension):
            yield known[1]


def _results(graph: ir.Graph) -> Iterator[ir.Value]:
    for node in graph:
        yield from node.outputs
