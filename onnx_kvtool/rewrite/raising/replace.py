"""The edit: a TensorScatter in the place of a proven update."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.walk import supersede
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.rewrite.raising.arrangement import Axes, completed
from onnx_kvtool.rewrite.raising.plan import Plan
from onnx_kvtool.rewrite.raising.start import narrowed, one_row, write_indices

__all__ = ["Replaced", "replace_update"]

Replaced = dict[ir.Value, ir.Value]
"""What took the place of a value that an earlier edit removed."""


def replace_update(
    plan: Plan,
    em: Emitter,
    replaced: Replaced,
) -> ir.Node:
    """Put a TensorScatter in the place of a proven update, in place.

    The present takes the name and the type of the value that had its layout, so that graph outputs
    keep theirs. Readers of the result in another layout get it from the present.

    Args:
        plan: What was proven.
        em: Where to build, at the place of the node; it is committed.
        replaced: Values that earlier edits replaced; those of this one are added.

    Returns:
        The TensorScatter.
    """
    node, graph = plan.node, plan.node.graph
    assert graph is not None
    past = replaced.get(plan.past, plan.past)
    rows = plan.update
    update = arranged(em, replaced.get(rows.base, rows.base), rows.rank, rows.axes, "update")
    starts = write_indices(em, plan.start, plan.batch(past), plan.sizes, replaced)
    if starts is not None and plan.is_narrow:
        starts = narrowed(em, starts)
    if starts is not None and starts.shape is None and past.shape is not None:
        starts.shape = ir.Shape([past.shape[0]])
    present = em.op(
        "TensorScatter",
        past,
        update,
        *([] if starts is None else [starts]),
        attributes={"axis": plan.axis, "mode": plan.mode},
        dtype=past.dtype or plan.output.dtype or ir.DataType.UNDEFINED,
        hint=node.name or "TensorScatter",
    )
    scatter = present.producer()
    assert scatter is not None
    others = plan.output not in plan.presents and _is_read(plan)
    read = present  # what everybody gets but the caller
    if plan.window is not None and (others or _is_read_in_order(plan)):
        read = _in_order(em, plan, present, replaced)
    pairs = _presents(em, plan, present, read)
    if others:
        pairs.append((plan.output, arranged(em, read, plan.rank, plan.output_axes, "layout")))
    for old, new in reversed(pairs):  # the first of those that one value stands for counts
        new.type, new.shape = old.type or new.type, old.shape or new.shape
        if plan.window is not None and new is present:
            new.shape = past.shape  # that of the source may be longer where a step has more rows
        new.name = old.name
    if read is not present:
        read.type, read.shape = past.type, past.shape
    nodes = em.commit()
    graph.insert_before(node, nodes)
    for old, new in pairs:
        if old.name == new.name:
            new.doc_string = old.doc_string
            new.metadata_props.update(old.metadata_props)
        old.name = None
        if read is not present and old in plan.presents:
            for user, index in tuple(old.uses()):
                user.replace_input_with(index, read)
        supersede(old, new)
        replaced[old] = read if old in plan.presents else new
    for emitted in nodes:
        emitted.metadata_props.update(node.metadata_props)
    if node.name:
        scatter.name, node.name = node.name, None
    scatter.doc_string = node.doc_string
    scatter.device_configurations = node.device_configurations
    return scatter


def _presents(
    em: Emitter, plan: Plan, present: ir.Value, read: ir.Value
) -> list[tuple[ir.Value, ir.Value]]:
    """Pair the values that the present stands for with it, or with a copy under another name.

    Args:
        em: Where to build.
        plan: What was proven.
        present: The cache that goes to the caller.
        read: What everybody else reads.
    """
    pairs: list[tuple[ir.Value, ir.Value]] = []
    # The one that leaves the graph first: its name is the one to keep.
    for old in sorted(plan.presents, key=lambda value: not value.is_graph_output()):
        new = read if pairs else present
        if pairs and old.is_graph_output():
            new = em.op("Identity", read, dtype=present.dtype or ir.DataType.UNDEFINED)
        pairs.append((old, new))
    return pairs


def _is_read_in_order(plan: Plan) -> bool:
    """Return whether anybody but the caller, and he but once, gets the result."""
    leaving = [old for old in plan.presents if old.is_graph_output()]
    return len(leaving) > 1 or any(old.uses() for old in plan.presents)


def _in_order(em: Emitter, plan: Plan, present: ir.Value, replaced: Replaced) -> ir.Value:
    """Return the rows of a window from the oldest to the newest, as the source holds them."""
    window = plan.window
    assert window is not None
    past = replaced.get(plan.past, plan.past)
    behind = window.behind(plan.start)

    def order() -> ir.Value:
        oldest = one_row(em, behind, plan.sizes, past)
        rows = em.op("Add", em.constant(np.arange(window.size)), oldest, hint="order")
        return em.op("Mod", rows, em.constant([window.size]), hint="order")

    rows = em.once(("order of a window", behind, window.size), order)
    dtype = present.dtype or ir.DataType.UNDEFINED
    axis = {"axis": plan.axis}
    return em.op("Gather", present, rows, attributes=axis, dtype=dtype, hint="ordered")


def _is_read(plan: Plan) -> bool:
    """Return whether anybody reads the result in the layout of the scatter."""
    output = plan.output
    if output.is_graph_output():
        return True
    gone = {value.producer() for value in plan.presents}
    return any(reader not in gone for reader in output.consumers())


def arranged(em: Emitter, value: ir.Value, rank: int, axes: Axes, hint: str) -> ir.Value:
    """Return `value` with its axes in the given order; no node where they are in it already.

    Args:
        em: Where to build.
        value: The value.
        rank: Its rank.
        axes: Its axes in the order of the result; None for a new one of size 1. Those that do not
            occur have size 1.
        hint: Last part of the names of new nodes.
    """
    dtype = value.dtype or ir.DataType.UNDEFINED
    axes = completed(axes, rank)
    unused = [axis for axis in range(rank) if axis not in axes]
    if unused:
        value = em.op("Squeeze", value, em.constant(unused, "axes"), dtype=dtype, hint=hint)
    kept = [axis for axis in range(rank) if axis in axes]
    perm = [kept.index(axis) for axis in axes if axis is not None]
    if perm != sorted(perm):
        value = em.op("Transpose", value, attributes={"perm": perm}, dtype=dtype, hint=hint)
    new = [place for place, axis in enumerate(axes) if axis is None]
    if new:
        value = em.op("Unsqueeze", value, em.constant(new, "axes"), dtype=dtype, hint=hint)
    return value
