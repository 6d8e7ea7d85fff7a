"""Proving all candidates of a model, and the edit that each proof allows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import onnx_ir as ir

from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.walk import (
    graph_nodes,
    graph_path,
    is_op,
    maker,
    subgraphs,
    upwards,
    values,
)
from onnx_kvtool.ops.operators import Mode
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.ops.view import MalformedNode, given_input
from onnx_kvtool.rewrite.raise_report import Unraised
from onnx_kvtool.rewrite.raising.arrangement import (
    Arrangement,
    Axes,
    completed,
    compose,
    rearranges,
    seen_through,
)
from onnx_kvtool.rewrite.raising.layout import Window, cache_of, windowed
from onnx_kvtool.rewrite.raising.positions import check_counts_from_zero
from onnx_kvtool.rewrite.raising.proof import Measures, Proof, ProvenUpdate, check_expressible
from onnx_kvtool.rewrite.raising.raisings import RAISINGS
from onnx_kvtool.rewrite.raising.stage import Assumptions, implied, unraised
from onnx_kvtool.shapes.annotations import Annotations
from onnx_kvtool.shapes.inference import infer_model
from onnx_kvtool.shapes.writing import forget_composed, may_rest_on
from onnx_kvtool.symbolic.broadcasting import SizeEqualities
from onnx_kvtool.symbolic.dimensions import Dim
from onnx_kvtool.symbolic.expressions import ONE, ZERO, Dimension, Expr, coordinate, text
from onnx_kvtool.symbolic.index_maps import IndexMaps
from onnx_kvtool.symbolic.simplification import Facts, substitute

# From a proof to an edit: the cache, and the order of its axes.


class Plan(NamedTuple):
    """The edit that a proof allows: a TensorScatter in the place of a node.

    Attributes:
        found: What the node writes.
        past: The data of `found`, as an arrangement of the cache.
        update: The new rows in the layout of the cache, as an arrangement of a value.
        presents: Values that are the output of the node, back in the layout of the cache.
        axis: The sequence axis.
        start: The first position, over the coordinate of axis 0, the batch.
        implied: Dimensions that are equal in every run of the source.
        window: How a window becomes circular; its `start` may still be unknown. None for a cache
            whose rows stay.
    """

    node: ir.Node
    proof: Proof
    found: ProvenUpdate
    past: Arrangement
    update: Arrangement
    presents: tuple[ir.Value, ...]
    axis: int
    start: Expr
    implied: tuple[tuple[Dim, Dim], ...]
    window: Window | None = None

    @property
    def mode(self) -> Mode:
        """Whether positions wrap around."""
        return self.found.mode if self.window is None else "circular"

    @property
    def is_expanded(self) -> bool:
        """Whether the rows are the output of an Expand, which perhaps changes nothing."""
        return maker(self.update.base, "Expand") is not None


def plan(proof: Proof, node: ir.Node, found: ProvenUpdate) -> Plan:
    """Choose the layout of a proven update.

    TensorScatter needs the batch first and the sequence elsewhere. The input of the graph is
    preferred, so that transposes around the scatter go; else the nearest value with such an order.

    Raises:
        Unproven: If no layout puts the batch first, or if the cache is a constant of the model.
    """
    past = cache_of(proof, found.data, found.axis)
    back = past.inverse
    base = past.base
    _check_batch(found, base, back)
    over_updates = tuple(None if d is None else found.places[d] for d in back)
    update = _update(proof, found, over_updates)
    if past.base is not found.data:
        order = ", ".join("-" if axis is None else str(axis) for axis in past.axes)
        proof.say(f"`{found.data.name}` is `{base.name}` with its axes in the order {order}")
    shape = proof.maps.shape(base)
    assert shape is not None
    moved = {d: coordinate(a) for a, d in enumerate(back) if d is not None}
    start = substitute(found.start, moved, Facts(shape))
    squeezed = [(shape[k], ONE) for k in range(len(shape)) if k not in past.axes]
    rows = found.places[found.axis]
    lengths = (ONE,) if rows is None else found.sizes[rows]
    if proof.roll is None and not any(start + n == shape[back.index(found.axis)] for n in lengths):
        # From `C - L` on, more rows than the axis has would be written over each other.
        check_counts_from_zero(proof, start, shape)
    if proof.is_narrow:
        proof.say("positions are cast to 32 bits, where they may wrap: `write_indices` are as well")
    presents = _presents(proof, found.output, past.axes, len(shape))
    window = None
    if proof.roll is not None:
        if not any(value.is_graph_output() for value in presents):
            presents += [copy for value in presents for copy in _copies(value)][:1]
        window = windowed(proof, node, found, past, presents)
        start = ZERO if window.position is None else window.position
    check_expressible(start, proof)
    implies = tuple(implied([*found.sizes, *squeezed]))
    axis = back.index(found.axis)
    return Plan(node, proof, found, past, update, tuple(presents), axis, start, implies, window)


def _check_batch(found: ProvenUpdate, base: ir.Value, back: Axes) -> None:
    """Refuse a start that changes with anything but the batch."""
    axes = found.start.axes
    if len(axes) > 1 or found.axis in axes:
        raise Unproven("start-per-row", f"the first position is `{text(found.start)}`")
    batch = next(iter(axes), None)
    if batch is not None and back[0] != batch:
        raise Unproven(
            "start-not-per-batch",
            f"the first position changes along axis {back.index(batch)} of `{base.name}`, "
            "expected axis 0, the batch",
        )


def _update(proof: Proof, found: ProvenUpdate, wanted: Axes) -> Arrangement:
    """Return the value with the new rows, and its axes in the order `wanted`.

    Preferred is the value furthest up that has them in that order already, so that nodes that
    change nothing go; else the one furthest up, so that two transposes become one.
    """
    ways = seen_through(found.updates, proof.maps, found.sizes)
    fitted = []
    for way in ways:
        axes = completed(compose(wanted, way.axes), way.rank)
        fitted.append(Arrangement(way.base, way.rank, axes))
    for way in reversed(fitted):
        if way.axes == tuple(range(way.rank)):
            return way
    return fitted[-1]


def _presents(proof: Proof, output: ir.Value, axes: Axes, rank: int) -> list[ir.Value]:
    """Return the values that are made from `output` and have the layout of the cache."""
    if completed(axes, rank) == tuple(range(rank)):
        return [output]
    found: list[ir.Value] = []
    pending: list[tuple[ir.Value, Axes]] = [(output, axes)]
    while pending:
        value, here = pending.pop(0)
        for node in value.consumers():
            arranged = rearranges(node, proof.maps)
            if arranged is None or node.inputs[0] is not value:
                continue
            result = node.outputs[0]
            if result.is_graph_output() and node.graph is not output.producer().graph:  # type: ignore[union-attr]
                continue  # a body returns what it computes itself
            over = compose(arranged, here)
            if completed(over, rank) == tuple(range(rank)):
                found.append(result)
            else:
                pending.append((result, over))
    return found


def _copies(value: ir.Value) -> list[ir.Value]:
    """Return the graph outputs that are copies of a value by Identity; the caller gets those."""
    return [
        copy
        for node in value.consumers()
        if is_op(node, "Identity") and node.graph is value.graph
        for copy in node.outputs
        if copy.is_graph_output()
    ]


# Sizes that onnx's own inference does not find, for candidates that lack one.


LACKS_A_SIZE = frozenset(
    {
        "data-dependent-positions",
        "not-counting",
        "other-modulus",
        "size-of-result",
        "sizes-unrelated",
        "unknown-positions",
        "unknown-rank",
    }
)
"""Codes of refusals that one more known size may lift."""


def full_sizes(model: ir.Model) -> Annotations | None:
    """Write inferred types and shapes on every value but the outputs, in place.

    An output keeps its declaration, which a TensorScatter takes over. A size that is computed from
    several names stays unknown.

    Return what was there before; None, with nothing written, if the model contradicts itself or a
    size is known only if another one is not 0.
    """
    found = Annotations([(value, value.type, value.shape) for value in values(model)])
    with contextlib.suppress(KvtoolError):
        inference = infer_model(model)
        if not inference.report.conflicts and may_rest_on(inference.run.knowledge):
            inference.annotate()
            for value, type_, shape in found.added:
                if value.is_graph_output():
                    value.type, value.shape = type_, shape
                else:
                    forget_composed(value, shape)
            return found
    found.remove()
    return None


# Proving all candidates of a model, each with as much knowledge of sizes as it takes.


_Candidate = tuple[Location, ir.Node]
"""A node that may be an update, and where it stands in the source."""


def is_candidate(node: ir.Node) -> bool:
    """Return whether a look at a node leaves it possible that it is an update."""
    raising = RAISINGS.get(node.op_type) if node.domain == "" else None
    return raising is not None and raising.may_be(node)


@dataclass(slots=True)
class Proving:
    """The attempt to prove every candidate of a model.

    Attributes:
        model: The model; nothing is edited, but for types and shapes until `forget_sizes`.
        assumptions: What may be taken for granted.
        opset: Version of the default domain.
        place: Returns where a node stood in the source, given the path of its graph and its index.
        plans: What is proven, in the order of the graph, and where it stands in the source.
        full: The sizes that were written on values for candidates that lacked one.
    """

    model: ir.Model
    assumptions: Assumptions
    opset: int
    place: Callable[[str, ir.Node, int], Location]
    plans: list[tuple[Location, Plan]] = field(default_factory=list)
    refused: list[Unraised] = field(default_factory=list)
    full: Annotations | None = None

    def run(self) -> None:
        """Prove what can be proven; nothing is edited."""
        graph = self.model.graph
        every = graph_nodes(graph_path(graph.name), graph)
        tried = [(self.place(path, n, index), n) for path, index, n in every if is_candidate(n)]
        found = self._each(tried)
        lacking = [
            k for k, one in found.items() if isinstance(one, Unraised) and one.code in LACKS_A_SIZE
        ]
        if lacking:
            self.full = full_sizes(self.model)
        if self.full is not None:
            for k, one in self._each([tried[k] for k in lacking]).items():
                if _leads_on(one, found[lacking[k]]):
                    found[lacking[k]] = one
        plans = {k: one for k, one in found.items() if isinstance(one, Plan)}
        pasts = {one.found.output: one.past.base for one in plans.values()}
        # A tensor that the graph computes, and writes to at one place in every step, is no cache:
        # exporters build masks like that, and the choices of a router of experts.
        self.plans = [
            (tried[k][0], one)
            for k, one in plans.items()
            if one.start.number is None or _is_given(one.past.base, pasts)
        ]
        self.refused += [
            one
            for k, one in found.items()
            if isinstance(one, Unraised) and not _is_made(tried[k][1], pasts)
        ]

    def _each(self, tried: Sequence[_Candidate]) -> dict[int, Plan | Unraised]:
        """Return what became of each candidate, by its number; nothing where it is no update."""
        plain = self._sizes(SizeEqualities())
        granted = None
        if self.assumptions.dims:
            granted = self._sizes(SizeEqualities(self.assumptions.dims))
        found: dict[int, Plan | Unraised] = {}
        for number, (place, node) in enumerate(tried):
            one: Plan | Unraised | None
            try:
                one = self._prove(node, plain, granted)
            except (Unproven, MalformedNode) as missing:
                one = unraised(place, missing)
            if one is not None:
                found[number] = one
        return found

    def forget_sizes(self) -> None:
        """Take away the sizes that were written on values for candidates that lacked one."""
        if self.full is not None:
            self.full.remove()

    def _sizes(self, equalities: SizeEqualities) -> Measures:
        maps = IndexMaps(self.opset, equalities)
        return Measures(maps, _carriers(self.model, maps))

    def _prove(self, node: ir.Node, plain: Measures, granted: Measures | None) -> Plan | None:
        """Prove a node, first without granted dimensions, so that the report says if they matter.

        They also matter if an Expand of the update goes because of them.
        """
        same = self.assumptions.same_dims
        try:
            found = self._attempt(node, plain, ())
        except Unproven:
            if granted is None:
                raise
            return self._attempt(node, granted, same)
        if found is not None and granted is not None and found.is_expanded:
            with contextlib.suppress(Unproven):
                other = self._attempt(node, granted, same)
                return found if other is None or other.is_expanded else other
        return found

    def _attempt(self, node: ir.Node, sizes: Measures, assumed: Sequence[str]) -> Plan | None:
        proof = Proof(sizes.maps, sizes.carriers, self.assumptions, self.opset, assumed=[*assumed])
        found = RAISINGS[node.op_type].prove(proof, node)
        return None if found is None else plan(proof, node, found)


def _is_given(value: ir.Value, pasts: Mapping[ir.Value, ir.Value]) -> bool:
    """Return whether the tensor that is written to is an input or a state, not computed."""

    def above(node: ir.Node) -> ir.Value | None:
        kinds = traits(node)
        is_moved = is_op(node) and (Trait.MOVES in kinds or Trait.CASTS in kinds)
        moved = given_input(node, 0) if is_moved and Trait.REPEATS not in kinds else None
        return pasts.get(node.outputs[0], moved)

    *_, (_, node) = upwards(value, above)
    # What is stored is a state as well, and perhaps what an unknown operator or a body gives.
    return node is None or not is_op(node) or node.op_type == "Constant" or any(subgraphs(node))


def _is_made(node: ir.Node, pasts: Mapping[ir.Value, ir.Value]) -> bool:
    """Return whether a node writes to a computed tensor, as a router of experts does."""
    data = node.inputs[0]
    return Trait.UPDATES in traits(node) and data is not None and not _is_given(data, pasts)


def _leads_on(one: Plan | Unraised, before: Plan | Unraised) -> bool:
    """Return whether an attempt with more sizes known proved more, or names an assumption."""
    if isinstance(one, Plan) or isinstance(before, Plan):
        return isinstance(one, Plan)
    return one.assumption is not None and before.assumption is None


def _carriers(model: ir.Model, maps: IndexMaps) -> dict[str, tuple[ir.Value, int]]:
    """Return for each symbolic dimension of the inputs one that has it, and the axis."""
    found: dict[str, tuple[ir.Value, int]] = {}
    for value in model.graph.inputs:
        for axis, size in enumerate(maps.shape(value) or ()):
            if isinstance(size.atom, Dimension):
                found.setdefault(size.atom.name, (value, axis))
    return found
