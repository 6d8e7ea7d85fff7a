"""MultiHeadAttention, and Attention with its projections."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.contrib.heads import (
    Attended,
    added,
    apart,
    attend,
    known_size,
    parts,
)
from onnx_kvtool.contrib.quantized import quantized_product
from onnx_kvtool.contrib.rule import (
    Site,
    is_read,
    no_form,
    read_outputs,
    refuse_input,
    refuse_value,
)
from onnx_kvtool.emit.emitter import Emitter, Refusal, Replacement
from onnx_kvtool.emit.forms import cast, dtype_of, outputs_of, size
from onnx_kvtool.symbolic.dimensions import dim_of, dims_of

# MultiHeadAttention of `com.microsoft`, and its form for one token, as Attention-24.


_I = ir.DataType.INT64


def multi_head_attention(site: Site) -> Replacement:
    """Write MultiHeadAttention as Attention-24.

    A past becomes the past of Attention. If `past_sequence_length` says how many rows of a buffer
    are valid, TensorScatter-24 writes the new rows behind these, and `nonpad_kv_seqlen` hides the
    rest. Padding becomes a mask that adds `mask_filter_value`. Packed keys and values, with the
    query or without, are split.

    Refuses scores as an output, and what beam search on GPUs needs.
    """
    refuse_input(site, "cache_indirection")
    _refuse_scores(site)
    if site.input("past_key") is None:
        refuse_input(site, "past_sequence_length")
    return _attended(site, site.input("key_padding_mask"), site.integer("unidirectional") == 1)


def decoder_masked_multi_head_attention(site: Site) -> Replacement:
    """Write DecoderMaskedMultiHeadAttention as TensorScatter-24 and Attention-24.

    A cross attention has no past, and becomes Attention-24 alone.

    Refuses a packed query, scores as an output, beams, and, as onnxruntime does, a past that is no
    shared buffer.
    """
    refuse_input(site, "beam_width", "cache_indirection")
    refuse_value(site, "output_qk", None, 0)
    _refuse_scores(site)
    if site.input("past_key") is not None:
        refuse_value(site, "past_present_share_buffer", 1)
        if site.input("past_sequence_length") is None:
            raise no_form(
                "`past_key` of `DecoderMaskedMultiHeadAttention` is given without "
                "`past_sequence_length`"
            )
    if site.input("key") is None or site.input("value") is None:
        raise no_form(
            "`query` of `DecoderMaskedMultiHeadAttention` is packed, which has no standard form"
        )
    return _attended(site, site.input("mask_index"), is_causal=False)


def _refuse_scores(site: Site) -> None:
    """Refuse a node whose fourth output, the scores, is read."""
    if is_read(site, 3):
        raise no_form(
            f"`{site.facts.outputs[3].name}` of `{site.node.op_type}` is read, which has no "
            "standard form"
        )


def _attended(site: Site, padding: ir.Value | None, is_causal: bool) -> Replacement:
    """Write the node as Attention of its new rows and its past.

    `padding` says which keys are valid; None for all.
    """
    name, query = site.node.op_type, site.required("query")
    past_key, past_value = site.input("past_key"), site.input("past_value")
    if (past_key is None) != (past_value is None):
        raise no_form(f"`{name}` has one past input, expected two")
    q, k, v = _heads(site)
    if past_key is not None and len(site.node.outputs) < 3:
        raise no_form(
            f"`past_key` of `{name}` is given without outputs for the present, and "
            "onnxruntime ignores it then"
        )
    em, dtype, nonpad = site.sharing, dtype_of(query), None
    op = em.op
    count, new = dim_of(*_rows_of(site)), size(em, *_rows_of(site))
    given, length = site.input("past_sequence_length"), dim_of(query, 1)

    def batch() -> ir.Value:
        return op("Reshape", size(em, query, 0), [1])

    if given is not None and past_key is not None and past_value is not None:
        valid = cast(em, given, _I)
        start = op("Expand", op("Reshape", valid, [1]), batch(), hint="write_indices")
        nonpad, total = op("Add", start, new), op("Add", op("Reshape", valid, []), new)
        k, v = (
            op("TensorScatter", past, rows, start, axis=2, hint=hint)
            for past, rows, hint in ((past_key, k, "present_key"), (past_value, v, "present_value"))
        )
        mask = added(site, query, padding, total, dtype)
        if mask is not None:
            # Columns of the mask are rows of the buffer that are valid; the others are hidden.
            more = op("Reshape", op("Sub", size(em, past_key, 2), total), [1])
            mask = op("Pad", mask, op("Concat", [0] * 7, more, axis=0))
        past_key = past_value = None
    else:
        total = new if past_key is None else op("Add", size(em, past_key, 2), new)
        if is_causal and (length is None or length != count):
            if past_key is not None:
                raise Refusal(
                    "unknown-size",
                    f"`{name}` is unidirectional, and whether it has as many new keys as queries "
                    "is unknown",
                    help="declare the shapes of `query` and `key`",
                )
            # The last query sees all keys: one query alone sees every one.
            nonpad = op("Expand", total, batch())
        mask = added(site, query, padding, total, dtype)
    how = Attended(
        site.real_or_none("scale"),
        is_causal,
        mask=mask,
        nonpad=nonpad,
        past_key=past_key,
        past_value=past_value,
    )
    output, present_key, present_value, _ = attend(site, q, k, v, how)
    return read_outputs(site, output, present_key or k, present_value or v, None)


def _rows_of(site: Site) -> tuple[ir.Value, int]:
    """Return the input with the new keys, and its axis of rows."""
    key = site.input("key")
    if key is None:
        return site.required("query"), 1
    return key, 2 if _rank(key) == 4 else 1


def _heads(site: Site) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return query, key and value with split heads: (B, H, rows, D)."""
    name, heads = site.node.op_type, site.integer("num_heads")
    query, key, value = site.required("query"), site.input("key"), site.input("value")
    ranks = [None if each is None else _rank(each) for each in (query, key, value)]
    if ranks in ([5, None, None], [3, 5, None]) and (key is None) == (ranks[0] == 5):
        refuse_input(site, "bias", "past_key")
        if key is None:
            q, k, v = _unpacked(site, query, 3)
            return q, k, v
        k, v = _unpacked(site, key, 2)
        return apart(site, query, heads, _width(query)), k, v
    if ranks[0] != 3 or key is None or value is None or not {*ranks[1:]} <= {3, 4}:
        raise Refusal(
            "unknown-rank" if None in ranks else "contrib-form",
            f"`query`, `key` and `value` of `{name}` are packed, or of unknown rank, which has no "
            "standard form",
            help="declare their shapes",
        )
    bias, shares = site.input("bias"), tuple[ir.Value, ...]()
    if bias is not None:
        wide = last = known_size(query, 2, f"the width of `query` of `{name}`")
        if ranks[2] == 3:
            last = known_size(value, 2, f"the width of `value` of `{name}`")
        shares = parts(site, bias, (wide, wide, last))

    def split(given: ir.Value, place: int, hint: str) -> ir.Value:
        if ranks[place] == 4:  # heads that are split already have no bias
            return given
        part = site.op("Add", given, shares[place], hint=hint) if shares else given
        return apart(site, part, heads, _width(given))

    return split(query, 0, "query"), split(key, 1, "key"), split(value, 2, "value")


def _unpacked(em: Emitter, packed: ir.Value, count: int) -> list[ir.Value]:
    """Return the parts of (B, rows, H, count, D), with split heads."""
    turned = em.op("Transpose", packed, perm=[3, 0, 2, 1, 4], hint="unpacked")
    places = (em.constant(place, "place") for place in range(count))
    return [em.op("Gather", turned, place, axis=0) for place in places]


def _rank(value: ir.Value) -> int | None:
    dims = dims_of(value)
    return None if dims is None else len(dims)


def _width(value: ir.Value) -> int | None:
    dim = dim_of(value, 2) if _rank(value) == 3 else None
    return dim if isinstance(dim, int) else None


# Attention of `com.microsoft`, with its projections inside, and QAttention: Attention-24.


def attention(site: Site) -> Replacement:
    """Write Attention of `com.microsoft` as MatMul, Add, Split and Attention-24.

    The past is one value with keys and values: they are split, and the present is joined again.

    Refuses rotation inside, buffers that past and present share, and masks of a whole buffer.
    """
    refuse_input(site, "past_sequence_length")
    x, weights, bias = site.required("input"), site.required("weights"), site.input("bias")
    op, given = site.op, site.attribute("qkv_hidden_sizes")
    if isinstance(given, tuple) and len(given) == 3:
        widths = (int(given[0]), int(given[1]), int(given[2]))
    else:
        widths = _thirds(site, weights)
    product = op("MatMul", x, weights)
    if bias is not None:
        product = op("Add", product, bias, hint="projected")
    return _projected(site, product, widths)


def q_attention(site: Site) -> Replacement:
    """Write QAttention as MatMulInteger, Cast, Mul, Add, Split and Attention-24.

    Refuses what is refused of Attention.
    """
    product = quantized_product(
        site, ("input", "input_scale", "input_zero_point"),
        ("weight", "weight_scale", "weight_zero_point"),
    )  # fmt: skip
    return _projected(site, product, _thirds(site, site.required("weight")))


def _thirds(site: Site, weights: ir.Value) -> tuple[int, int, int]:
    name = site.node.op_type
    third = known_size(weights, 1, f"the width of `{weights.name}` of `{name}`") // 3
    return (third, third, third)


def _projected(site: Site, product: ir.Value, widths: tuple[int, int, int]) -> Replacement:
    """Write the attention of projected rows: (B, L, the sum of `widths`)."""
    refuse_value(site, "past_present_share_buffer", None, 0)
    refuse_value(site, "do_rotary", None, 0)
    heads, query, em = site.integer("num_heads"), site.required("input"), site.sharing
    op, total = site.op, size(em, query, 1)
    q, k, v = (
        apart(site, part, heads, width)
        for part, width in zip(parts(site, product, widths), widths, strict=True)
    )
    past, past_key, past_value = site.input("past"), None, None
    if past is not None:
        if len(site.node.outputs) < 2:
            raise no_form(
                f"`past` of `{site.node.op_type}` is given without an output for the present"
            )
        past_key, past_value = (
            op("Gather", past, place, axis=0, hint=hint)
            for place, hint in ((0, "past_key"), (1, "past_value"))
        )
        total = em.op("Add", size(em, past, 3), total)
    how = Attended(
        site.real_or_none("scale"),
        site.integer("unidirectional") == 1,
        mask=added(site, query, site.input("mask_index"), total, dtype_of(product)),
        past_key=past_key,
        past_value=past_value,
    )
    output, present_key, present_value, _ = attend(site, q, k, v, how)
    if not is_read(site, 1):
        return outputs_of(site.node, output, None)
    pair = (op("Unsqueeze", one, [0]) for one in (present_key or k, present_value or v))
    present = op("Concat", *pair, axis=0, hint="present")
    return Replacement((output, present))
