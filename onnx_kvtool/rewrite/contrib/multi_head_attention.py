"""MultiHeadAttention and Attention of `com.microsoft`, as Attention-24."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.contrib.heads import (
    Attended,
    Tokens,
    apart,
    attend,
    dim_of,
    known_size,
    parts,
)
from onnx_kvtool.rewrite.contrib.padding import added
from onnx_kvtool.rewrite.contrib.rule import Builder, is_read, refuse_input, refuse_value
from onnx_kvtool.rewrite.engine.emit import Emitter
from onnx_kvtool.rewrite.engine.forms import cast
from onnx_kvtool.rewrite.engine.rule import Refusal, Replacement
from onnx_kvtool.rewrite.lowering.sizes import size
from onnx_kvtool.symbolic.dims import dims_of

__all__ = ["attention", "multi_head_attention"]

_I = ir.DataType.INT64


def multi_head_attention(view: NodeView, em: Emitter) -> Replacement:
    """Write MultiHeadAttention as Attention-24.

    A past becomes the past of Attention; where `past_sequence_length` says how much of a buffer is
    valid, TensorScatter-24 writes the new rows behind that, and `nonpad_kv_seqlen` hides what lies
    behind these. Padding is a mask that is added, of `mask_filter_value`.

    Refuses packed keys and values, scores as an output, and what beam search on GPUs needs.
    """
    refuse_input(view, "cache_indirection")
    if is_read(view, 3):
        raise Refusal(
            "contrib-form", "`qk` of `MultiHeadAttention` is read, which has no standard form"
        )
    query, key, value = view.required("query"), view.input("key"), view.input("value")
    rank = None if dims_of(query) is None else len(dims_of(query) or ())
    if rank != 3 or key is None or value is None:
        raise Refusal(
            "contrib-form",
            "`query`, `key` and `value` of `MultiHeadAttention` are packed, or of unknown rank, "
            "which has no standard form",
        )
    heads, tokens = view.integer("num_heads"), Tokens(em, query)
    rows = _biased(view, em, query, key, value)
    q, k, v = (
        part if _rank(part) == 4 and part in (key, value) else apart(em, part, heads, width)
        for part, width in zip(rows, (_width(given) for given in (query, key, value)), strict=True)
    )
    past_key, past_value = view.input("past_key"), view.input("past_value")
    if (past_key is None) != (past_value is None):
        raise Refusal("contrib-form", "`MultiHeadAttention` has one past input, expected two")
    if past_key is not None and len(view.node.outputs) < 3:
        raise Refusal(
            "contrib-form",
            "`past_key` of `MultiHeadAttention` is given without outputs for the present, and "
            "onnxruntime ignores it then",
        )
    is_causal = view.integer("unidirectional") == 1
    given = view.input("past_sequence_length")
    if given is not None:
        return _in_buffer(view, em, tokens, (q, k, v), given, is_causal)
    scale = view.attribute("scale")
    new_axis = 2 if _rank(key) == 4 else 1
    total = size(em, dim_of(key, new_axis), key, new_axis)
    if past_key is not None:
        before = size(em, dim_of(past_key, 2), past_key, 2)
        total = em.once(("total", before, total), lambda: em.op("Add", before, total))
    nonpad = None
    if is_causal and (dim_of(query, 1) is None or dim_of(query, 1) != dim_of(key, new_axis)):
        if past_key is not None:
            raise Refusal(
                "unknown-size",
                "`MultiHeadAttention` is unidirectional, and whether it has as many new keys as "
                "queries is unknown",
                help="declare the shapes of `query` and `key`",
            )
        # The last query sees all keys: one query alone sees every one.
        nonpad = em.once(
            ("all keys", total, tokens.batch),
            lambda: em.op("Expand", total, em.op("Reshape", tokens.batch, em.constant([1], "one"))),
        )
    how = Attended(
        scale=scale if isinstance(scale, float) else None,
        is_causal=is_causal,
        mask=added(view, em, tokens, view.input("key_padding_mask"), total, _type(query)),
        nonpad=nonpad,
        past_key=past_key,
        past_value=past_value,
    )
    output, present_key, present_value = attend(em, q, k, v, how)
    return _outputs(view, output, present_key or k, present_value or v)


def _in_buffer(
    view: NodeView,
    em: Emitter,
    tokens: Tokens,
    rows: tuple[ir.Value, ir.Value, ir.Value],
    given: ir.Value,
    is_causal: bool,
) -> Replacement:
    """Write the new rows into the past buffers, and attend to what is valid of them."""
    past_key, past_value = view.input("past_key"), view.input("past_value")
    if past_key is None or past_value is None:
        raise Refusal(
            "contrib-form",
            "`past_sequence_length` of `MultiHeadAttention` is given without a past",
        )
    query, key = view.required("query"), view.input("key")
    assert key is not None
    new_axis = 2 if _rank(key) == 4 else 1
    one = em.constant([1], "one")

    def begin() -> ir.Value:
        first = em.op("Reshape", cast(em, given, _I), one)
        return em.op("Expand", first, em.op("Reshape", tokens.batch, one), hint="write_indices")

    start = em.once(("write indices", given, tokens.batch), begin)
    count = size(em, dim_of(key, new_axis), key, new_axis)
    valid = em.once(("valid rows", start, count), lambda: em.op("Add", start, count))
    buffers = tuple(
        em.op(
            "TensorScatter",
            past,
            new,
            start,
            attributes={"axis": 2},
            dtype=past.dtype or ir.DataType.UNDEFINED,
            hint=hint,
        )
        for past, new, hint in (
            (past_key, rows[1], "present_key"),
            (past_value, rows[2], "present_value"),
        )
    )
    first = em.op("Reshape", cast(em, given, _I), em.constant([], "scalar"))
    total = em.op("Add", first, count)
    mask = added(view, em, tokens, view.input("key_padding_mask"), total, _type(query))
    if mask is not None:
        # Columns of the mask are rows of the buffer that are valid; the others are hidden anyway.
        longest = size(em, dim_of(past_key, 2), past_key, 2)
        more = em.op("Reshape", em.op("Sub", longest, total), one)
        pads = em.op("Concat", em.constant([0] * 7, "zeros"), more, attributes={"axis": 0})
        mask = em.op("Pad", mask, pads, dtype=_type(query))
    scale = view.attribute("scale")
    how = Attended(
        scale=scale if isinstance(scale, float) else None,
        is_causal=is_causal,
        mask=mask,
        nonpad=valid,
    )
    output, _, _ = attend(em, rows[0], buffers[0], buffers[1], how)
    return _outputs(view, output, buffers[0], buffers[1])


def _outputs(view: NodeView, output: ir.Value, key: ir.Value, value: ir.Value) -> Replacement:
    found = (output, key if is_read(view, 1) else None, value if is_read(view, 2) else None, None)
    return Replacement(found[: len(view.node.outputs)])


def _biased(
    view: NodeView, em: Emitter, query: ir.Value, key: ir.Value, value: ir.Value
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return query, key and value with their bias; heads that are apart already have none."""
    bias = view.input("bias")
    if bias is None:
        return query, key, value
    wide = known_size(query, 2, "the width of `query` of `MultiHeadAttention`")
    last = wide
    if _rank(value) == 3:
        last = known_size(value, 2, "the width of `value` of `MultiHeadAttention`")
    shares = parts(em, bias, (wide, wide, last))
    op = Builder(em, _type(query))
    return (
        op("Add", query, shares[0], hint="query"),
        key if _rank(key) == 4 else op("Add", key, shares[1], hint="key"),
        value if _rank(value) == 4 else op("Add", value, shares[2], hint="value"),
    )


def attention(view: NodeView, em: Emitter) -> Replacement:
    """Write Attention of `com.microsoft` as MatMul, Add, Split and Attention-24.

    Its past holds keys and values as one; they are taken apart, and the present is put together.

    Refuses rotation inside, buffers that past and present share, and masks of a whole buffer.
    """
    refuse_input(view, "past_sequence_length")
    refuse_value(view, "past_present_share_buffer", None, 0)
    refuse_value(view, "do_rotary", None, 0)
    x, weights, bias = view.required("input"), view.required("weights"), view.input("bias")
    heads, tokens, op = view.integer("num_heads"), Tokens(em, x), Builder(em, _type(x))
    given = view.attribute("qkv_hidden_sizes")
    if isinstance(given, tuple) and len(given) == 3:
        widths = (int(given[0]), int(given[1]), int(given[2]))
    else:
        third = known_size(weights, 1, "the width of `weights` of `Attention`") // 3
        widths = (third, third, third)
    product = op("MatMul", x, weights)
    if bias is not None:
        product = op("Add", product, bias, hint="projected")
    q, k, v = (
        apart(em, part, heads, width)
        for part, width in zip(parts(em, product, widths), widths, strict=True)
    )
    past, past_key, past_value = view.input("past"), None, None
    total = tokens.length
    if past is not None:
        if len(view.node.outputs) < 2:
            raise Refusal(
                "contrib-form", "`past` of `Attention` is given without an output for the present"
            )
        past_key, past_value = (
            op("Gather", past, em.constant(place, "place"), attributes={"axis": 0}, hint=hint)
            for place, hint in ((0, "past_key"), (1, "past_value"))
        )
        before = size(em, dim_of(past, 3), past, 3)
        total = em.once(("total", before, tokens.length), lambda: em.op("Add", before, total))
    scale = view.attribute("scale")
    how = Attended(
        scale=scale if isinstance(scale, float) else None,
        is_causal=view.integer("unidirectional") == 1,
        past_key=past_key,
        past_value=past_value,
    )
    mask = added(view, em, tokens, view.input("mask_index"), total, _type(x))
    output, present_key, present_value = attend(em, q, k, v, replace(how, mask=mask))
    if not is_read(view, 1):
        return Replacement((output, None)[: len(view.node.outputs)])
    first = em.constant([0], "first")
    pair = (op("Unsqueeze", one, first) for one in (present_key or k, present_value or v))
    present = op("Concat", *pair, attributes={"axis": 0}, hint="present")
    return Replacement((output, present))


def _rank(value: ir.Value) -> int | None:
    dims = dims_of(value)
    return None if dims is None else len(dims)


def _width(value: ir.Value) -> int | None:
    dim = dim_of(value, 2) if _rank(value) == 3 else None
    return dim if isinstance(dim, int) else None


def _type(value: ir.Value) -> ir.DataType:
    return value.dtype or ir.DataType.UNDEFINED
