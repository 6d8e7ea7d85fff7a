"""Sizes of growing caches: lengths, names, and the first position of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import onnx_ir as ir

from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.rewrite.raising.growing.growth import End, Growth, Rolling
from onnx_kvtool.rewrite.raising.proof import Measures, same_dim
from onnx_kvtool.rewrite.raising.stage import Assumptions, token_count
from onnx_kvtool.shapes.inference import infer_model
from onnx_kvtool.symbolic.broadcasting import SizeEqualities
from onnx_kvtool.symbolic.dimensions import Dim, dim_names, dims_of, names_in, read_size, words
from onnx_kvtool.symbolic.expressions import (
    ZERO,
    Atom,
    Dimension,
    Element,
    Expr,
    Extent,
    integer,
    text,
    variable,
)
from onnx_kvtool.symbolic.index_maps import IndexMaps
from onnx_kvtool.symbolic.knowledge import Knowledge
from onnx_kvtool.symbolic.simplification import Facts, interval, substitute

# What is known of sizes where caches grow: that all are one length, and what a step adds.


@dataclass(slots=True)
class Sizes:
    """Sizes of a model whose caches grow, at steps of at least one token and one sequence.

    Attributes:
        assumed: The assumptions that were used.
        measures: How to build a size as a value of the graph, from its inputs.
        pasts: The pasts of all caches that get another length.
        lengths: The length of each past that keeps all rows, as it is declared.
    """

    model: ir.Model
    knowledge: Knowledge
    equal: SizeEqualities
    assumed: list[str]
    measures: Measures
    pasts: frozenset[ir.Value]
    lengths: dict[Growth, Expr]

    @staticmethod
    def of(
        model: ir.Model,
        growths: Sequence[Growth],
        windows: Sequence[Rolling],
        assumptions: Assumptions,
        opset: int,
    ) -> Sizes:
        """Infer the sizes of a model.

        Raise Unproven if the model contradicts itself, or its caches are not of one length.
        """
        knowledge = infer_model(model).run.knowledge
        if knowledge.conflicts:
            message = f"the model contradicts itself: {knowledge.conflicts[0].message}"
            raise Unproven("contradiction", message)
        of_pasts = {(one.past, one.axis) for one in (*growths, *windows)}
        measures = Measures(IndexMaps(opset), _carriers(model, of_pasts))
        pasts = frozenset(past for past, _ in of_pasts)
        lengths = {growth: knowledge.shapes[growth.past][growth.axis] for growth in growths}
        sizes = Sizes(model, knowledge, SizeEqualities(), [], measures, pasts, lengths)
        if all(sizes._is_positive(size) for size in knowledge.assumed):
            sizes.equal = knowledge.equalities
        if growths:
            sizes._unite(growths, assumptions)
        return sizes

    @property
    def length(self) -> Expr:
        """The length of all pasts, as the first one declares it."""
        return next(iter(self.lengths.values()))

    def step(self, end: End | Rolling) -> Expr | None:
        """Return how many rows a step adds, over sizes of inputs; None if they do not say it."""
        known = self.knowledge.shapes.get(end.new)
        if known is None or len(known) <= end.axis:
            return None
        size = known[end.axis]
        return size if self._is_measured(size) else None

    def one_step(self, growths: Sequence[Growth | Rolling]) -> Expr | None:
        """Return how many rows a step adds to every cache; None where inputs do not say it.

        New rows come back as a past of the one length that all caches have, so that one may speak
        for all.
        """
        ends = (end for one in growths for end in (one.ends if isinstance(one, Growth) else [one]))
        steps = {self.step(end) for end in ends if end.node is not None} - {None}
        return steps.pop() if len(steps) == 1 else None

    def inputs(self) -> Iterator[tuple[ir.Value, int]]:
        """Yield each axis of an input of the model that is no cache."""
        for value in self.model.graph.inputs:
            if value not in self.pasts:
                yield from ((value, axis) for axis in range(len(dims_of(value) or ())))

    def behind(self, value: ir.Value, axis: int) -> Expr | None:
        """Return how much longer than the past an axis of an input is declared to be.

        None if its text is not the name of a past plus sizes of other inputs.
        """
        dim = (dims_of(value) or ())[axis]
        if not isinstance(dim, str) or not self.lengths:
            return None
        declared = read_size(dim)
        pairs = [(declared, length) for length in dict.fromkeys(self.lengths.values())]
        pairs.append((self.equal.resolved(declared), self.equal.resolved(self.length)))
        for size, length in pairs:
            rest = size - length
            is_named = isinstance(length.atom, Dimension)
            if is_named and length.atom not in set(rest.atoms()) and self._is_measured(rest):
                return rest
        return None

    def _is_measured(self, size: Expr) -> bool:
        """Return whether all names in a size are dimensions of inputs that are no caches."""
        return all(
            isinstance(atom, Dimension) and atom.name in self.measures.carriers
            for atom in size.atoms()
        )

    def _is_positive(self, size: Expr) -> bool:
        """Return whether a size is at least 1, if every size but those of pasts is."""
        known = self.measures.carriers
        for monomial, _ in size.terms:
            if monomial and all(isinstance(a, Dimension) and a.name in known for a, _ in monomial):
                low, _ = interval(size - Expr.of({monomial: 1}), Facts())
                if low >= 0:
                    return True
        return False

    def _unite(self, growths: Sequence[Growth], assumptions: Assumptions) -> None:
        """Prove that all pasts are of one length.

        Raise Unproven if two of them may differ, or the length is a number.
        """
        lengths = list(self.lengths.values())
        other = self._other(lengths)
        if other is not None and assumptions.dims:
            for a, b in assumptions.dims:
                one, two = self.equal.of_dim(a), self.equal.of_dim(b)
                if one is not None and two is not None:
                    self.equal.equate(one, two, Location(), "granted")
            self.assumed += assumptions.same_dims
            other = self._other(lengths)
        if other is not None:
            first = growths[0]
            growth = next(g for g, length in self.lengths.items() if length is other)
            raise Unproven(
                "sizes-unrelated",
                f"the caches are not known to be of one length: `{first.past.name}` has "
                f"`{text(lengths[0])}` rows and `{growth.past.name}` `{text(other)}`",
                assumption=same_dim(lengths[0], other),
            )
        number = self.equal.resolved(lengths[0]).number
        if number is not None:
            raise Unproven(
                "fixed-length", f"`{growths[0].past.name}` has {number} rows in every step"
            )

    def _other(self, lengths: Sequence[Expr]) -> Expr | None:
        """Return a length that is not known to be the first one."""
        return next((one for one in lengths if not self.equal.same(lengths[0], one)), None)


def _carriers(
    model: ir.Model, of_pasts: set[tuple[ir.Value, int]]
) -> dict[str, tuple[ir.Value, int]]:
    """Return for each dimension the first input that has it, pasts last, and the axis."""
    found: dict[str, tuple[ir.Value, int]] = {}
    pasts = {value for value, _ in of_pasts}
    for value in sorted(model.graph.inputs, key=lambda v: v in pasts):
        for axis, dim in enumerate(dims_of(value) or ()):
            size = read_size(dim) if isinstance(dim, str) else ZERO
            if isinstance(size.atom, Dimension) and (value, axis) not in of_pasts:
                found.setdefault(size.atom.name, (value, axis))
    return found


# Where a step begins: how many rows of every cache are in use before it.


class Position(NamedTuple):
    """How many rows of every cache are in use before a step.

    Attributes:
        proof: Why it is that number.
        assumed: The assumption behind it.
        added: A new input for it, if no input says it; it is not part of the graph yet.
        whole: The size that is granted to be that of the past and the new tokens together.
    """

    start: Expr
    proof: str
    assumed: str | None = None
    added: ir.Value | None = None
    whole: Expr | None = None


def position_of(
    model: ir.Model,
    growths: Sequence[Growth | Rolling],
    sizes: Sizes,
    assumptions: Assumptions,
    *,
    by_size: bool = True,
) -> Position:
    """Find an input that says where a step begins, or make a new one.

    The size of an input says it, if its text is the length of the past plus the new rows, or if it
    is granted to be both. Sizes say nothing if all caches are windows, which stop growing, or if
    they are about to be fixed; then `by_size` is false.

    Raises:
        Unproven: If an input is granted to cover the past and what a step adds to it is unknown.
    """
    granted = assumptions.values.get("covers-past", frozenset())
    for value in model.graph.inputs:
        if by_size and value.name in granted and sizes.lengths:
            return _granted(value, growths, sizes)
    for value, axis in sizes.inputs():
        rest = sizes.behind(value, axis) if by_size else None
        if rest is not None:
            dim = (dims_of(value) or ())[axis]
            start = variable(Extent(value, integer(axis))) - rest
            return Position(start, f"`{value.name}` is `{dim}` long, by its declaration")
    added = token_count(model)
    start = variable(Element(added, (ZERO,)))
    text = f"the new input `{added.name}` says how many tokens came before"
    return Position(start, text, None, added)


def _granted(value: ir.Value, growths: Sequence[Growth | Rolling], sizes: Sizes) -> Position:
    dims = dims_of(value)
    if not dims:
        raise Unproven("unknown-rank", f"the rank of `{value.name}` is unknown or 0")
    step = sizes.one_step(growths)
    if step is None:
        raise Unproven(
            "step-unknown",
            f"no input says how many rows a step adds, so `{value.name}` does not say how many "
            "were there before",
        )
    mask = sizes.knowledge.shapes[value][-1]
    start = variable(Extent(value, integer(len(dims) - 1))) - step
    text = f"`{value.name}` is as long as the past and the new tokens"
    return Position(start, text, f"covers-past:{value.name}", whole=mask)


# The names of sizes in a model whose caches no longer grow.


def name_lengths(
    model: ir.Model, graphs: Iterable[ir.Graph], sizes: Sizes, position: Position
) -> None:
    """Give the number of rows in use before a step one name in the shapes of all values, in place.

    In the source each past may have its own name for its length. No input has these sizes any more,
    so that nothing would say what they are, or that they are equal. `graphs` are those of the model
    without functions, whose names are their own.
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
    _rename(graphs, lambda dim: _renamed(dim, known))


def _rename(graphs: Iterable[ir.Graph], renamed: Callable[[Dim], Dim]) -> None:
    """Replace sizes in the shapes of all results but outputs, in place."""
    for graph in graphs:
        for node in graph:
            for value in node.outputs:
                dims = dims_of(value)
                found = None if dims is None else tuple(map(renamed, dims))
                if found is not None and found != dims and not value.is_graph_output():
                    value.shape = ir.Shape(found)


def forget_lengths(graphs: Iterable[ir.Graph], windows: Sequence[Rolling]) -> None:
    """Remove sizes of values that are named after the rows of a window, in place.

    No input has such a name any more. Inference finds the number of rows that is read of a circular
    cache. The pasts of `windows` still have the length that the source says.
    """
    pasts = {(window.past, window.axis) for window in windows}
    lost, kept = set[str](), set[str]()
    for value in (value for graph in graphs for value in graph.inputs):
        for axis, dim in enumerate(dims_of(value) or ()):
            if dim is not None:
                (lost if (value, axis) in pasts else kept).update(names_in(dim))
    if old := lost - kept:
        _rename(graphs, lambda d: None if old.intersection(() if d is None else names_in(d)) else d)


def _length(position: Position, kept: set[str]) -> Expr | None:
    """Return how many rows are in use before a step, over names of inputs or one new name."""
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
