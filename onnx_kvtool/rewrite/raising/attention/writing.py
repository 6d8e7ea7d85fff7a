"""Putting a proven Attention into the graph."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.analysis.attention.coordinates import HEAD
from onnx_kvtool.analysis.attention.fusing import Fusion
from onnx_kvtool.analysis.attention.scores import Operand
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import scaled_queries, unsqueeze
from onnx_kvtool.emit.result import Replacement
from onnx_kvtool.rewrite.engine.edits import copy_metadata, replace_node
from onnx_kvtool.rewrite.raising.attention.mask_writing import Rows, emit_count, emit_mask
from onnx_kvtool.symbolic.expressions import Expr

__all__ = ["write"]


def write(fusion: Fusion, em: Emitter) -> tuple[ir.Node, list[ir.Node]]:
    """Put the Attention into the graph.

    Returns:
        The Attention, and the nodes that may be read by nobody now.
    """
    packed = all(operand.is_packed for operand in fusion.operands)
    queries, keys, values = (
        operand.value if packed else _emit_operand(operand, em) for operand in fusion.operands
    )
    attributes = _attributes(fusion)
    if packed:
        for name, operand in zip(("q_num_heads", "kv_num_heads"), fusion.operands, strict=False):
            assert operand.heads.number is not None
            attributes[name] = operand.heads.number
    queries, attributes["scale"] = scaled_queries(em, queries, fusion.dtype, fusion.scale)
    if not packed:
        for operand, value in zip(fusion.operands, (queries, keys, values), strict=True):
            if value.shape is None:  # whoever lowers Attention wants to know its heads
                heads, width = operand.heads.number, operand.width.number
                value.shape = ir.Shape([None, heads, None, width])
    inputs: list[ir.Value | None] = [queries, keys, values]
    rows = Rows(queries, keys, 1 if packed else 2, fusion.operands[1].value)
    if fusion.masking.causal is not None:
        count = emit_count(fusion.masking.causal, fusion.frame, em, rows)
        inputs += [] if count is None else [None, None, None, count]
    elif fusion.masking.parts:
        inputs.append(emit_mask(fusion.masking, fusion.dtype, fusion.frame, em, rows))
    result = em.op("Attention", *inputs, attributes=attributes, dtype=fusion.dtype)
    attention = result.producer()
    if packed:
        result = _apart(result, fusion.frame.sizes[HEAD], fusion.weighted.size, em)
    old = fusion.last
    assert attention is not None
    if not fusion.weighted.result_is_whole:
        result = _reshaped(result, fusion, em)
    unread = [p for v in old.inputs if v is not None and (p := v.producer()) is not None]
    emitted = replace_node(old, em, Replacement((result,)))
    copy_metadata(old, emitted)
    return attention, unread


def _attributes(fusion: Fusion) -> dict[str, int | float]:
    attributes: dict[str, int | float] = {"scale": fusion.scale}
    if fusion.softcap is not None:
        attributes["softcap"] = fusion.softcap
    precision = fusion.softmax.outputs[0].dtype
    if precision is not None and precision != fusion.dtype:
        attributes["softmax_precision"] = int(precision)
    if fusion.masking.causal is not None:
        attributes["is_causal"] = 1
    return attributes


def _reshaped(result: ir.Value, fusion: Fusion, em: Emitter) -> ir.Value:
    """Return (B, H, L, E) in the shape that the product has."""
    shape, dtype = fusion.weighted.shape, fusion.dtype
    if len(shape) == 5:
        kv, group, width = (size.number for size in (shape[1], shape[2], shape[4]))
        assert kv is not None and group is not None
        if width is not None:
            target = em.constant([0, kv, group, -1, width], "shape")
            return em.op("Reshape", result, target, dtype=dtype)
        ends = [
            em.op("Shape", result, attributes={"start": start, "end": end})
            for start, end in ((0, 1), (2, 4))
        ]
        middle = em.constant([kv, group], "groups")
        target = em.op("Concat", ends[0], middle, ends[1], attributes={"axis": 0})
        return em.op("Reshape", result, target, dtype=dtype)
    if len(shape) == 4:
        kv = shape[1].number
        assert kv is not None
        return em.op("Reshape", result, em.constant([0, kv, -1, 0], "shape"), dtype=dtype)
    if len(shape) == 2:
        return em.op("Squeeze", result, em.constant([0, 1], "axes"), dtype=dtype)
    if fusion.frame.sizes[HEAD].number == 1:
        return em.op("Squeeze", result, em.constant([1], "axes"), dtype=dtype)
    rows = em.op("Shape", result, attributes={"start": 2, "end": 4})
    target = em.op("Concat", em.constant([-1], "rest"), rows, attributes={"axis": 0})
    return em.op("Reshape", result, target, dtype=dtype)


def _emit_operand(operand: Operand, em: Emitter) -> ir.Value:
    """Return an operand as (B, heads, rows, width)."""
    value, axes = operand.value, operand.axes
    if operand.is_packed:
        return _apart(value, operand.heads, operand.width, em)
    order = [axis for axis in axes if axis is not None]
    if order != sorted(order):
        dtype = value.dtype or ir.DataType.UNDEFINED
        value = em.op("Transpose", value, attributes={"perm": order}, dtype=dtype)
    lacking = [role for role, axis in enumerate(axes) if axis is None]
    return unsqueeze(em, value, lacking) if lacking else value


def _apart(value: ir.Value, heads: Expr, width: Expr, em: Emitter) -> ir.Value:
    """Return (B, rows, heads * width), of known heads and width, as (B, heads, rows, width)."""
    assert heads.number is not None and width.number is not None
    dtype = value.dtype or ir.DataType.UNDEFINED
    target = em.constant([0, 0, heads.number, width.number], "shape")
    split = em.op("Reshape", value, target, dtype=dtype)
    return em.op("Transpose", split, attributes={"perm": [0, 2, 1, 3]}, dtype=dtype)
