"""Attention that puts its cache together itself, taken apart: the cache first, then Attention."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.walk import supersede
from onnx_kvtool.emit.emitter import AttributeValue, Emitter
from onnx_kvtool.ops.attention import Attention
from onnx_kvtool.rewrite.raising.growing.growth import Growth
from onnx_kvtool.rewrite.raising.growing.sizes import Sizes
from onnx_kvtool.symbolic.expressions import Dimension, Expr

__all__ = ["attend", "check_attention", "in_heads"]

_HEADS = ("q_num_heads", "kv_num_heads")
_UNDEFINED = ir.DataType.UNDEFINED


def check_attention(
    node: ir.Node, growths: Sequence[Growth], sizes: Sizes, opset: int, whole: Expr | None
) -> None:
    """Prove that Attention over the rows in use is Attention with a past.

    With a past, query i sees key j for `j <= i + P` if it is causal; without one, but with
    `nonpad_kv_seqlen`, for `j <= i + nonpad_kv_seqlen - L`. So as many queries as new keys are
    needed, and a mask that has all keys, since one may not be shorter than `nonpad_kv_seqlen`.

    Args:
        node: An Attention-23/24/25 that has a past of keys and one of values.
        growths: The caches that are to get a capacity and that it grows.
        sizes: What is known of sizes.
        opset: Version of the default domain.
        whole: The size that is granted to be that of the past and the new tokens.

    Raises:
        Unproven: If the two may differ.
    """
    view = Attention(node, opset if node.version is None else node.version)
    name = node.name or node.op_type
    if {growth.past for growth in growths} != {view.past_key, view.past_value}:
        text = f"`{name}` has a past of keys and one of values, of which one cannot be raised"
        raise Unproven("half-attention", text)
    if view.nonpad_kv_seqlen is not None or "qk_matmul_output" in view.outputs:
        raise Unproven("inside-attention", f"`{name}` counts keys, or hands out its scores")
    if view.left_window >= 0 or view.right_window >= 0:
        raise Unproven("inside-attention", f"`{name}` has a window that counts from its past")
    if view.rank == 3 and view.heads() is None:
        raise Unproven("inside-attention", f"the numbers of heads of `{name}` are unknown")
    if view.is_causal:
        _check_causal(view, name, sizes, whole)


def _check_causal(view: Attention, name: str, sizes: Sizes, whole: Expr | None) -> None:
    axis = 1 if view.rank == 3 else 2
    queries, keys = (_size(sizes, v, axis) for v in (view.query, view.key))
    if queries is None or keys is None or not sizes.equal.same(queries, keys):
        text = f"`{name}` is causal and not known to have as many queries as new keys"
        raise Unproven("inside-attention", text)
    if view.attn_mask is None:
        return
    mask = _size(sizes, view.attn_mask, -1)
    if mask is None or not (mask == whole or sizes.equal.same(mask, sizes.length + keys)):
        raise Unproven(
            "mask-length",
            f"the mask `{view.attn_mask.name}` is not known to be as long as the past and the new "
            "tokens",
            assumption=_cover(mask, sizes),
        )


def _size(sizes: Sizes, value: ir.Value, axis: int) -> Expr | None:
    shape = sizes.knowledge.shapes.get(value)
    return shape[axis] if shape else None


def _cover(mask: Expr | None, sizes: Sizes) -> str | None:
    """Return the assumption that the mask of an input, as long as this one, has all keys."""
    if mask is None or not all(isinstance(atom, Dimension) for atom in mask.atoms()):
        return None
    for value, axis in sizes.inputs():
        shape = sizes.knowledge.shapes[value]
        if axis == len(shape) - 1 and shape[axis] == mask:
            return f"covers-past:{value.name}"
    return None


def in_heads(em: Emitter, value: ir.Value, heads: int) -> ir.Value:
    """Return (B, S, H * D) as (B, H, S, D)."""
    dtype = value.dtype or _UNDEFINED
    shape = em.constant([0, 0, heads, -1], "heads")
    apart = em.op("Reshape", value, shape, dtype=dtype, hint="heads")
    perm = {"perm": [0, 2, 1, 3]}
    return em.op("Transpose", apart, attributes=perm, dtype=dtype, hint="heads")


def attend(em: Emitter, node: ir.Node, view: Attention, keys: ir.Value, values: ir.Value) -> None:
    """Put an Attention without a past in the place of one with a past.

    Args:
        em: Where to build, in front of the node.
        node: The Attention with a past; nobody reads it any more afterwards.
        view: What it means.
        keys: The keys in use, (B, KV, P + S, D).
        values: The values in use, (B, KV, P + S, E).
    """
    output = node.outputs[0]
    dtype = output.dtype or view.query.dtype or _UNDEFINED
    attributes: dict[str, AttributeValue] = {
        attribute.name: attribute.value
        for attribute in node.attributes.values()
        if attribute.name not in _HEADS
    }
    query = view.query
    heads = view.heads() if view.rank == 3 else None
    if heads is not None:
        query = in_heads(em, query, heads[0])
    counted: list[ir.Value | None] = []
    if view.is_causal:
        total = em.op("Shape", keys, attributes={"start": 2, "end": 3}, hint="keys")
        batch = em.op("Shape", keys, attributes={"start": 0, "end": 1}, hint="batch")
        counted = [None, None, em.op("Expand", total, batch, hint="nonpad_kv_seqlen")]
    operands = [query, keys, values, *([view.attn_mask] if view.attn_mask or counted else [])]
    result = em.op("Attention", *operands, *counted, attributes=attributes, dtype=dtype)
    attention = result.producer()
    if heads is not None:
        perm = {"perm": [0, 2, 1, 3]}
        turned = em.op("Transpose", result, attributes=perm, dtype=dtype, hint="heads")
        flat = em.constant([0, 0, -1], "flat")
        result = em.op("Reshape", turned, flat, dtype=dtype, hint="heads")
    result.type, result.shape = output.type or result.type, output.shape
    result.name, output.name = output.name, None
    supersede(output, result)
    assert attention is not None
    attention.metadata_props.update(node.metadata_props)
    attention.doc_string = node.doc_string
    if node.name:
        attention.name, node.name = node.name, None
