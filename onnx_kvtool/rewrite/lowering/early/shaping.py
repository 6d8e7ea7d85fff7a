"""Pad, DepthToSpace and Resize of opset 11, for opset 10."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter
from onnx_kvtool.emit.forms import cast
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.element_type import FLOAT_TYPES
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.lowering.early.again import (
    again,
    as_attribute,
    clamped,
    count_up,
    element_type,
    joined_sizes,
    known_rank,
    product,
)
from onnx_kvtool.rewrite.lowering.resize_run_time import resized_at_run_time
from onnx_kvtool.rewrite.lowering.resize_tables import resized_by_tables
from onnx_kvtool.symbolic.dimensions import Dim

__all__ = ["lower_depth_to_space_11", "lower_pad_11", "lower_resize_11"]

_D = ir.DataType
_FLOATS = FLOAT_TYPES - {_D.BFLOAT16}
_MOST = int(np.iinfo(np.int32).max)


def lower_pad_11(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Write the pads as an attribute, or gather rows and those that are added, axis by axis.

    The second where the pads are known at run time only, and for values that a float32 attribute
    does not hold. With `edge` and `reflect` the rows that are added are rows of the data.
    """
    view = NodeView(node, context.opset_of(node))
    data, mode = view.required("data"), view.string("mode")
    dtype = element_type(data, "Pad", 11)
    pads, fill = view.required("pads"), view.input("constant_value")
    known = context.folder.integers(pads)
    number = 0.0 if fill is None else as_attribute(fill)
    if known is not None and dtype in _FLOATS and (number is not None or mode != "constant"):
        numbers = [int(pad) for pad in known.ravel()]
        attributes: dict[str, AttributeValue] = {"mode": mode, "pads": numbers}
        attributes["value"] = number or 0.0
        return Replacement((em.op("Pad", data, attributes=attributes, dtype=dtype),))
    dims = known_rank(data, "Pad", 11)
    if fill is None:
        zero = "" if dtype == _D.STRING else 0
        fill = em.constant(np.array([zero], dtype.numpy()), "fill")
    wide = cast(em, pads, _D.INT64)
    result = data
    for axis in range(len(dims)):
        ends = (axis, axis + len(dims))
        if known is not None and not known.ravel()[list(ends)].any():
            continue
        value = fill if mode == "constant" else None
        result = _padded(em, result, dims, axis, wide, value, mode == "reflect")
        dims = (*dims[:axis], None, *dims[axis + 1 :])
    if result is data:
        result = em.op("Identity", data, dtype=dtype)
    return Replacement((result,))


def _padded(
    em: Emitter,
    data: ir.Value,
    dims: tuple[Dim, ...],
    axis: int,
    pads: ir.Value,
    fill: ir.Value | None,
    reflects: bool,
) -> ir.Value:
    """Return the data with rows added to, or taken from, both ends of an axis.

    One row of the fill is put behind the others, and whatever lies outside of them gathers it.
    Without a fill it gathers the row at that end, or the one as far inside as it is outside.
    """
    rank, dtype = len(dims), data.dtype or _D.UNDEFINED
    zero = em.constant([0], "zero")
    begin, end = (
        em.op("Gather", pads, em.constant([place], "place"), hint="pad")
        for place in (axis, axis + rank)
    )
    length = product(em, data, dims, [axis])
    total = em.op("Add", em.op("Add", begin, length), end, hint="total")
    count = clamped(em, total, zero, em.constant([_MOST], "most"))
    place = em.op("Sub", count_up(em, count), begin, hint="place")
    if fill is None:
        last = em.op("Sub", length, em.constant([1], "one"), hint="last")
        if reflects:
            twice = clamped(em, em.op("Add", last, last), em.constant([1]), em.constant([_MOST]))
            turns = em.op("Mod", em.op("Abs", place), twice, hint="turns")
            place = em.op("Sub", last, em.op("Abs", em.op("Sub", last, turns)), hint="place")
        index = clamped(em, place, zero, last)
        return em.op("Gather", data, index, attributes={"axis": axis}, dtype=dtype, hint="padded")
    target = joined_sizes(em, data, dims, [[] if d == axis else [d] for d in range(rank)])
    value = em.op("Reshape", fill, em.constant([1] * rank, "shape"), dtype=dtype)
    row = em.op("Expand", value, target, dtype=dtype, hint="fill")
    more = em.op("Concat", data, row, attributes={"axis": axis}, dtype=dtype)
    before = em.op("Less", place, zero, dtype=_D.BOOL)
    behind = em.op("Less", length, place, dtype=_D.BOOL)
    outside = cast(em, em.op("Or", before, behind, dtype=_D.BOOL), _D.INT64, hint="is_outside")
    missing = em.op("Mul", outside, em.op("Sub", length, place), hint="missing")
    index = em.op("Add", place, missing, hint="index")
    return em.op("Gather", more, index, attributes={"axis": axis}, dtype=dtype, hint="padded")


def lower_depth_to_space_11(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Bring the channels into the order of `mode=DCR`, the one that older opsets have.

    Refuses an unknown number of channels.
    """
    view = NodeView(node, context.opset_of(node))
    data, block = view.required("input"), view.integer("blocksize")
    if view.string("mode") != "CRD":
        return again(em, node)
    dims = known_rank(data, "DepthToSpace", 11)
    if len(dims) != 4 or not isinstance(dims[1], int):
        raise Refusal(
            "unknown-dimension",
            "the number of channels is unknown, on which `mode=CRD` depends before opset 11",
            lowest_opset=11,
        )
    order = np.arange(dims[1]).reshape(-1, block * block).T.ravel()
    places = em.constant([int(place) for place in order], "channels")
    dtype = data.dtype or _D.UNDEFINED
    sorted_ = em.op("Gather", data, places, attributes={"axis": 1}, dtype=dtype)
    return again(em, node, inputs=[sorted_])


def lower_resize_11(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Write weighted sums of rows, as the coordinates are those of `asymmetric` in older opsets.

    By tables where scales or sizes and the sizes of the input are constant, else with places and
    shares that are computed when the model runs.

    Refuses an unknown rank, and integers unless the mode is `nearest`.
    """
    view = NodeView(node, context.opset_of(node))
    written = resized_by_tables(context, view, em)
    if written is not None:
        return Replacement((written,), via="tables")
    data = view.required("X")
    known_rank(data, "Resize", 11)
    written = resized_at_run_time(view, em)
    if written is None:
        dtype = element_type(data, "Resize", 11)
        raise Refusal(
            "element-type",
            f"Resize of {dtype.name} with `mode={view.string('mode')}` needs opset 11",
            lowest_opset=11,
        )
    return Replacement((written,), via="run_time")
