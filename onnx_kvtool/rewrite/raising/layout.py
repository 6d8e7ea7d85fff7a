"""Which value is the cache that a scatter writes to, and in which order its axes stand."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.ops.view import NodeView, given_input
from onnx_kvtool.rewrite.raising.arrangement import Arrangement, compose, seen_through
from onnx_kvtool.rewrite.raising.proof import Proof
from onnx_kvtool.rewrite.raising.rolling import roll_of

__all__ = ["cache_of", "is_state"]


def cache_of(proof: Proof, data: ir.Value, axis: int) -> Arrangement:
    """Return `data` as an arrangement of the cache.

    TensorScatter wants the batch first and the sequence elsewhere. The value furthest up is
    preferred, which is the cache as the graph gets it, so that the transposes around the scatter
    can go; else the nearest one whose first axis is not the sequence.

    Rows that move up before they are updated are those of a window; its roll is noted.

    Args:
        proof: The attempt.
        data: The tensor that is written to, of known rank.
        axis: Its sequence axis.

    Raises:
        Unproven: If `data` is a constant of the model, if its rows were moved before, or if the
            sequence comes first wherever it is looked at.
    """
    ways = list(seen_through(data, proof.maps, proof.opset))
    along = ways[-1].axes[axis]
    roll = None if along is None else roll_of(proof, ways[-1].base, along)
    if roll is not None:
        proof.roll, moved = roll, ways[-1].axes
        ways = [
            Arrangement(way.base, way.rank, compose(moved, way.axes))
            for way in seen_through(roll.source, proof.maps, proof.opset)
        ]
    _check_state(proof, ways[-1], ways[-1].axes[axis])
    for way in reversed(ways):
        if way.axes[axis] != 0:
            return way
    base = ways[-1].base
    text = f"rows are written along axis 0 of `{base.name}`, and TensorScatter has the batch there"
    node = base.producer()
    if node is not None and node.op_type == "Reshape" and (above := given_input(node, 0)):
        text += f"; it has several axes of `{above.name}` in one, as the slots of pages do"
    raise Unproven("batch-not-first", text)


def is_state(proof: Proof, data: ir.Value) -> bool:
    """Return whether `data` is what the caller supplies, perhaps with its axes rearranged."""
    base = data
    for way in seen_through(data, proof.maps, proof.opset):
        base = way.base
    return base.producer() is None and (not base.is_initializer() or base.is_graph_input())


def _check_state(proof: Proof, way: Arrangement, axis: int | None) -> None:
    """Refuse what is no cache: a constant of the model, and rows that were moved before.

    Args:
        proof: The attempt.
        way: The data, as an arrangement of what may be the cache.
        axis: The sequence axis of that; None where it has none.

    Raises:
        Unproven: If it is either.
    """
    base = way.base
    node = base.producer()
    constant = base.is_initializer() and not base.is_graph_input()
    if node is not None and node.domain == "":
        if axis is not None and _moves_rows(proof, node, axis, way.rank):
            raise Unproven(
                "rows-move",
                f"`{base.name}` is made by `{node.op_type}`, which moves rows before they are "
                "updated",
            )
        constant = node.op_type == "Constant"
    if constant:
        raise Unproven(
            "cache-is-initializer",
            f"the cache `{base.name}` is a constant of the model: there is no input to hand it in "
            "by, and what was written is lost after the run",
        )


def _moves_rows(proof: Proof, node: ir.Node, axis: int, rank: int) -> bool:
    """Return whether a node may put the rows of a tensor at other places of an axis.

    What it gives is then no cache, but the rows of one at other places, as in a window that slides.

    Args:
        proof: The attempt.
        node: The node.
        axis: The axis of its output.
        rank: Rank of its output.
    """
    if Trait.SHIFTS not in traits(node):
        return False
    if node.op_type not in ("Concat", "Gather", "Slice", "Split"):
        return True
    view = NodeView(node, node.version if node.version is not None else proof.opset)
    if node.op_type == "Slice":
        axes = view.input("axes") if "axes" not in view.facts.attributes else None
        cut = None if axes is None else proof.maps.of(axes).vector()
        return cut is None or any(e.number is None or e.number % rank == axis for e in cut)
    along = view.integer("axis")
    if node.op_type != "Gather":
        return along % rank == axis
    indices = proof.maps.shape(view.required("indices"))
    if indices is None:
        return True
    count = len(indices)
    first = along % (rank + 1 - count)
    return first <= axis < first + count
