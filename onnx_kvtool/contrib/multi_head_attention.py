"""MultiHeadAttention, and Attention with its projections."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from onnx_kvtool.contrib.heads import (
    Attended,
    Tokens,
    added,
    apart,
    attend,
    dim_of,
    known_size,
    parts,
)
from onnx_kvtool.contrib.quantized import quantized_product
from onnx_kvtool.contrib.rule import is_read, no_form, read_outputs, refuse_input, refuse_value
from onnx_kvtool.emit.emitter import Emitter, Refusal, Replacement
from onnx_kvtool.emit.forms import cast, dtype_of, outputs_of, size
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.symbolic.dimensions import dims_of

# MultiHeadAttention of `com.microsoft`, and its form for one token, as Attention-24.


_I = ir.DataType.INT64


def multi_head_attention(view: NodeView, em: Emitter) -> Replacement:
    """Write MultiHeadAttention as Attention-24.

    A past becomes the past of Attention. If `past_sequence_length` says how many rows of a buffer
    are valid, TensorScatter-24 writes the new rows behind these, and `nonpad_kv_seqlen` hides the
    rest. Padding becomes a mask that adds `mask_filter_value`. Packed keys and values, with the
    query or without, are split.

    Refuses scores as an output, and what beam search on GPUs needs.
    """
    refuse_input(view, "cache_indirection")
    _refuse_scores(view)
    if view.input("past_key") is None:
        refuse_input(view, "past_sequence_length")
    return _attended(view, em, view.input("key_padding_mask"), view.integer("unidirectional") == 1)


def decoder_masked_multi_head_attention(view: NodeView, em: Emitter) -> Replacement:
    """Write DecoderMaskedMultiHeadAttention as TensorScatter-24 and Attention-24.

    A cross attention has no past, and becomes Attention-24 alone.

    Refuses a packed query, scores as an output, beams, and, as onnxruntime does, a past that is no
    shared buffer.
    """
    refuse_input(view, "beam_width", "cache_indirection")
    refuse_value(view, "output_qk", None, 0)
    _refuse_scores(view)
    if view.input("past_key") is not None:
        refuse_value(view, "past_present_share_buffer", 1)
        if view.input("past_sequence_length") is None:
            raise no_form(
                "`past_key` of `DecoderMaskedMultiHeadAttention` is given without "
                "`past_sequence_length`"
            )
    if view.input("key") is None or view.input("value") is None:
        raise no_form(
            "`query` of `DecoderMaskedMultiHeadAttention` is packed, which has no standard form"
        )
    return _attended(view, em, view.input("mask_index"), is_causal=False)


def _refuse_scores(view: NodeView) -> None:
    """Refuse a node whose fourth output, the scores, is read."""
    if is_read(view, 3):
        raise no_form(
            f"`{view.facts.outputs[3].name}` of `{view.node.op_type}` is read, which has no "
            "standard form"
        )


def _attended(
    view: NodeView, em: Emitter, padding: ir.Value | None, is_causal: bool
) -> Replacement:
    """Write the node as Attention of its new rows and its past.

    Args:
        view: The node.
        em: Where to build.
        padding: The mask that says which keys are valid; None for all.
        is_causal: Whether later keys are hidden.
    """
    name, query = view.node.op_type, view.required("query")
    past_key, past_value = view.input("past_key"), view.input("past_value")
    if (past_key is None) != (past_value is None):
        raise no_form(f"`{name}` has one past input, expected two")
    tokens, (q, k, v) = Tokens(em, query), _heads(view, em)
    if past_key is not None and len(view.node.outputs) < 3:
        raise no_form(
            f"`past_key` of `{name}` is given without outputs for the present, and "
            "onnxruntime ignores it then"
        )
    length, count = dim_of(query, 1), dim_of(*_rows_of(view))
    given = view.input("past_sequence_length")
    if given is not None and past_key is not None:
        return _in_buffer(view, em, tokens, (q, k, v), (given, padding), is_causal)
    scale = view.attribute("scale")
    total = size(em, count, *_rows_of(view))
    if past_key is not None:
        before = size(em, dim_of(past_key, 2), past_key, 2)
        total = em.once(("total", before, total), lambda: em.op("Add", before, total))
    nonpad = None
    if is_causal and (length is None or length != count):
        if past_key is not None:
            raise Refusal(
                "unknown-size",
                f"`{name}` is unidirectional, and whether it has as many new keys as queries is "
                "unknown",
                help="declare the shapes of `query` and `key`",
            )
        # The last query sees all keys: one query alone sees every one.
        nonpad = em.once(
            ("all keys", total, tokens.batch),
            lambda: em.op("Expand", total, em.op("Reshape", tokens.batch, [1])),
        )
    how = Attended(
        scale=scale if isinstance(scale, float) else None,
        is_causal=is_causal,
        mask=added(view, em, tokens, padding, total, dtype_of(query)),
        nonpad=nonpad,
        past_key=past_key,
        past_value=past_value,
    )
    output, present_key, present_value, _ = attend(em, q, k, v, how)
    return read_outputs(view, output, present_key or k, present_value or v, None)


def _rows_of(view: NodeView) -> tuple[ir.Value, int]:
    """Return the input with the new keys, and its axis of rows."""
    key = view.input("key")
    if key is None:
        return view.required("query"), 1
    return key, 2 if _rank(key) == 4 else 1


def _heads(view: NodeView, em: Emitter) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return query, key and value with split heads: (B, H, rows, D)."""
    name, heads = view.node.op_type, view.integer("num_heads")
    query, key, value = view.required("query"), view.input("key"), view.input("value")
    ranks = [None if each is None else _rank(each) for each in (query, key, value)]
    if ranks in ([5, None, None], [3, 5, None]) and (key is None) == (ranks[0] == 5):
        refuse_input(view, "bias", "past_key")
        if key is None:
            q, k, v = _unpacked(em, query, 3)
            return q, k, v
        k, v = _unpacked(em, key, 2)
        return apart(em, query, heads, _width(query)), k, v
    if ranks[0] != 3 or key is None or value is None or not {*ranks[1:]} <= {3, 4}:
        raise Refusal(
            "unknown-rank" if None in ranks else "contrib-form",
            f"`query`, `key` and `value` of `{name}` are packed, or of unknown rank, which has no "
            "standard form",
            help="declare their shapes",
        )
    q, k, v = (
        part if _rank(part) == 4 and part in (key, value) else apart(em, part, heads, width)
        for part, width in zip(
            _biased(view, em, query, key, value),
            (_width(given) for given in (query, key, value)),
            strict=True,
        )
    )
    return q, k, v


def _unpacked(em: Emitter, packed: ir.Value, count: int) -> list[ir.Value]:
    """Return the parts of (B, rows, H, count, D), with split heads."""
    turned = em.op("Transpose", packed, perm=[3, 0, 2, 1, 4], hint="unpacked")
    places = (em.constant(place, "place") for place in range(count))
    return [em.op("Gather", turned, place, axis=0) for place in places]


def _in_buffer(
    view: NodeView,
    em: Emitter,
    tokens: Tokens,
    rows: tuple[ir.Value, ir.Value, ir.Value],
    lengths: tuple[ir.Value, ir.Value | None],
    is_causal: bool,
) -> Replacement:
    """Write the new rows into the past buffers, and attend to the valid rows.

    `lengths` are the number of valid rows and the mask of padding.
    """
    past_key, past_value = view.operands("past_key", "past_value")
    query, (given, padding) = view.required("query"), lengths
    one = em.constant([1], "one")

    def begin() -> ir.Value:
        first = em.op("Reshape", cast(em, given, _I), one)
        return em.op("Expand", first, em.op("Reshape", tokens.batch, one), hint="write_indices")

    start = em.once(("write indices", given, tokens.batch), begin)
    count = size(em, dim_of(*_rows_of(view)), *_rows_of(view))
    valid = em.once(("valid rows", start, count), lambda: em.op("Add", start, count))
    key, value = (
        em.op("TensorScatter", past, new, start, axis=2, hint=hint)
        for past, new, hint in (
            (past_key, rows[1], "present_key"),
            (past_value, rows[2], "present_value"),
        )
    )
    first = em.op("Reshape", cast(em, given, _I), [])
    total = em.op("Add", first, count)
    mask = added(view, em, tokens, padding, total, dtype_of(query))
    if mask is not None:
        # Columns of the mask are rows of the buffer that are valid; the others are hidden anyway.
        longest = size(em, dim_of(past_key, 2), past_key, 2)
        more = em.op("Reshape", em.op("Sub", longest, total), one)
        pads = em.op("Concat", [0] * 7, more, axis=0)
        mask = em.op("Pad", mask, pads)
    scale = view.attribute("scale")
    how = Attended(
        scale=scale if isinstance(scale, float) else None,
        is_causal=is_causal,
        mask=mask,
        nonpad=valid,
    )
    output, *_ = attend(em, rows[0], key, value, how)
    return read_outputs(view, output, key, value, None)


def _biased(
    view: NodeView, em: Emitter, query: ir.Value, key: ir.Value, value: ir.Value
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return query, key and value with their bias; heads that are split already have none."""
    bias = view.input("bias")
    if bias is None:
        return query, key, value
    name = view.node.op_type
    wide = known_size(query, 2, f"the width of `query` of `{name}`")
    last = wide
    if _rank(value) == 3:
        last = known_size(value, 2, f"the width of `value` of `{name}`")
    shares = parts(em, bias, (wide, wide, last))
    op = em.op
    return (
        op("Add", query, shares[0], hint="query"),
        key if _rank(key) == 4 else op("Add", key, shares[1], hint="key"),
        value if _rank(value) == 4 else op("Add", value, shares[2], hint="value"),
    )


def _rank(value: ir.Value) -> int | None:
    dims = dims_of(value)
    return None if dims is None else len(dims)


def _width(value: ir.Value) -> int | None:
    dim = dim_of(value, 2) if _rank(value) == 3 else None
    return dim if isinstance(dim, int) else None


# Attention of `com.microsoft`, with its projections inside, and QAttention: Attention-24.


def attention(view: NodeView, em: Emitter) -> Replacement:
    """Write Attention of `com.microsoft` as MatMul, Add, Split and Attention-24.

    The past is one value with keys and values: they are split, and the present is joined again.

    Refuses rotation inside, buffers that past and present share, and masks of a whole buffer.
    """
    refuse_input(view, "past_sequence_length")
    x, weights, bias = view.required("input"), view.required("weights"), view.input("bias")
    op, given = em.op, view.attribute("qkv_hidden_sizes")
    if isinstance(given, tuple) and len(given) == 3:
        widths = (int(given[0]), int(given[1]), int(given[2]))
    else:
        widths = _thirds(view, weights)
    product = op("MatMul", x, weights)
    if bias is not None:
        product = op("Add", product, bias, hint="projected")
    return _projected(view, em, product, widths)


def q_attention(view: NodeView, em: Emitter) -> Replacement:
    """Write QAttention as MatMulInteger, Cast, Mul, Add, Split and Attention-24.

    Refuses what is refused of Attention.
    """
    product = quantized_product(
        view, em, ("input", "input_scale", "input_zero_point"),
        ("weight", "weight_scale", "weight_zero_point"),
    )  # fmt: skip
    return _projected(view, em, product, _thirds(view, view.required("weight")))


def _thirds(view: NodeView, weights: ir.Value) -> tuple[int, int, int]:
    name = view.node.op_type
    third = known_size(weights, 1, f"the width of `{weights.name}` of `{name}`") // 3
    return (third, third, third)


def _projected(
    view: NodeView, em: Emitter, product: ir.Value, widths: tuple[int, int, int]
) -> Replacement:
    """Write the attention of projected rows: (B, L, the sum of `widths`)."""
    refuse_value(view, "past_present_share_buffer", None, 0)
    refuse_value(view, "do_rotary", None, 0)
    heads, tokens = view.integer("num_heads"), Tokens(em, view.required("input"))
    op = em.op
    q, k, v = (
        apart(em, part, heads, width)
        for part, width in zip(parts(em, product, widths), widths, strict=True)
    )
    past, past_key, past_value = view.input("past"), None, None
    total = tokens.length
    if past is not None:
        if len(view.node.outputs) < 2:
            raise no_form(
                f"`past` of `{view.node.op_type}` is given without an output for the present"
            )
        past_key, past_value = (
            op("Gather", past, place, axis=0, hint=hint)
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
    mask = added(view, em, tokens, view.input("mask_index"), total, dtype_of(product))
    output, present_key, present_value, _ = attend(em, q, k, v, replace(how, mask=mask))
    if not is_read(view, 1):
        return outputs_of(view.node, output, None)
    pair = (op("Unsqueeze", one, [0]) for one in (present_key or k, present_value or v))
    present = op("Concat", *pair, axis=0, hint="present")
    return Replacement((output, present))
