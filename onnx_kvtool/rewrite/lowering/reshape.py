"""Reshape-14 with `allowzero=1`, for opsets below 14."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["lower_reshape_14", "never_empty", "reshape_literally"]

_PLAIN = {
    ir.DataType.FLOAT,
    ir.DataType.FLOAT16,
    ir.DataType.DOUBLE,
    ir.DataType.INT8,
    ir.DataType.INT16,
    ir.DataType.INT32,
    ir.DataType.INT64,
    ir.DataType.UINT8,
    ir.DataType.UINT16,
    ir.DataType.UINT32,
    ir.DataType.UINT64,
    ir.DataType.BOOL,
}

_TO_THE_END = (1 << 31) - 1


def lower_reshape_14(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Keep zeros of the shape as sizes, where Reshape below 14 would copy the input's size.

    Without a zero in the shape, or for data that is never empty, `allowzero` changes nothing.
    Otherwise an If decides at run time: a shape with a zero makes an empty result, which
    ConstantOfShape gives; every other shape goes to Reshape.

    Refuses an element type that ConstantOfShape or Reshape lacks at the target.
    """
    view = NodeView(node, context.opset_of(node))
    data, shape = view.required("data"), view.required("shape")
    known = context.folder.integers(shape)
    if view.integer("allowzero") == 0 or (known is not None and (known != 0).all()):
        dtype = data.dtype or ir.DataType.UNDEFINED
        return Replacement((em.op("Reshape", data, shape, dtype=dtype),))
    return Replacement((reshape_literally(em, data, shape, empty=not never_empty(data)),))


def never_empty(value: ir.Value) -> bool:
    """Return whether every dimension of `value` is known to be a positive number."""
    dims = dims_of(value)
    return dims is not None and all(isinstance(d, int) and d > 0 for d in dims)


def reshape_literally(em: Emitter, data: ir.Value, shape: ir.Value, *, empty: bool) -> ir.Value:
    """Return `data` in the given shape, in which a zero is a size.

    Args:
        em: Where to build.
        data: The value.
        shape: (rank,), int64; the sizes, of which one may be -1 when none is 0.
        empty: Whether the shape may contain a zero.

    Raises:
        Refusal: If that takes ConstantOfShape below opset 14 and it lacks the element type.
    """
    dtype = data.dtype or ir.DataType.UNDEFINED
    if not empty:
        return em.op("Reshape", data, shape, dtype=dtype)
    if em.opset >= 14:
        return em.op("Reshape", data, shape, attributes={"allowzero": 1}, dtype=dtype)
    if dtype not in _PLAIN:
        raise Refusal(
            "element-type",
            f"`{data.name}` may be empty, and no operator makes an empty {dtype.name} value of a "
            f"computed shape at opset {em.opset}",
            lowest_opset=14,
        )
    if not em.branches:
        return _filled(em, data, shape)
    product = em.op("ReduceProd", shape, attributes={"keepdims": 0})
    zero = em.op("Equal", product, em.constant(0, "zero"), dtype=ir.DataType.BOOL)
    nothing = ir.tensor(np.zeros(1, dtype.numpy()))
    bodies = {
        "then_branch": em.nested(
            lambda: [em.op("ConstantOfShape", shape, attributes={"value": nothing}, dtype=dtype)],
            hint="empty",
        ),
        "else_branch": em.nested(
            lambda: [em.op("Reshape", data, shape, dtype=dtype)], hint="reshaped"
        ),
    }
    return em.op("If", zero, attributes=bodies, dtype=dtype)


def _filled(em: Emitter, data: ir.Value, shape: ir.Value) -> ir.Value:
    """Return what an If would choose: a size of zero is one at first, and is cut away.

    As many elements as that takes are put behind the data, of which there are none then.
    """
    dtype = data.dtype or ir.DataType.UNDEFINED
    zero, one = em.constant([0]), em.constant([1])
    is_empty = em.op("Equal", shape, zero, dtype=ir.DataType.BOOL, hint="is_empty")
    empty = em.op("Cast", is_empty, attributes={"to": ir.DataType.INT64.value}, hint="empty")
    sizes = em.op("Add", shape, empty, hint="sizes")
    product = em.op("ReduceProd", shape, attributes={"keepdims": 1})
    is_none = em.op("Equal", product, zero, dtype=ir.DataType.BOOL, hint="is_none")
    none = em.op("Cast", is_none, attributes={"to": ir.DataType.INT64.value}, hint="none")
    needed = em.op("ReduceProd", sizes, attributes={"keepdims": 1}, hint="needed")
    lacking = em.op("Mul", none, needed, hint="lacking")
    nothing = ir.tensor(np.zeros(1, dtype.numpy()))
    filling = em.op("ConstantOfShape", lacking, attributes={"value": nothing}, dtype=dtype)
    flat = em.op("Reshape", data, em.constant([-1], "flat"), dtype=dtype)
    both = em.op("Concat", flat, filling, attributes={"axis": 0}, dtype=dtype, hint="filled")
    whole = em.op("Reshape", both, sizes, dtype=dtype)
    kept = em.op("Sub", one, empty, hint="kept")
    end = em.op("Mul", kept, em.constant([_TO_THE_END], "end"), hint="ends")
    start = em.op("Mul", shape, zero, hint="starts")
    return em.op("Slice", whole, start, end, dtype=dtype, hint="cut")
