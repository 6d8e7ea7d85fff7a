"""Pad, DepthToSpace, Resize and TopK of opset 11, for opset 10."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.ops.element_type import FLOAT_TYPES
from onnx_kvtool.ops.view import NodeView, counted_axis
from onnx_kvtool.rewrite.engine.emit import AttributeValue, Emitter
from onnx_kvtool.rewrite.engine.forms import cast
from onnx_kvtool.rewrite.engine.rule import LoweringContext, Refusal, Replacement
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
from onnx_kvtool.rewrite.lowering.resize_tables import resized_by_tables
from onnx_kvtool.symbolic.dims import Dim

__all__ = ["lower_depth_to_space_11", "lower_pad_11", "lower_resize_11", "lower_top_k_11"]

_D = ir.DataType
_FLOATS = FLOAT_TYPES - {_D.BFLOAT16}
_MOST = int(np.iinfo(np.int32).max)


def lower_pad_11(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Write the pads as an attribute, or gather rows and those that are added, axis by axis.

    The second where the pads are known at run time only, and for values that a float32 attribute
    does not hold.

    Refuses `reflect` and `edge` for these.
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
    if mode != "constant":
        raise Refusal(
            "dynamic-input" if known is None else "element-type",
            f"Pad with `mode={mode}` needs constant pads and floats before opset 11",
            lowest_opset=11,
        )
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
        result = _padded(em, result, dims, axis, wide, fill, dtype)
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
    fill: ir.Value,
    dtype: ir.DataType,
) -> ir.Value:
    """Return the data with rows added to, or taken from, both ends of an axis.

    One row of the fill is put behind the others, and whatever lies outside of them gathers it.
    """
    rank = len(dims)
    zero = em.constant([0], "zero")
    begin, end = (
        em.op("Gather", pads, em.constant([place], "place"), hint="pad")
        for place in (axis, axis + rank)
    )
    target = joined_sizes(em, data, dims, [[] if d == axis else [d] for d in range(rank)])
    value = em.op("Reshape", fill, em.constant([1] * rank, "shape"), dtype=dtype)
    row = em.op("Expand", value, target, dtype=dtype, hint="fill")
    more = em.op("Concat", data, row, attributes={"axis": axis}, dtype=dtype)
    length = product(em, data, dims, [axis])
    total = em.op("Add", em.op("Add", begin, length), end, hint="total")
    count = clamped(em, total, zero, em.constant([_MOST], "most"))
    place = em.op("Sub", count_up(em, count), begin, hint="place")
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

    Refuses scales, sizes and inputs whose sizes are not constant.
    """
    written = resized_by_tables(context, NodeView(node, context.opset_of(node)), em)
    if written is None:
        raise Refusal(
            "dynamic-input",
            "Resize before opset 11 depends on constant scales or sizes, and on a known input size",
            help="fix the sizes of the input with `--dim`",
            lowest_opset=11,
        )
    return Replacement((written,), via="tables")


def lower_top_k_11(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Negate what has to come in ascending order; widen integers that float64 holds.

    Refuses integers of 64 bits.
    """
    view = NodeView(node, context.opset_of(node))
    data = view.required("X")
    dtype = element_type(data, "TopK", 11)
    is_float = dtype in FLOAT_TYPES
    if not is_float and (not dtype.is_integer() or dtype.bitwidth > 32):
        raise Refusal("element-type", f"TopK of {dtype.name} needs opset 11", lowest_opset=11)
    axis = view.integer("axis")
    if axis < 0:
        axis = counted_axis(axis, len(known_rank(data, "TopK with a negative axis", 11)))
    wide = dtype if is_float else _D.DOUBLE if dtype.bitwidth == 32 else _D.FLOAT
    turned = view.integer("largest") == 0
    operand = cast(em, data, wide)
    operand = em.op("Neg", operand, dtype=wide) if turned else operand
    attributes = {"axis": axis}
    dtypes = [wide, _D.INT64]
    values, places = em.multi(
        "TopK", operand, view.required("K"), attributes=attributes, dtypes=dtypes
    )
    values = em.op("Neg", values, dtype=wide) if turned else values
    return Replacement((cast(em, values, dtype), places))
