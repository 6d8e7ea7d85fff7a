"""QuantizeLinear and DequantizeLinear where the target lacks their form: kept, or in arithmetic."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter
from onnx_kvtool.emit.forms import cast
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.schema import op_facts
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.dtypes import takes
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.lowering.quantized_blocks import Layout, layout_of
from onnx_kvtool.symbolic.dimensions import dims_of, product

__all__ = ["dequantized", "lower_dequantize_linear", "lower_quantize_linear"]

_D = ir.DataType
_NARROW = {_D.INT8, _D.UINT8, _D.INT16, _D.UINT16, _D.INT4, _D.UINT4}
_FLOAT8 = {_D.FLOAT8E4M3FN, _D.FLOAT8E4M3FNUZ, _D.FLOAT8E5M2, _D.FLOAT8E5M2FNUZ}
_FLOATS = {_D.FLOAT, _D.FLOAT16, _D.BFLOAT16}


def lower_quantize_linear(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Keep the operator where only attributes are new, else saturate(Round(x / scale) + zero).

    The quotient is taken in the type of the scale, or in `precision`, and the rest in float32,
    which holds every number that does not saturate. The quotient of two bfloat16 is that of float32
    rounded once more, which is what one rounding gives.

    Refuses element types other than float32, float16, bfloat16 and int32 in, and integers of 4, 8
    and 16 bits and 8-bit floats out; an unknown rank where the scale is per axis or per block.
    """
    view = NodeView(node, context.opset_of(node))
    x, scale, zero = view.required("x"), view.required("y_scale"), view.input("y_zero_point")
    stored = _output_type(view, zero)
    _take("QuantizeLinear", x.dtype, _FLOATS | {_D.INT32}, em.opset)
    _take("QuantizeLinear", scale.dtype, _FLOATS, em.opset)
    _take("QuantizeLinear", stored, _NARROW | _FLOAT8, em.opset)
    assert stored is not None and scale.dtype is not None
    quotient_type = _named(view, "precision") or scale.dtype
    _take("QuantizeLinear", quotient_type, _FLOATS, em.opset)
    layout = layout_of(em, view, x, scale)
    if context.keep_fused and quotient_type == scale.dtype == x.dtype:
        kept = _kept_quantize(em, view, stored)
        if kept is not None:
            return Replacement((kept,))
    quotient = _quotient(em, layout, scale, quotient_type)
    if stored not in _FLOAT8:
        quotient = em.op("Round", quotient, dtype=_D.FLOAT)
    if zero is not None:
        offset = layout.spread(cast(em, zero, _D.FLOAT))
        quotient = em.op("Add", quotient, offset, dtype=_D.FLOAT)
    if stored in _FLOAT8:
        attributes = {"to": stored.value, "saturate": view.integer("saturate")}
        result = em.op("Cast", quotient, attributes=attributes, dtype=stored)
    else:
        limits = (int(stored.min), int(stored.max))
        low, high = (em.constant(np.array(limit, np.float32), "limit") for limit in limits)
        result = cast(em, em.op("Clip", quotient, low, high, dtype=_D.FLOAT), stored)
    return Replacement((layout.restored(result),))


def lower_dequantize_linear(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Keep the operator where only attributes are new, else emit `dequantized`.

    Refuses element types other than integers of 4, 8, 16 and 32 bits and 8-bit floats in, and
    float32, float16 and bfloat16 out; an unknown rank where the scale is per axis or per block.
    """
    view = NodeView(node, context.opset_of(node))
    x, scale, zero = view.required("x"), view.required("x_scale"), view.input("x_zero_point")
    _take("DequantizeLinear", x.dtype, _NARROW | _FLOAT8 | {_D.INT32}, em.opset)
    layout_of(em, view, x, scale)  # refuses what no form can say
    kept = _kept_dequantize(em, view, x, scale, zero) if context.keep_fused else None
    return Replacement((kept or dequantized(em, view),))


def dequantized(em: Emitter, view: NodeView) -> ir.Value:
    """Return (x - x_zero_point) * x_scale in plain arithmetic.

    The difference is exact: in float32 for what has up to 16 bits, in int32 for int32. "The output
    type also determines the precision of the multiplication": difference and scale are rounded to
    that type, and so is their product, which float32 holds exactly before.

    Args:
        em: Where to build.
        view: The node. Its `x` may also be of float16, for floats of fewer bits that it holds.

    Returns:
        Of the shape of `x` and the type of `output_dtype` or of the scale.
    """
    x, scale, zero = view.required("x"), view.required("x_scale"), view.input("x_zero_point")
    result_type = result_type_of(view)
    _take("DequantizeLinear", scale.dtype, _FLOATS, em.opset)
    _take("DequantizeLinear", result_type, _FLOATS, em.opset)
    assert result_type is not None
    layout = layout_of(em, view, x, scale)
    exact = _D.INT32 if x.dtype == _D.INT32 and zero is not None else _D.FLOAT
    if x.dtype is not None and x.dtype.is_floating_point() and _bits(x.dtype) <= 8:
        # onnxruntime has no Reshape of these types.
        number = layout.grouped(cast(em, x, exact))
    else:
        number = cast(em, layout.grouped(), exact)
    if zero is not None:
        offset = layout.spread(cast(em, zero, exact))
        number = em.op("Sub", number, offset, dtype=exact)
    if _bits(result_type) < _bits(_D.FLOAT) and _bits(x.dtype) > 8:
        number = cast(em, number, result_type)
    if _bits(result_type) < _bits(scale.dtype):
        scale = cast(em, scale, result_type)
    factor = layout.spread(cast(em, scale, _D.FLOAT))
    product = em.op("Mul", cast(em, number, _D.FLOAT), factor, dtype=_D.FLOAT)
    return layout.restored(cast(em, product, result_type))


def result_type_of(view: NodeView) -> ir.DataType | None:
    """Return the element type of what a DequantizeLinear gives; None where it is unknown."""
    return _named(view, "output_dtype") or view.required("x_scale").dtype


def _quotient(em: Emitter, layout: Layout, scale: ir.Value, quotient_type: ir.DataType) -> ir.Value:
    """Return x / scale, rounded to `quotient_type`, in float32."""
    computed = _D.FLOAT if quotient_type == _D.BFLOAT16 else quotient_type
    above, below = (cast(em, v, quotient_type) for v in (layout.grouped(), scale))
    above, below = (cast(em, v, computed) for v in (above, below))
    quotient = em.op("Div", above, layout.spread(below), dtype=computed)
    return cast(em, cast(em, quotient, quotient_type), _D.FLOAT)


def _kept_dequantize(
    em: Emitter, view: NodeView, x: ir.Value, scale: ir.Value, zero: ir.Value | None
) -> ir.Value | None:
    """Return the operator in the form of the target, the scale in the type of the result."""
    result_type = result_type_of(view)
    if result_type not in _FLOATS or scale.dtype not in _FLOATS or x.dtype is None:
        return None
    attributes = _kept_attributes(em, view, scale)
    for index, dtype in enumerate((x.dtype, result_type)):
        if not takes("DequantizeLinear", index, dtype, em.opset):
            return None
    if attributes is None:
        return None
    inputs = (x, cast(em, scale, result_type), zero)
    return em.op("DequantizeLinear", *inputs, attributes=attributes, dtype=result_type)


def _kept_quantize(em: Emitter, view: NodeView, stored: ir.DataType) -> ir.Value | None:
    """Return the operator in the form of the target; a zero point stands for `output_dtype`."""
    x, scale, zero = view.required("x"), view.required("y_scale"), view.input("y_zero_point")
    attributes, dims = _kept_attributes(em, view, scale), dims_of(scale)
    if attributes is None or x.dtype is None or not takes("QuantizeLinear", 2, stored, em.opset):
        return None
    if not all(takes("QuantizeLinear", index, x.dtype, em.opset) for index in (0, 1)):
        return None
    if "saturate" in view.facts.attributes and not view.integer("saturate"):
        if em.opset < 19:
            return None
        attributes["saturate"] = 0
    if zero is None and stored != _D.UINT8:
        count = None if dims is None else product(dims)
        if dims is None or count is None or count > _MOST_ZEROS:
            return None
        zeros = np.zeros([d for d in dims if isinstance(d, int)], stored.numpy())
        zero = em.tensor(ir.Tensor(zeros, dtype=stored), "zero_point")
    return em.op("QuantizeLinear", x, scale, zero, attributes=attributes, dtype=stored)


_MOST_ZEROS = 4096
"""Elements of a zero point that is written only to say the type of the result."""


def _kept_attributes(
    em: Emitter, view: NodeView, scale: ir.Value
) -> dict[str, AttributeValue] | None:
    """Return `axis` and `block_size` in the form of the target; None where it has none."""
    facts, dims = op_facts(view.node.op_type, em.opset), dims_of(scale)
    if facts is None or dims is None:
        return None
    attributes: dict[str, AttributeValue] = {}
    if not dims or dims == (1,):
        return attributes
    for name in ("axis", "block_size"):
        given = view.integer(name) if name in view.facts.attributes else 0
        if name in facts.attributes:
            attributes[name] = given
        elif name == "axis" or given:
            return None
    return attributes


def _bits(dtype: ir.DataType | None) -> int:
    return 0 if dtype is None else int(dtype.bitwidth)


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
    assert dtype is not None
    if not takes("Cast", 0, dtype, opset):
        text = f"`{op}` with {dtype.name} cannot be written at opset {opset}, which lacks the type"
        raise Refusal("element-type", text)
