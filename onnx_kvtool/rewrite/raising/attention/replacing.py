"""Writes a proven Attention and its mask into the graph."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.attention.coordinates import BATCH, HEAD, KEY, QUERY
from onnx_kvtool.analysis.attention.fusing import Fusion
from onnx_kvtool.analysis.attention.masks import Causality, Masking, MaskPart
from onnx_kvtool.analysis.attention.scores import Operand
from onnx_kvtool.core.walk import producer
from onnx_kvtool.emit.emitter import Emitter, Replacement
from onnx_kvtool.emit.forms import axis_size, scaled_queries, squeeze
from onnx_kvtool.ops.view import given_input
from onnx_kvtool.rewrite.engine.inline import copy_metadata, replace_node
from onnx_kvtool.rewrite.raising.arrangement import arranged
from onnx_kvtool.symbolic.dimensions import Dim
from onnx_kvtool.symbolic.expressions import Expr, Exprs, integer

# The masks of a source, as one mask.


class Rows(NamedTuple):
    """Where the numbers of queries and keys come from.

    Attributes:
        queries: A value with the queries.
        keys: A value with the keys.
        axis: The axis of both along which they are counted.
        stored: The keys as they stand in a cache; `keys` may be their Transpose.
    """

    em: Emitter
    sizes: Exprs
    queries: ir.Value
    keys: ir.Value
    axis: int
    stored: ir.Value

    def number(self, role: int) -> ir.Value:
        """Return the number of queries or keys: (1,), int64."""
        size = self.sizes[role]
        if size.number is not None:
            return self.em.constant([size.number], "size")
        value = self.queries if role == QUERY else self.keys
        key = ("number of rows", size)
        return self.em.once(key, lambda: axis_size(self.em, value, self.axis, "size"))


def emit_mask(found: Masking, dtype: ir.DataType, rows: Rows) -> ir.Value:
    """Return the masks as one, (B or 1, H or 1, L, S), bool or of type `dtype`.

    It is made once for all layers that have it. Runtimes do not broadcast it along L and S
    (onnxruntime 1.32.0), although the schema allows it.
    """
    em, sizes = rows.em, rows.sizes
    key = ("attention mask", found.parts, found.as_bool, dtype, sizes[QUERY:])

    def build() -> ir.Value:
        axes = [[part.axes[role] for part in found.parts] for role in range(4)]
        is_same = [all(axis is None for axis in each) for each in axes]
        whole, *others = (
            _emit_part(part, dtype, em, as_bool=found.as_bool) for part in found.parts
        )
        for other in others:
            whole = em.op("Add", whole, other, hint="mask")
        if any(is_same[role] and sizes[role].number != 1 for role in (QUERY, KEY)):
            both = map(rows.number, (QUERY, KEY))
            target = em.op("Concat", [1], [1], *both, axis=0, hint="shape")
            whole = em.op("Expand", whole, target, hint="mask")
        if whole.shape is None:
            # To lower Attention, kvtool must know whether heads of one group share the mask.
            ones = [1 if is_same[role] else None for role in (BATCH, HEAD)]
            whole.shape = ir.Shape([*ones, None, None])
        return whole

    return em.once(key, build)


def emit_count(causal: Causality, rows: Rows) -> ir.Value | None:
    """Return the `nonpad_kv_seqlen`, (B,), that lets `is_causal` hide what a mask hid.

    None if `is_causal` alone does. It is made once for all layers that have it.
    """
    if causal == "plain":
        return None
    if causal == "last":
        return for_each_sequence(rows.em, rows.number(KEY), rows.sizes[BATCH], rows.queries)
    written = rows.stored.producer()
    assert written is not None and written.op_type == "TensorScatter"
    start = given_input(written, 2)
    em, count = rows.em, rows.number(QUERY)
    if start is None:
        return for_each_sequence(em, count, rows.sizes[BATCH], rows.queries)
    key = ("nonpad_kv_seqlen", start, rows.sizes[QUERY])
    return em.once(key, lambda: em.op("Add", start, count, hint="nonpad_kv_seqlen"))


def for_each_sequence(
    em: Emitter, count: ir.Value, batch: Expr | Dim, carrier: ir.Value
) -> ir.Value:
    """Return a number, (1,), repeated for each sequence of a batch: (B,).

    Axis 0 of `carrier` is the batch. `batch` is None if no other value is known to have its size.
    """
    batch = integer(batch) if isinstance(batch, int) else batch
    number = batch.number if isinstance(batch, Expr) else None
    if number == 1:
        return count
    known = carrier if batch is None else batch

    def build() -> ir.Value:
        if number is None:
            size = em.once(
                ("batch size", known),
                lambda: axis_size(em, carrier, 0, "batch_size"),
            )
        else:
            size = em.constant([number], "batch_size")
        return em.op("Expand", count, size, hint="nonpad_kv_seqlen")

    return em.once(("nonpad_kv_seqlen", count, known), build)


def _emit_part(part: MaskPart, dtype: ir.DataType, em: Emitter, *, as_bool: bool) -> ir.Value:
    """Return one mask as (B or 1, H or 1, L or 1, S or 1)."""
    value = arranged(em, part.value, part.rank, part.axes)
    if as_bool:
        return value if part.shown else em.op("Not", value, hint="is_seen")
    if part.fill is not None:
        zero, hidden = (np.array(number).astype(dtype.numpy()) for number in (0.0, part.fill))
        yes, no = (zero, hidden) if part.shown else (hidden, zero)
        return em.op("Where", value, yes, no, hint="mask")
    if part.factor != 1:
        factor = np.array(part.factor).astype(dtype.numpy())
        return em.op("Mul", value, factor, hint="mask")
    return value


# The Attention.


def write(fusion: Fusion, em: Emitter) -> tuple[ir.Node, list[ir.Node]]:
    """Insert the Attention into the graph; return it, and the nodes that may be unused now."""
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
            if value.shape is None:  # to lower Attention, kvtool must know its heads
                heads, width = operand.heads.number, operand.width.number
                value.shape = ir.Shape([None, heads, None, width])
    inputs: list[ir.Value | None] = [queries, keys, values]
    sizes, stored = fusion.frame.sizes, fusion.operands[1].value
    rows = Rows(em, sizes, queries, keys, 1 if packed else 2, stored)
    if fusion.masking.causal is not None:
        count = emit_count(fusion.masking.causal, rows)
        inputs += [] if count is None else [None, None, None, count]
    elif fusion.masking.parts:
        inputs.append(emit_mask(fusion.masking, fusion.dtype, rows))
    result = em.op("Attention", *inputs, attributes=attributes)
    attention = em.nodes[-1]
    if packed:
        result = _apart(result, sizes[HEAD], fusion.weighted.size, em)
    old = fusion.last
    if not fusion.weighted.result_is_whole:
        result = _reshaped(result, fusion, em)
    unread = [made for v in old.inputs if (made := producer(v)) is not None]
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
    """Return (B, H, L, E) in the shape of the product in the source."""
    shape = fusion.weighted.shape
    if len(shape) == 5:
        kv, group, width = (size.number for size in (shape[1], shape[2], shape[4]))
        assert kv is not None and group is not None
        if width is not None:
            return em.op("Reshape", result, [0, kv, group, -1, width])
        ends = [em.op("Shape", result, start=start, end=end) for start, end in ((0, 1), (2, 4))]
        target = em.op("Concat", ends[0], [kv, group], ends[1], axis=0)
        return em.op("Reshape", result, target)
    if len(shape) == 4:
        kv = shape[1].number
        assert kv is not None
        return em.op("Reshape", result, [0, kv, -1, 0])
    if len(shape) == 2:
        return squeeze(em, result, [0, 1])
    if fusion.frame.sizes[HEAD].number == 1:
        return squeeze(em, result, [1])
    rows = em.op("Shape", result, start=2, end=4)
    target = em.op("Concat", [-1], rows, axis=0)
    return em.op("Reshape", result, target)


def _emit_operand(operand: Operand, em: Emitter) -> ir.Value:
    """Return an operand as (B, heads, rows, width)."""
    if operand.is_packed:
        return _apart(operand.value, operand.heads, operand.width, em)
    rank = sum(axis is not None for axis in operand.axes)
    return arranged(em, operand.value, rank, operand.axes)


def _apart(value: ir.Value, heads: Expr, width: Expr, em: Emitter) -> ir.Value:
    """Return (B, rows, heads * width), of known heads and width, as (B, heads, rows, width)."""
    assert heads.number is not None and width.number is not None
    split = em.op("Reshape", value, [0, 0, heads.number, width.number])
    return em.op("Transpose", split, perm=[0, 2, 1, 3])
