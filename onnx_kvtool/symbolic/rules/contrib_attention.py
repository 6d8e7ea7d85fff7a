"""The attention operators of `com.microsoft`, with what they keep."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_kvtool.ops.contrib import ContribAttention
from onnx_kvtool.ops.view import given_integers
from onnx_kvtool.symbolic.dimensions import Shape
from onnx_kvtool.symbolic.expressions import Expr, integer
from onnx_kvtool.symbolic.rules.site import ShapeSite, Unknown
from onnx_kvtool.symbolic.simplification import Facts, exact_quotient, largest

__all__ = ["fused_attention", "group_query_attention", "multi_head_attention", "sparse_attention"]

_TWO = integer(2)


def _heads(site: ShapeSite, name: str) -> int:
    count = site.integer(name)
    if count < 1:
        raise Unknown("malformed", f"`{site.node.op_type}` lacks `{name}`")
    return count


def _part(width: Expr, count: int) -> Expr:
    part = exact_quotient(width, integer(count))
    if part is None:
        raise Unknown("no-expression", "the head size is no whole part of the width")
    return part


def group_query_attention(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """GroupQueryAttention: present holds past, and grows to total_sequence_length if that is more.

    onnxruntime 1.31 takes max(past_sequence_length, total_sequence_length) rows; with a buffer of
    fixed size that is past's.
    """
    view = ContribAttention(site.node)
    query = site.shape(0)
    if len(query) != 3:
        raise Unknown("malformed", "the query is not of rank 3")
    heads, kv_heads = _heads(site, "num_heads"), _heads(site, "kv_num_heads")
    key = view.input("key")
    if key is None:
        size = _part(query[2], heads + 2 * kv_heads)
        output: Shape = (query[0], query[1], size * heads)
    else:
        size, output = _part(query[2], heads), query
        if site.rank_of(key) == 3:
            rows = site.shape_of(key)
            site.same(query[0], rows[0], 1, 0, "batch size")
            site.same(size * kv_heads, rows[2], 1, 2, "width of the key")
    total = _scalar(site, view.input("total_sequence_length"))
    presents = [
        _grown(site, view.input(name), output_index, query[0], integer(kv_heads), size, total)
        for output_index, name in ((1, "past_key"), (2, "past_value"))
    ]
    scores: Shape | Unknown = Unknown("data-dependent", "total_sequence_length is not known")
    if total is not None:
        scores = (query[0], integer(heads), query[1], total)
    return (output, *presents, scores)


def sparse_attention(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """SparseAttention: queries, packed or not; presents are the buffers of past."""
    view = ContribAttention(site.node)
    query = site.shape(0)
    if len(query) != 3:
        raise Unknown("malformed", "the query is not of rank 3")
    output: Shape = query
    if view.input("key") is None:
        heads = _heads(site, "num_heads")
        size = _part(query[2], heads + 2 * _heads(site, "kv_num_heads"))
        output = (query[0], query[1], size * heads)
    return (output, site.shape(3), site.shape(4))


def _grown(
    site: ShapeSite,
    past: ir.Value | None,
    output: int,
    batch: Expr,
    heads: Expr,
    size: Expr,
    total: Expr | None,
) -> Shape | Unknown:
    """Return the shape of a present of which past may be the buffer."""
    why = "it depends on the number in `total_sequence_length`"
    if output >= len(site.node.outputs):
        return Unknown("absent", "the output is absent")
    if past is None:
        return (batch, heads, site.lost(2, why, output=output) if total is None else total, size)
    shape = site.knowledge.shapes.get(past)
    if shape is None:
        return Unknown("unknown-input", "", past)
    if len(shape) != 4:
        return Unknown("malformed", f"`{past.name}` is not of rank 4")
    index = site.node.inputs.index(past)
    site.same(batch, shape[0], index, 0, "batch size")
    rows = (
        site.lost(2, why, output=output) if total is None else largest((shape[2], total), Facts())
    )
    return (shape[0], shape[1], rows, shape[3])


def _scalar(site: ShapeSite, value: ir.Value | None) -> Expr | None:
    elements = None if value is None else site.elements(value)
    return elements[0] if elements is not None and len(elements) == 1 else None


def multi_head_attention(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """MultiHeadAttention: (B, L, hidden) queries, packed or not; past and key one after another."""
    view = ContribAttention(site.node)
    query, heads = site.shape(0), _heads(site, "num_heads")
    key, value = view.input("key"), view.input("value")
    if len(query) == 5:  # (B, L, H, 3, D)
        batch, length, size = query[0], query[1], query[4]
        rows, value_size = length, size
    elif len(query) == 3:
        batch, length, size = query[0], query[1], _part(query[2], heads)
        rows, value_size = length, size
        if key is not None:
            keys = site.shape_of(key)
            rows = keys[2] if len(keys) == 4 else keys[1]
        if value is not None:
            values = site.shape_of(value)
            value_size = values[3] if len(values) == 4 else _part(values[2], heads)
    else:
        raise Unknown("malformed", "the query is neither of rank 3 nor of rank 5")
    total = rows
    shared = view.input("past_sequence_length") is not None
    past = view.input("past_key")
    if past is not None:
        shape = site.shape_of(past)
        if len(shape) != 4:
            raise Unknown("malformed", "past_key is not of rank 4")
        site.same(batch, shape[0], view.index("past_key"), 0, "batch size")
        total = shape[2] if shared else shape[2] + rows
    count = integer(heads)
    return (
        (batch, length, count * value_size),
        (batch, count, total, size),
        (batch, count, total, value_size),
        Unknown("unspecified", "the width of the scores is not documented")
        if shared
        else (batch, count, length, total),
    )


def fused_attention(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """Attention of `com.microsoft`: projections inside, key and value in one cache."""
    view = ContribAttention(site.node)
    x, weights, heads = site.shape(0), site.shape(1), _heads(site, "num_heads")
    if len(x) != 3 or len(weights) != 2:
        raise Unknown("malformed", "input or weights are not of rank 3 and 2")
    widths = given_integers(site.node, "qkv_hidden_sizes") or ()
    if len(widths) == 3:
        size, width = _part(integer(widths[0]), heads), integer(widths[2])
    else:
        width = _part(weights[1], 3)
        size = _part(width, heads)
    past, total = view.input("past"), x[1]
    if past is not None:
        shape = site.shape_of(past)
        if len(shape) != 5:
            raise Unknown("malformed", "past is not of rank 5")
        total = shape[3] if view.is_sharing else shape[3] + x[1]
    return ((x[0], x[1], width), (_TWO, x[0], integer(heads), total, size))
