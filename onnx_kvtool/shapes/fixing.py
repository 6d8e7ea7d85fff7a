"""Giving symbolic dimensions a size for good."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx_ir as ir

from onnx_kvtool.symbolic.atoms import Atom, Dimension
from onnx_kvtool.symbolic.bounds import Facts
from onnx_kvtool.symbolic.expression import Expr
from onnx_kvtool.symbolic.sizes import number, read_size, words
from onnx_kvtool.symbolic.substitute import substitute

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
    bound: dict[Atom, Expr] = {Dimension(name): number(n) for name, n in dims.items()}
    texts: dict[str, int | str] = {}

    def fixed(dim: int | ir.SymbolicDim) -> int | str | None:
        if isinstance(dim, int) or dim.value is None:
            return dim if isinstance(dim, int) else None
        text = dim.value
        if text not in texts:
            size = read_size(text)
            found = substitute(size, {}, Facts(), bound)
            known = found.number if found.number is not None else words(found)
            texts[text] = text if found == size or known is None else known
        return texts[text]

    for value in _values(model.graph) if dims else ():  # a walk takes a tenth of a lowering
        old = value.shape
        if old is None or old.is_static():
            continue
        sizes = [fixed(dim) for dim in old]
        if sizes != [dim if isinstance(dim, int) else dim.value for dim in old]:
            value.shape = ir.Shape(sizes, [old.get_denotation(axis) for axis in range(len(old))])


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    for node in graph.all_nodes():
        yield from node.outputs
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
                yield from attribute.as_graph().inputs
