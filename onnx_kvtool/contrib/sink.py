"""Attention in which one more score takes weight: a sink, as MatMul and Softmax."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.heads import Attended
from onnx_kvtool.contrib.rule import Builder
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast
from onnx_kvtool.emit.sizes import size

__all__ = ["attend_beside_sink"]


def attend_beside_sink(
    em: Emitter,
    heads: tuple[ir.Value, ir.Value, ir.Value],
    counts: tuple[int, int],
    how: Attended,
    seen: ir.Value,
    sink: ir.Value,
) -> ir.Value:
    """Return attention whose softmax has one more column, without a value: (B, L, H * E).

    Heads of a group are rows of one product, so that no buffer is repeated.

    Args:
        em: Where to build.
        heads: Query (B, H, L, D), keys (B, KV, S, D) and values (B, KV, S, E).
        counts: H and KV.
        how: Scale, softcap, and what is added to the scores; the rest is in `seen`.
        seen: Where a query sees a key: (B, 1, L or 1, S), bool.
        sink: The score of the column: (1, H or 1, 1, 1).
    """
    query, keys, values = heads
    op = Builder(em, query.dtype or ir.DataType.UNDEFINED)
    # Heads of a group are rows of one product; 0 keeps a size.
    grouped, apart = (em.constant([0, n, -1, 0], "shape") for n in (counts[1], counts[0]))
    if not how.scale:
        width = cast(em, size(em, None, query, 3), op.dtype)
        query = op("Mul", query, op("Reciprocal", op("Sqrt", width), hint="scale"), hint="scaled")
    elif how.scale != 1:
        factor = em.constant(np.array(how.scale, op.dtype.numpy()), "scale")
        query = op("Mul", query, factor, hint="scaled")
    rows = op("Reshape", query, grouped, hint="grouped")
    turned = op("Transpose", keys, attributes={"perm": [0, 1, 3, 2]})
    scores = op("Reshape", op("MatMul", rows, turned), apart, hint="scores")
    if how.softcap > 0:
        cap = em.constant(np.array(how.softcap, op.dtype.numpy()), "softcap")
        scores = op("Mul", op("Tanh", op("Div", scores, cap)), cap, hint="capped")
    if how.mask is not None:
        scores = op("Add", scores, how.mask, hint="biased")
    hidden = em.constant(np.array(-np.inf, op.dtype.numpy()), "hidden")
    scores = op("Where", seen, scores, hidden, hint="masked")
    weights = op("Softmax", _with_column(em, scores, sink), attributes={"axis": -1})
    bounds = (em.constant([bound], "bound") for bound in (0, -1, 3))
    weights = op("Reshape", op("Slice", weights, *bounds), grouped, hint="weights")
    found = op("Reshape", op("MatMul", weights, values), apart, hint="attended")
    joined = op("Transpose", found, attributes={"perm": [0, 2, 1, 3]}, hint="rows")
    return op("Reshape", joined, em.constant([0, 0, -1], "shape"), hint="joined")


def _with_column(em: Emitter, scores: ir.Value, sink: ir.Value) -> ir.Value:
    """Return (B, H, L, S + 1)."""
    op = Builder(em, scores.dtype or ir.DataType.UNDEFINED)
    zero, three = em.constant([0], "first"), em.constant([3], "axes")
    front = em.op("Slice", em.op("Shape", scores), zero, three)
    shape = em.op("Concat", front, em.constant([1], "one"), attributes={"axis": 0})
    column = op("Expand", sink, shape, hint="sink")
    return op("Concat", scores, column, attributes={"axis": -1})
