"""Attention of `com.microsoft`, with its projections inside, and QAttention: Attention-24."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from onnx_kvtool.contrib.heads import (
    Attended,
    Tokens,
    apart,
    attend,
    dim_of,
    known_size,
    parts,
)
from onnx_kvtool.contrib.padding import added
from onnx_kvtool.contrib.quantized_product import coded_product
from onnx_kvtool.contrib.rule import Builder, is_read, refuse_input, refuse_value
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.emit.sizes import size
from onnx_kvtool.ops.view import NodeView

__all__ = ["attention", "q_attention"]


def attention(view: NodeView, em: Emitter) -> Replacement:
    """Write Attention of `com.microsoft` as MatMul, Add, Split and Attention-24.

    Its past holds keys and values as one; they are taken apart, and the present is put together.

    Refuses rotation inside, buffers that past and present share, and masks of a whole buffer.
    """
    refuse_input(view, "past_sequence_length")
    x, weights, bias = view.required("input"), view.required("weights"), view.input("bias")
    op, given = Builder(em, x.dtype or ir.DataType.UNDEFINED), view.attribute("qkv_hidden_sizes")
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
    product = coded_product(
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
    """Attend to rows that are projected: (B, L, the sum of `widths`)."""
    refuse_value(view, "past_present_share_buffer", None, 0)
    refuse_value(view, "do_rotary", None, 0)
    heads, tokens = view.integer("num_heads"), Tokens(em, view.required("input"))
    op = Builder(em, product.dtype or ir.DataType.UNDEFINED)
    q, k, v = (
        apart(em, part, heads, width)
        for part, width in zip(parts(em, product, widths), widths, strict=True)
    )
    past, past_key, past_value = view.input("past"), None, None
    total = tokens.length
    if past is not None:
        if len(view.node.outputs) < 2:
            raise Refusal(
                "contrib-form",
                f"`past` of `{view.node.op_type}` is given without an output for the present",
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
    mask = added(view, em, tokens, view.input("mask_index"), total, op.dtype)
    output, present_key, present_value = attend(em, q, k, v, replace(how, mask=mask))
    if not is_read(view, 1):
        return Replacement((output, None)[: len(view.node.outputs)])
    first = em.constant([0], "first")
    pair = (op("Unsqueeze", one, first) for one in (present_key or k, present_value or v))
    present = op("Concat", *pair, attributes={"axis": 0}, hint="present")
    return Replacement((output, present))
