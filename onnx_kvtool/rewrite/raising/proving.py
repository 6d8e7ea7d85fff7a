"""Proving all candidates of a model, each with as much knowledge of sizes as it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.location import Location
from onnx_kvtool.core.walk import graph_path, step_path, subgraphs
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.rewrite.raise_report import Unraised
from onnx_kvtool.rewrite.raising.assumptions import Assumptions
from onnx_kvtool.rewrite.raising.full_sizes import LACKS_A_SIZE, FullSizes, full_sizes
from onnx_kvtool.rewrite.raising.plan import Plan, plan
from onnx_kvtool.rewrite.raising.proof import Proof
from onnx_kvtool.rewrite.raising.start import Measures
from onnx_kvtool.rewrite.raising.table import RAISINGS, Raising
from onnx_kvtool.symbolic.broadcasting import SizeEqualities
from onnx_kvtool.symbolic.expressions import Dimension
from onnx_kvtool.symbolic.index_maps import IndexMaps

__all__ = ["Planned", "Proving", "is_candidate"]

_Candidate = tuple[str, int, ir.Node]
"""A node that may be an update: the path of its graph, its number in it, and itself."""


def is_candidate(node: ir.Node) -> bool:
    """Return whether a look at a node leaves it possible that it is an update."""
    raising = RAISINGS.get(node.op_type) if node.domain == "" else None
    return raising is not None and raising.may_be(node)


@dataclass(frozen=True, slots=True)
class Planned:
    """A candidate that is proven.

    Attributes:
        plan: What it becomes.
        raising: The rule that proved it.
        location: Where it stands in the source.
    """

    plan: Plan
    raising: Raising
    location: Location


@dataclass(slots=True)
class Proving:
    """The attempt to prove every candidate of a model.

    Attributes:
        model: The model; nothing is edited, but for types and shapes until `forget_sizes`.
        assumptions: What may be taken for granted.
        opset: Version of the default domain.
        place: Says of the path of a graph, a node and its index there where it stood in the source.
        plans: What is proven, in the order of the graph.
        refused: What is not, in that order.
        full: The sizes that were written on values for candidates that lacked one.
    """

    model: ir.Model
    assumptions: Assumptions
    opset: int
    place: Callable[[str, ir.Node, int], Location]
    plans: list[Planned] = field(default_factory=list)
    refused: list[Unraised] = field(default_factory=list)
    full: FullSizes | None = None

    def run(self) -> None:
        """Prove what can be proven; nothing is edited."""
        tried = list(_candidates(self.model.graph, graph_path(self.model.graph.name)))
        found = self._each(tried)
        lacking = [k for k, one in found.items() if _lacks_a_size(one)]
        if lacking:
            self.full = full_sizes(self.model)
        if self.full is not None:
            for k, one in self._each([tried[k] for k in lacking]).items():
                if _leads_on(one, found[lacking[k]]):
                    found[lacking[k]] = one
        plans = [one for one in found.values() if isinstance(one, Planned)]
        pasts = {one.plan.output: one.plan.past for one in plans}
        # What the graph computes and then writes to one place of in every step is no cache:
        # exporters put masks together so.
        self.plans = [
            one for one in plans if one.plan.start.number is None or _is_given(one.plan.past, pasts)
        ]
        self.refused += [one for one in found.values() if isinstance(one, Unraised)]

    def _each(self, tried: Sequence[_Candidate]) -> dict[int, Planned | Unraised]:
        """Return what became of each candidate, by its number; nothing where it is no update."""
        plain = self._sizes(SizeEqualities())
        granted = None
        if self.assumptions.dims:
            granted = self._sizes(SizeEqualities(self.assumptions.dims))
        found: dict[int, Planned | Unraised] = {}
        for number, (path, index, node) in enumerate(tried):
            raising = RAISINGS[node.op_type]
            place = self.place(path, node, index)
            try:
                proven = self._prove(node, raising, plain, granted)
            except Unproven as missing:
                found[number] = Unraised(place, missing.code, missing.message, missing.assumption)
            except MalformedNode as error:
                found[number] = Unraised(place, error.code, error.message)
            else:
                if proven is not None:
                    found[number] = Planned(proven, raising, place)
        return found

    def forget_sizes(self) -> None:
        """Take away the sizes that were written on values for candidates that lacked one."""
        if self.full is not None:
            self.full.remove()

    def _sizes(self, equalities: SizeEqualities) -> Measures:
        maps = IndexMaps(self.opset, equalities)
        return Measures(maps, _carriers(self.model, maps))

    def _prove(
        self, node: ir.Node, raising: Raising, plain: Measures, granted: Measures | None
    ) -> Plan | None:
        """Prove a node, without equal dimensions first, so that the report says what was needed.

        They count as needed, too, where they let an Expand of the update go.
        """
        opset = node.version if node.version is not None else self.opset
        found = None
        try:
            found = self._attempt(node, raising, _proof(plain, self.assumptions, opset))
        except Unproven:
            if granted is None:
                raise
        else:
            if found is None or granted is None or not found.is_expanded:
                return found
        proof = _proof(granted, self.assumptions, opset)
        proof.assumed += self.assumptions.same_dims
        try:
            other = self._attempt(node, raising, proof)
        except Unproven:
            if found is None:
                raise
            return found
        return found if found is not None and (other is None or other.is_expanded) else other

    def _attempt(self, node: ir.Node, raising: Raising, proof: Proof) -> Plan | None:
        found = raising.prove(proof, node)
        return None if found is None else plan(proof, node, found)


def _is_given(value: ir.Value, pasts: Mapping[ir.Value, ir.Value]) -> bool:
    """Return whether what is written into is given to the graph, by its caller or a step before.

    Args:
        value: What is written into.
        pasts: What other updates write into, by what they give.
    """
    seen: set[ir.Value] = set()
    while (node := value.producer()) is not None and value not in seen:
        if node.domain != "" or any(subgraphs(node)):
            return True  # what such a node does is not known here
        seen.add(value)
        above: ir.Value | None = pasts.get(value)
        if above is None and node.inputs and _hands_on(node):
            above = node.inputs[0]
        if above is None:
            return False
        value = above
    return True


def _hands_on(node: ir.Node) -> bool:
    kinds = traits(node)
    return Trait.REPEATS not in kinds and (Trait.MOVES in kinds or Trait.CASTS in kinds)


def _lacks_a_size(one: Planned | Unraised) -> bool:
    return isinstance(one, Unraised) and one.code in LACKS_A_SIZE


def _leads_on(one: Planned | Unraised, before: Planned | Unraised) -> bool:
    """Return whether an attempt with all sizes known led further than the one before."""
    if isinstance(one, Planned) or isinstance(before, Planned):
        return isinstance(one, Planned)
    return one.assumption is not None and before.assumption is None


def _candidates(graph: ir.Graph, path: str) -> Iterator[_Candidate]:
    """Yield the candidates of a graph and of the bodies in it, in the order of the nodes."""
    for index, node in enumerate(graph):
        if is_candidate(node):
            yield path, index, node
        for name, body in subgraphs(node):
            yield from _candidates(body, step_path(path, node.name, index, name))


def _proof(sizes: Measures, assumptions: Assumptions, opset: int) -> Proof:
    return Proof(sizes.maps, sizes.carriers, assumptions, opset)


def _carriers(model: ir.Model, maps: IndexMaps) -> dict[str, tuple[ir.Value, int]]:
    """Return for each symbolic dimension of the inputs one that has it, and the axis."""
    found: dict[str, tuple[ir.Value, int]] = {}
    for value in model.graph.inputs:
        for axis, size in enumerate(maps.shape(value) or ()):
            if isinstance(size.atom, Dimension):
                found.setdefault(size.atom.name, (value, axis))
    return found
