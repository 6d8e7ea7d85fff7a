"""The names of sizes in a model whose caches no longer grow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx_ir as ir

from onnx_kvtool.rewrite.raising.growing.position import Position
from onnx_kvtool.rewrite.raising.growing.sizes import Sizes
from onnx_kvtool.symbolic.atoms import Atom, Dimension, Extent
from onnx_kvtool.symbolic.bounds import Facts
from onnx_kvtool.symbolic.dims import Dim, dim_names, dims_of
from onnx_kvtool.symbolic.expression import Expr, variable
from onnx_kvtool.symbolic.sizes import names_in, read_size, words
from onnx_kvtool.symbolic.substitute import substitute

__all__ = ["name_lengths"]


def name_lengths(
    model: ir.Model, graphs: Iterable[ir.Graph], sizes: Sizes, position: Position
) -> None:
    """Call the rows in use before a step by one name in the shapes of all values, in place.

    In the source it is the length of the pasts, each of which may have a name of its own. No input
    has such a length any more, so that nobody could know the name, nor that two of them are one.

    Args:
        model: The model, whose pasts have their capacity.
        graphs: Its graphs, but those of functions, whose names are their own.
        sizes: What was known of sizes.
        position: Where a step begins.
    """
    kept = dim_names(model)
    for value in model.graph.outputs:
        kept.update(
            name for dim in dims_of(value) or () if dim is not None for name in names_in(dim)
        )
    old = {
        length.atom
        for length in sizes.lengths.values()
        if isinstance(length.atom, Dimension) and length.atom.name not in kept
    }
    new = _length(position, kept)
    if not old or new is None:
        return
    known: dict[Atom, Expr] = dict.fromkeys(old, new)
    for graph in graphs:
        for node in graph:
            for value in node.outputs:
                dims = dims_of(value)
                found = None if dims is None else tuple(_renamed(dim, known) for dim in dims)
                if found is not None and found != dims and not value.is_graph_output():
                    value.shape = ir.Shape(found)


def _length(position: Position, kept: set[str]) -> Expr | None:
    """Return how many rows are in use before a step, over names that inputs have, or one new."""
    if position.added is not None:
        name = position.added.name or ""
        return None if name in kept else variable(Dimension(name))
    found: dict[Atom, Expr] = {}
    for atom in position.start.atoms():
        if isinstance(atom, Extent):
            dim = (dims_of(atom.value) or ())[atom.axis.number or 0]
            if not isinstance(dim, str):
                return None
            found[atom] = read_size(dim)
        elif not isinstance(atom, Dimension):
            return None
    return substitute(position.start, {}, Facts(), found)


def _renamed(dim: Dim, known: Mapping[Atom, Expr]) -> Dim:
    if not isinstance(dim, str):
        return dim
    size = read_size(dim)
    found = substitute(size, {}, Facts(), known)
    if found == size:
        return dim
    return found.number if found.number is not None else words(found) or dim
