"""QuantizeLinear and DequantizeLinear in plain arithmetic, where the target lacks their form."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.dims import dims_of
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.emit import Emitter
from onnx_kvtool.rewrite.lowering.context import LoweringContext, Replacement
from onnx_kvtool.rewrite.lowering.forms import cast
from onnx_kvtool.rewrite.lowering.sizes import positions
from onnx_kvtool.rewrite.refusal import Refusal

__all__ = ["lower_dequantize_linear", "lower_quantize_linear"]

_D = ir.DataType
_STORED = {_D.INT8, _D.UINT8, _D.INT16, _D.UINT16}
_FLOATS = {_D.FLOAT, _D.FLOAT16}


def lower_quantize_linear(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Emit saturate(Round(x / y_scale) + y_zero_point).

    The quotient is taken in the type of the scale, or in `precision`, and the rest in float32,
    which holds every number that does not saturate.

    Refuses element types other than float32, float16 and int32 in, and integers of 8 and 16 bits
    out; an unknown rank where the scale is per axis or per block.
    """
    view = NodeView(node, context.opset_of(node))
    x, scale, zero = view.required("x"), view.required("y_scale"), view.input("y_zero_point")
    stored = _output_type(view, zero)
    _take("QuantizeLinear", x.dtype, _FLOATS | {_D.INT32}, em.opset)
    _take("QuantizeLinear", scale.dtype, _FLOATS, em.opset)
    _take("QuantizeLinear", stored, _STORED, em.opset)
    assert stored is not None and scale.dtype is not None
    quotient_type = _named(view, "precision") or scale.dtype
    _take("QuantizeLinear", quotient_type, _FLOATS, em.opset)
    spread = _spread(em, view, x, scale)
    quotient = em.op(
        "Div",
        cast(em, x, quotient_type),
        cast(em, spread, quotient_type),
        dtype=quotient_type,
    )
    result = em.op("Round", cast(em, quotient, _D.FLOAT), dtype=_D.FLOAT)
    if zero is not None:
        offset = cast(em, _spread(em, view, x, zero), _D.FLOAT)
        result = em.op("Add", result, offset, dtype=_D.FLOAT)
    limits = np.iinfo(stored.numpy())
    low, high = (em.constant(np.array(v, np.float32), "limit") for v in (limits.min, limits.max))
    clipped = em.op("Clip", result, low, high, dtype=_D.FLOAT)
    return Replacement((cast(em, clipped, stored),))


def lower_dequantize_linear(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Emit (x - x_zero_point) * x_scale: the difference in int32, the product in float32.

    Refuses element types other than integers of 8, 16 and 32 bits in, and float32 and float16 out;
    an unknown rank where the scale is per axis or per block.
    """
    view = NodeView(node, context.opset_of(node))
    x, scale, zero = view.required("x"), view.required("x_scale"), view.input("x_zero_point")
    _take("DequantizeLinear", x.dtype, _STORED | {_D.INT32}, em.opset)
    _take("DequantizeLinear", scale.dtype, _FLOATS, em.opset)
    result_type = _named(view, "output_dtype") or scale.dtype
    _take("DequantizeLinear", result_type, _FLOATS, em.opset)
    assert result_type is not None
    number = cast(em, x, _D.INT32)
    if zero is not None:
        offset = cast(em, _spread(em, view, x, zero), _D.INT32)
        number = em.op("Sub", number, offset, dtype=_D.INT32)
    factor = cast(em, _spread(em, view, x, scale), _D.FLOAT)
    product = em.op("Mul", cast(em, number, _D.FLOAT), factor, dtype=_D.FLOAT)
    return Replacement((cast(em, product, result_type),))


def _output_type(view: NodeView, zero: ir.Value | None) -> ir.DataType | None:
    if zero is not None:
        return zero.dtype
    return _named(view, "output_dtype") or _D.UINT8


def _named(view: NodeView, attribute: str) -> ir.DataType | None:
    """Return the element type that an attribute names; None for 0 and for an older version."""
    given = view.integer(attribute) if attribute in view.facts.attributes else 0
    return _D(given) if given else None


def _take(op: str, dtype: ir.DataType | None, types: set[ir.DataType], opset: int) -> None:
    if dtype not in types:
        name = "an unknown type" if dtype is None else dtype.name
        text = f"`{op}` with {name} cannot be written in plain arithmetic at opset {opset}"
        raise Refusal("element-type", text)


def _spread(em: Emitter, view: NodeView, x: ir.Value, scale: ir.Value) -> ir.Value:
    """Return a scale or zero point in a shape that broadcasts against `x`.

    One number stays as it is; one per index of the axis gets ones around it; one per block is
    repeated for each index of its block.
    """
    dims, shape = dims_of(x), dims_of(scale)
    if shape is None or (shape and dims is None):
        raise Refusal(
            "unknown-rank",
            f"whether `{scale.name}` is one number or one for each index of the axis is unknown",
            help="declare the shapes of the input and of the scale",
        )
    if not shape or dims is None:
        return scale
    rank = len(dims)
    axis = view.integer("axis") % rank if "axis" in view.facts.attributes and rank else 0
    dtype = scale.dtype or _D.UNDEFINED
    block = view.integer("block_size") if "block_size" in view.facts.attributes else 0
    if block:
        index = positions(em, dims[axis], x, axis, place=0, rank=1)
        of_block = em.op("Div", index, em.constant(block, "block_size"))
        return em.op("Gather", scale, of_block, attributes={"axis": axis}, dtype=dtype)
    if rank == 0 or len(shape) != 1:
        return scale
    target = [1] * rank
    target[axis] = -1
    return em.op("Reshape", scale, em.constant(target, "shape"), dtype=dtype)
