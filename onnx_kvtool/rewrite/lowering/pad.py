"""Pad-18 with `axes`, for opsets below 18, and `mode=wrap`, for opsets below 19."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.constants import Folder
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.emit.sizes import size
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.symbolic.dimensions import Dim, dims_of

__all__ = ["lower_pad_19", "pads_of_all_axes"]


def lower_pad_19(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Spread the pads of the given axes over all axes, zero elsewhere; gather what wraps.

    pads of all axes = ScatterElements(zeros (2 * rank,), positions of the given axes, pads)
    wrap, on each axis: Gather(data, Mod(Range(-begin, size + end), size))

    Refuses an unknown rank, and an element type or a mode that the target lacks.
    """
    view = NodeView(node, context.opset_of(node))
    data, pads, mode = view.required("data"), view.required("pads"), view.string("mode")
    dims = dims_of(data)
    axes = view.input("axes") if len(view.facts.inputs) > 3 else None
    wraps = mode == "wrap" and em.opset < 19
    if dims is None and (axes is not None or wraps):
        raise Refusal(
            "unknown-rank",
            f"`{'axes' if axes is not None else 'mode=wrap'}` is not in Pad at opset {em.opset}, "
            f"and the rank of `{data.name}` is unknown",
            help="declare the shape of the input",
            lowest_opset=19 if wraps else 18,
        )
    if axes is not None and dims is not None and (em.opset < 18 or wraps):
        pads, axes = pads_of_all_axes(em, context.folder, pads, axes, len(dims)), None
    if wraps and dims is not None:
        return Replacement((_wrapped(context, em, data, pads, dims),))
    inputs = [data, pads, view.input("constant_value"), axes]
    while inputs[-1] is None:
        inputs.pop()
    dtype = data.dtype or ir.DataType.UNDEFINED
    return Replacement((em.op("Pad", *inputs, attributes={"mode": mode}, dtype=dtype),))


def pads_of_all_axes(
    em: Emitter, folder: Folder, pads: ir.Value, axes: ir.Value, rank: int
) -> ir.Value:
    """Return the pads of all axes of a value, those that `axes` does not name being zero.

    Args:
        em: Where to build.
        folder: Knows which pads and axes are constant.
        pads: (2 * n,), int64: the beginnings of the named axes, and then their ends.
        axes: (n,), int32 or int64; negative ones count from the end.
        rank: Rank of the value.

    Returns:
        (2 * rank,), int64.
    """
    numbers, named = folder.integers(pads), folder.integers(axes)
    if numbers is not None and named is not None:
        whole = np.zeros((2, rank), np.int64)
        whole[:, named.ravel() % rank] = numbers.reshape(2, -1)
        return em.constant(whole.ravel(), "pads")
    zeros = em.constant(np.zeros(2 * rank, np.int64), "zeros")
    return em.op("ScatterElements", zeros, _places(folder, em, axes, rank), pads, hint="pads")


def _places(folder: Folder, em: Emitter, axes: ir.Value, rank: int) -> ir.Value:
    """Return where the pads of `axes` stand among those of all axes: (2 * n,)."""
    known = folder.integers(axes)
    if known is not None:
        first = known.ravel() % rank
        return em.constant(np.concatenate([first, first + rank]), "places")
    axes = cast(em, axes, ir.DataType.INT64)
    begin = em.op("Mod", axes, em.constant(rank, "rank"))  # negative axes count from the end
    end = em.op("Add", begin, em.constant(rank, "rank"))
    return em.op("Concat", begin, end, attributes={"axis": 0}, hint="places")


def _wrapped(
    context: LoweringContext, em: Emitter, data: ir.Value, pads: ir.Value, dims: tuple[Dim, ...]
) -> ir.Value:
    known, rank = context.folder.integers(pads), len(dims)
    dtype, result = data.dtype or ir.DataType.UNDEFINED, data
    for axis, dim in enumerate(dims):
        if known is not None and not known[axis] and not known[axis + rank]:
            continue
        length = size(em, dim, data, axis)
        begin, end = (
            em.op("Gather", pads, em.constant(place, "place")) for place in (axis, axis + rank)
        )
        first, last = em.op("Neg", begin), em.op("Add", length, end)
        index = em.op("Range", first, last, em.constant(1))
        inside = em.op("Mod", index, length)  # the sign of the divisor: never negative
        result = em.op("Gather", result, inside, attributes={"axis": axis}, dtype=dtype)
    if result is data:
        return em.op("Identity", data, dtype=dtype)
    return result
