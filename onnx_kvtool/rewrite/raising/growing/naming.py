"""The names of sizes in a model whose caches no longer grow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx_ir as ir

from onnx_kvtool.rewrite.raising.growing.position import Position
from onnx_kvtool.rewrite.raising.growing.sizes import Sizes
from onnx_kvtool.rewrite.raising.growing.window import Rolling
from onnx_kvtool.symbolic.dimensions import Dim, dim_names, dims_of, names_in, read_size, words
from onnx_kvtool.symbolic.expressions import Atom, Dimension, Expr, Extent, variable
from onnx_kvtool.symbolic.simplification import Facts, substitute

__all__ = ["forget_lengths", "name_lengths"]


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


def forget_lengths(graphs: Iterable[ir.Graph], windows: Sequence[Rolling]) -> None:
    """Take away the sizes of values that the source names by the rows of a window, in place.

    Each past may have a name of its own for them, which no input has any more. What is read of a
    circular cache is one number of rows, and inference finds it.

    Args:
        graphs: The graphs of the model, but those of functions, whose names are their own.
        windows: Its windows, whose pasts are still as long as the source says.
    """
    old: set[str] = set()
    for window in windows:
        dim = (dims_of(window.past) or ())[window.axis]
        old.update(names_in(dim) if isinstance(dim, str) else ())
    pasts = {(window.past, window.axis) for window in windows}
    for graph in graphs:
        for value in graph.inputs:
            for axis, dim in enumerate(dims_of(value) or ()):
                if isinstance(dim, str) and (value, axis) not in pasts:
                    old.difference_update(names_in(dim))
    for graph in graphs if old else ():
        for node in graph:
            for value in node.outputs:
                dims = dims_of(value)
                if dims is None or value.is_graph_output():
                    continue
                found = [
                    None if isinstance(d, str) and old.intersection(names_in(d)) else d
                    for d in dims
                ]
                if found != list(dims):
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
