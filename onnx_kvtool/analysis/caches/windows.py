"""Caches that keep the last rows alone, which a step moves up to make room for new ones."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_kvtool.analysis.caches.cache import Cache
from onnx_kvtool.analysis.caches.footprint import footprint
from onnx_kvtool.analysis.caches.links import link, map_axis
from onnx_kvtool.analysis.constants import Folder
from onnx_kvtool.core.quantity import binary_bytes, counted
from onnx_kvtool.ops.view import given_input, given_integer, given_integers
from onnx_kvtool.symbolic.dims import dims_of

__all__ = ["rolling", "rolling_command", "rolling_in_words"]

_MOST_ABOVE = 16
"""Most nodes between a past and the scatter into it that are looked through."""

_TO_THE_END = 2**31 - 1
"""What exporters write for the end of a Slice, or more."""


def rolling(caches: Sequence[Cache]) -> list[Cache]:
    """Return the caches whose rows move up in every step, as far as it is seen at their nodes.

    Such a cache is cut from a Concat of past and new rows, is a Concat of the last rows of the past
    and new ones, or takes new rows into what a Concat of two halves of the past has rolled, or a
    Gather of its rows.
    """
    return [cache for cache in caches if cache.past is not None and _rolls(cache)]


def rolling_in_words(caches: Sequence[Cache]) -> str:
    """Return what a step costs because these caches roll, as a clause."""
    text = f"a step moves all rows of {counted(len(caches), 'window')}"
    per_token = footprint(caches).bytes_per_token
    if per_token is None:
        return text
    return f"{text}, {binary_bytes(per_token)} for each row of one sequence"


def rolling_command(caches: Sequence[Cache], model: str = "") -> str:
    """Return the command that makes circular caches of them.

    Args:
        caches: Caches that roll.
        model: The model, as the command line has it; empty to leave it out.
    """
    # What a scatter writes into has a number of rows, even where it is not known along which axis.
    fixed = (isinstance(cache.capacity, int) or cache.kind != "concat" for cache in caches)
    capacity = "" if all(fixed) else "--capacity N"
    parts = ("kvtool raise", model, capacity, "--assume rotated-rows")
    return " ".join(part for part in parts if part)


def _rolls(cache: Cache) -> bool:
    past, node = cache.past_value, cache.node
    if cache.is_growing or past is None:
        return False
    if cache.is_rolling:
        return True
    if cache.kind == "concat":
        first = node.inputs[0] if len(node.inputs) == 2 else None
        head = None if first is None else first.producer()
        return head is not None and _is_cut(head, past) and _ends_at_the_end(head)
    cuts = [use.node for use in past.uses() if _is_cut(use.node, past)]
    readers = {use.node for cut in cuts for use in cut.outputs[0].uses()}
    made = {cut.outputs[0] for cut in cuts}
    return _is_gathered(node, past) or any(
        reader.op_type == "Concat" and reader.domain == "" and made.issuperset(reader.inputs)
        for reader in readers
    )


def _is_gathered(node: ir.Node, past: ir.Value) -> bool:
    """Return whether a scatter writes into rows of the past that are computed to be others.

    Sequences may be put in another order as well, as a beam search does, which is no window.
    """
    axis, value, folder, moves = _written_axis(node), node.inputs[0], Folder(), False
    for _ in range(_MOST_ABOVE):
        if value is past:
            return moves and axis is not None and axis > 0
        step = None if value is None else link(value, folder)
        if step is None or step.how not in ("same", "view", "moved") or axis is None:
            return False
        if step.how == "moved":
            if _gathered_axis(step.node) != axis:
                return False
            moves = True
        else:
            axis = map_axis(step.axes, axis)
        value = step.source
    return False


def _written_axis(node: ir.Node) -> int | None:
    """Return the axis along which a scatter writes rows; None for another node."""
    if node.domain != "" or len(node.inputs) < 3:
        return None
    if node.op_type == "ScatterND":
        return 0 if (dims_of(node.inputs[1]) or (0,))[-1] == 1 else None
    if node.op_type in ("ScatterElements", "TensorScatter"):
        return _axis(node, 0 if node.op_type == "ScatterElements" else -2)
    return None


def _gathered_axis(node: ir.Node) -> int | None:
    """Return the axis along which a Gather takes whole rows, as many axes as before."""
    rank = len(dims_of(node.inputs[1]) or ()) if len(node.inputs) > 1 else 0
    if node.op_type == "Gather" and node.domain == "" and rank == 1:
        return _axis(node, 0)
    if node.op_type == "GatherND" and node.domain == "" and rank == 2:
        alone = given_integer(node, "batch_dims", 0) == 0
        return 0 if alone and (dims_of(node.inputs[1]) or (0,))[-1] == 1 else None
    return None


def _axis(node: ir.Node, default: int) -> int | None:
    axis = given_integer(node, "axis", default)
    if axis is None or axis >= 0:
        return axis
    dims = dims_of(node.inputs[0])
    return None if dims is None or axis < -len(dims) else axis + len(dims)


def _is_cut(node: ir.Node, past: ir.Value) -> bool:
    return node.op_type == "Slice" and node.domain == "" and given_input(node, 0) is past


def _ends_at_the_end(node: ir.Node) -> bool:
    if "ends" in node.attributes:
        given = given_integers(node, "ends")
        return bool(given) and min(given or ()) >= _TO_THE_END
    ends = Folder().integers(node.inputs[2]) if len(node.inputs) > 2 else None
    return ends is not None and bool(ends.min(initial=_TO_THE_END) >= _TO_THE_END)
