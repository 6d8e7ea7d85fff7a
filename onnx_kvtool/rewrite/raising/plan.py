"""From a proof to an edit: which value is the cache, and in which order its axes stand."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.ops.tensor_scatter import Mode
from onnx_kvtool.rewrite.raising.arrangement import (
    Arrangement,
    Axes,
    completed,
    compose,
    rearranges,
    seen_through,
)
from onnx_kvtool.rewrite.raising.layout import cache_of
from onnx_kvtool.rewrite.raising.positions import check_counts_from_zero
from onnx_kvtool.rewrite.raising.proof import Proof, ProvenUpdate
from onnx_kvtool.rewrite.raising.rolling import Window, windowed
from onnx_kvtool.rewrite.raising.run_dims import implied
from onnx_kvtool.rewrite.raising.start import Batch, Measures, check_expressible
from onnx_kvtool.symbolic.dimensions import Dim
from onnx_kvtool.symbolic.expressions import Expr, coordinate, integer, text
from onnx_kvtool.symbolic.simplification import Facts, substitute

__all__ = ["Plan", "plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """One TensorScatter to be.

    Attributes:
        node: The node that it stands for.
        past: The cache.
        rank: Rank of `past`.
        update: The new rows in the layout of the cache, as an arrangement of a value.
        output: What the node gives.
        output_axes: Axes of `output` over those of the cache.
        presents: Values that are `output` brought back into the layout of the cache.
        axis: The sequence axis.
        mode: Whether positions wrap.
        start: The first position, over the coordinate of axis 0, the batch.
        batch_size: Size of axis 0 of the cache.
        sizes: How the graph held its sizes before any edit.
        implied: Dimensions that are equal in every run of the source.
        counting: Values that are assumed to hold positions which count up by one.
        is_in_range: Whether the start is assumed not to lie below 0.
        is_narrow: Whether the source casts the start to 32 bits.
        sentences: The proof.
        assumed: The assumptions that it used.
        window: How a window becomes circular, whose `start` may still have to be found; None for
            a cache whose rows stay.
    """

    node: ir.Node
    past: ir.Value
    rank: int
    update: Arrangement
    output: ir.Value
    output_axes: Axes
    presents: tuple[ir.Value, ...]
    axis: int
    mode: Mode
    start: Expr
    batch_size: Expr
    sizes: Measures
    implied: tuple[tuple[Dim, Dim], ...]
    counting: tuple[str, ...]
    is_in_range: bool
    is_narrow: bool
    sentences: tuple[str, ...]
    assumed: tuple[str, ...]
    window: Window | None = None

    @property
    def is_expanded(self) -> bool:
        """Whether the rows come out of an Expand, which may turn out to change nothing."""
        node = self.update.base.producer()
        return node is not None and node.op_type == "Expand" and node.domain == ""

    def batch(self, cache: ir.Value) -> Batch:
        """Return the batch axis; `cache` is what stands for `past` by now."""
        return Batch(cache, self.batch_size, 0 not in self.output_axes)


def plan(proof: Proof, node: ir.Node, found: ProvenUpdate) -> Plan:
    """Choose the layout of a proven update.

    TensorScatter wants the batch first and the sequence elsewhere. The cache as the graph gets it
    is preferred, with the transposes around the scatter gone; else the nearest value that has its
    axes in such an order.

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
        proof.say(
            f"`{found.data.name}` is `{base.name}` with its axes in the order {_shown(past.axes)}"
        )
    shape = proof.maps.shape(base)
    assert shape is not None
    moved = {d: coordinate(a) for a, d in enumerate(back) if d is not None}
    start = substitute(found.start, moved, Facts(shape))
    squeezed = [(shape[k], integer(1)) for k in range(len(shape)) if k not in past.axes]
    rows = found.places[found.axis]
    lengths = (integer(1),) if rows is None else found.sizes[rows]
    if proof.roll is None and not any(start + n == shape[back.index(found.axis)] for n in lengths):
        # From `C - L` on, more rows than the axis has would be written over each other.
        check_counts_from_zero(proof, start, shape)
    if proof.is_narrow:
        proof.say("positions are cast to 32 bits, where they may wrap: `write_indices` are as well")
    sizes = Measures(proof.maps, proof.carriers)
    presents = _presents(proof, found.output, past.axes, len(shape))
    window = None
    if proof.roll is not None:
        if not any(value.is_graph_output() for value in presents):
            presents += [copy for value in presents for copy in _copies(value)][:1]
        window = windowed(proof, node, found, past, presents)
        start = integer(0) if window.position is None else window.position
    check_expressible(start, sizes)
    return Plan(
        node=node,
        past=base,
        rank=len(shape),
        update=update,
        output=found.output,
        output_axes=past.axes,
        presents=tuple(presents),
        axis=back.index(found.axis),
        mode="circular" if window is not None else found.mode,
        start=start,
        batch_size=shape[0],
        sizes=sizes,
        implied=tuple(implied([*found.sizes, *squeezed])),
        counting=tuple(value.name or "" for value in proof.granted["contiguous"]),
        is_in_range=bool(proof.granted["in-range"]),
        is_narrow=proof.is_narrow,
        sentences=tuple(proof.sentences),
        assumed=tuple(proof.assumed),
        window=window,
    )


def _check_batch(found: ProvenUpdate, base: ir.Value, back: Axes) -> None:
    """Refuse a start that changes with anything but the batch.

    Raises:
        Unproven: If it does.
    """
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
    """Return the value that holds the rows, and its axes in the order `wanted`.

    The one furthest up that has them in that order is preferred, so that what changes nothing on
    the way to the scatter goes; else the one furthest up, so that two transposes become one.
    """
    ways = seen_through(found.updates, proof.maps, proof.opset, found.sizes)
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
            arranged = rearranges(node, proof.maps, proof.opset)
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
        if node.domain == "" and node.op_type == "Identity" and node.graph is value.graph
        for copy in node.outputs
        if copy.is_graph_output()
    ]


def _shown(axes: Axes) -> str:
    return ", ".join("-" if axis is None else str(axis) for axis in axes)
