"""What is known of sizes where caches grow: that all are one length, and what a step adds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.location import Location
from onnx_kvtool.rewrite.raising.assumptions import Assumptions
from onnx_kvtool.rewrite.raising.growing.ends import End
from onnx_kvtool.rewrite.raising.growing.growth import Growth
from onnx_kvtool.rewrite.raising.growing.window import Rolling
from onnx_kvtool.rewrite.raising.proof import same_dim
from onnx_kvtool.rewrite.raising.start import Measures
from onnx_kvtool.shapes.inference import infer_model
from onnx_kvtool.symbolic.broadcasting import SizeEqualities
from onnx_kvtool.symbolic.dimensions import dims_of, read_size
from onnx_kvtool.symbolic.expressions import Dimension, Expr, integer, text
from onnx_kvtool.symbolic.index_maps import IndexMaps
from onnx_kvtool.symbolic.knowledge import Knowledge
from onnx_kvtool.symbolic.simplification import Facts, interval

__all__ = ["Sizes"]


@dataclass(slots=True)
class Sizes:
    """Sizes of a model whose caches grow, at steps of at least one token and one sequence.

    Attributes:
        model: The model.
        knowledge: What inference finds.
        equal: Which sizes are one.
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
    pasts: frozenset[ir.Value] = frozenset()
    lengths: dict[Growth, Expr] = field(default_factory=dict)

    @staticmethod
    def of(
        model: ir.Model,
        growths: Sequence[Growth],
        windows: Sequence[Rolling],
        assumptions: Assumptions,
        opset: int,
    ) -> Sizes:
        """Infer the sizes of a model.

        Raises:
            Unproven: If the model contradicts itself, or its caches are not of one length.
        """
        knowledge = infer_model(model).run.knowledge
        if knowledge.conflicts:
            message = f"the model contradicts itself: {knowledge.conflicts[0].message}"
            raise Unproven("contradiction", message)
        of_pasts = {(one.past, one.axis) for one in growths}
        of_pasts |= {(one.past, one.axis) for one in windows}
        maps = IndexMaps(opset)
        sizes = Sizes(
            model,
            knowledge,
            SizeEqualities(),
            [],
            Measures(maps, dict(_carriers(model, of_pasts))),
            frozenset(past for past, _ in of_pasts),
        )
        for growth in growths:
            known = knowledge.shapes[growth.past]
            sizes.lengths[growth] = known[growth.axis]
        if all(sizes._is_positive(size) for size in knowledge.assumed):
            sizes.equal = knowledge.equalities
        if growths:
            sizes._unite(growths, assumptions)
        return sizes

    @property
    def length(self) -> Expr:
        """The length of all pasts, as the first one declares it."""
        return next(iter(self.lengths.values()))

    def step(self, end: End) -> Expr | None:
        """Return how many rows a step adds, from sizes of inputs; None where they do not say."""
        known = self.knowledge.shapes.get(end.new)
        if known is None or len(known) <= end.axis:
            return None
        size = known[end.axis]
        return size if self._is_measured(size) else None

    def inputs(self) -> Iterator[tuple[ir.Value, int]]:
        """Yield each axis of an input of the model that is no cache."""
        for value in self.model.graph.inputs:
            if value not in self.pasts:
                yield from ((value, axis) for axis in range(len(dims_of(value) or ())))

    def behind(self, value: ir.Value, axis: int) -> Expr | None:
        """Return by how much an axis of an input is longer than the past, as it is declared.

        None where its name is not that of a past with something added that inputs tell.
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
        """Return whether inputs that are no caches have all names in a size."""
        return all(
            isinstance(atom, Dimension) and atom.name in self.measures.carriers
            for atom in size.atoms()
        )

    def _is_positive(self, size: Expr) -> bool:
        """Return whether a size is at least 1 where every one is that is not of a past."""
        known = self.measures.carriers
        for monomial, _ in size.terms:
            if monomial and all(isinstance(a, Dimension) and a.name in known for a, _ in monomial):
                low, _ = interval(size - Expr.of({monomial: 1}), Facts())
                if low >= 0:
                    return True
        return False

    def _unite(self, growths: Sequence[Growth], assumptions: Assumptions) -> None:
        """Prove that all pasts are of one length.

        Raises:
            Unproven: If two of them may differ, or the length is a number.
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
) -> Iterator[tuple[str, tuple[ir.Value, int]]]:
    """Yield an input that has each dimension, and the axis; the first of a name comes last."""
    found: dict[str, tuple[ir.Value, int]] = {}
    pasts = {value for value, _ in of_pasts}
    for value in sorted(model.graph.inputs, key=lambda v: v in pasts):
        for axis, dim in enumerate(dims_of(value) or ()):
            size = read_size(dim) if isinstance(dim, str) else integer(0)
            if isinstance(size.atom, Dimension) and (value, axis) not in of_pasts:
                found.setdefault(size.atom.name, (value, axis))
    yield from found.items()
