"""Putting what hides keys into the graph, as one mask."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.attention.conditions import Causality
from onnx_kvtool.analysis.attention.coordinates import BATCH, HEAD, KEY, QUERY, Frame
from onnx_kvtool.analysis.attention.masks import Masking, MaskPart
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import unsqueeze, where
from onnx_kvtool.symbolic.expressions import Expr

__all__ = ["Rows", "emit_count", "emit_mask", "for_each_sequence"]


@dataclass(frozen=True, slots=True)
class Rows:
    """Where the numbers of queries and keys of a frame are read at run time.

    Attributes:
        queries: A value with the queries.
        keys: A value with the keys.
        axis: The axis of both along which they are counted.
        stored: The keys as they stand in a cache, of which `keys` may be a Transpose.
    """

    queries: ir.Value
    keys: ir.Value
    axis: int
    stored: ir.Value


def emit_mask(
    found: Masking, dtype: ir.DataType, frame: Frame, em: Emitter, rows: Rows
) -> ir.Value:
    """Return the masks as one, (B or 1, H or 1, L, S), bool or of type `dtype`.

    It is made once for all layers that have it. Runtimes do not broadcast it along L and S
    (onnxruntime 1.32.0), although the schema allows it.
    """
    key = ("attention mask", found.parts, found.as_bool, dtype, frame.sizes[QUERY:])

    def build() -> ir.Value:
        whole = together()
        if whole.shape is None:
            # Whoever lowers Attention wants to know whether heads of one group share the mask.
            axes = [[part.axes[role] for part in found.parts] for role in (BATCH, HEAD)]
            ones = [1 if all(axis is None for axis in each) else None for each in axes]
            whole.shape = ir.Shape([*ones, None, None])
        return whole

    def together() -> ir.Value:
        parts = [_emit_part(part, dtype, em, as_bool=found.as_bool) for part in found.parts]
        whole = parts[0]
        for part in parts[1:]:
            whole = em.op("Add", whole, part, dtype=dtype, hint="mask")
        if all(
            any(part.axes[role] is not None for part in found.parts)
            or frame.sizes[role].number == 1
            for role in (QUERY, KEY)
        ):
            return whole
        sizes = [
            _size(frame.sizes[QUERY], rows.queries, rows.axis, em),
            _size(frame.sizes[KEY], rows.keys, rows.axis, em),
        ]
        one = em.constant([1], "one")
        target = em.op("Concat", one, one, *sizes, attributes={"axis": 0}, hint="shape")
        return em.op("Expand", whole, target, dtype=whole.dtype or dtype, hint="mask")

    return em.once(key, build)


def emit_count(causal: Causality, frame: Frame, em: Emitter, rows: Rows) -> ir.Value | None:
    """Return `nonpad_kv_seqlen`, (B,), with which `is_causal` means what a mask meant.

    None where `is_causal` means it alone. It is made once for all layers that have it.
    """
    if causal == "plain":
        return None
    if causal == "last":
        every = _size(frame.sizes[KEY], rows.keys, rows.axis, em)
        return for_each_sequence(em, every, frame.sizes[BATCH], rows.queries)
    written = rows.stored.producer()
    assert written is not None and written.op_type == "TensorScatter"
    start = written.inputs[2] if len(written.inputs) > 2 else None
    count = _size(frame.sizes[QUERY], rows.queries, rows.axis, em)
    if start is None:
        return for_each_sequence(em, count, frame.sizes[BATCH], rows.queries)
    key = ("nonpad_kv_seqlen", start, frame.sizes[QUERY])
    return em.once(key, lambda: em.op("Add", start, count, hint="nonpad_kv_seqlen"))


def for_each_sequence(
    em: Emitter, count: ir.Value, batch: Expr | str | None, carrier: ir.Value
) -> ir.Value:
    """Return a number, (1,), once for each sequence of a batch: (B,).

    Args:
        em: Where to build.
        count: The number.
        batch: Size of the batch, or its name; None for one that no other value is known to have.
        carrier: A value whose axis 0 is the batch.
    """
    number = batch.number if isinstance(batch, Expr) else None
    if number == 1:
        return count
    known = carrier if batch is None else batch

    def size() -> ir.Value:
        return em.op("Shape", carrier, attributes={"start": 0, "end": 1}, hint="batch_size")

    def build() -> ir.Value:
        fixed = None if number is None else em.constant([number], "batch_size")
        of_batch = em.once(("batch size", known), size) if fixed is None else fixed
        return em.op("Expand", count, of_batch, hint="nonpad_kv_seqlen")

    return em.once(("nonpad_kv_seqlen", count, known), build)


def _size(size: Expr, value: ir.Value, axis: int, em: Emitter) -> ir.Value:
    """Return the size of an axis of a value: (1,), int64."""
    if size.number is not None:
        return em.constant([size.number], "size")
    return em.once(
        ("number of rows", size),
        lambda: em.op("Shape", value, attributes={"start": axis, "end": axis + 1}, hint="size"),
    )


def _emit_part(part: MaskPart, dtype: ir.DataType, em: Emitter, *, as_bool: bool) -> ir.Value:
    """Return one mask as (B or 1, H or 1, L or 1, S or 1)."""
    value, axes = part.value, part.axes
    kind = value.dtype or dtype
    order = [axis for axis in axes if axis is not None]
    in_place = all(axis in (None, role) for role, axis in enumerate(axes))
    shape = len(order) + len(part.single)
    if not (in_place and shape == 4):
        value = _turned(value, part, kind, em)
    if as_bool:
        return value if part.shown else em.op("Not", value, dtype=kind, hint="is_seen")
    if part.fill is not None:
        zero = em.constant(np.zeros((), dtype.numpy()), "zero")
        hidden = em.constant(np.array(part.fill).astype(dtype.numpy()), "hidden")
        return where(em, value, *((zero, hidden) if part.shown else (hidden, zero)), hint="mask")
    if part.factor != 1:
        factor = em.constant(np.array(part.factor).astype(dtype.numpy()), "factor")
        return em.op("Mul", value, factor, dtype=dtype, hint="mask")
    return value


def _turned(value: ir.Value, part: MaskPart, kind: ir.DataType, em: Emitter) -> ir.Value:
    """Return a mask with its axes in the order of the frame, at rank 4."""
    lead = 4 - len(part.single) - sum(axis is not None for axis in part.axes)
    if all(axis in (None, role - lead) for role, axis in enumerate(part.axes)) and lead > 0:
        return unsqueeze(em, value, list(range(lead)))
    if part.single:
        gone = em.constant(list(part.single), "axes")
        value = em.op("Squeeze", value, gone, dtype=kind)
    kept = sorted(axis for axis in part.axes if axis is not None)
    order = [kept.index(axis) for axis in part.axes if axis is not None]
    if order != sorted(order):
        value = em.op("Transpose", value, attributes={"perm": order}, dtype=kind)
    lacking = [role for role in (BATCH, HEAD, QUERY, KEY) if part.axes[role] is None]
    return unsqueeze(em, value, lacking) if lacking else value
