"""Attention of separate and joined heads, with padding masks and with a sink."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.rule import Site, no_form
from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Refusal
from onnx_kvtool.emit.forms import cast, dtype_of, halves, scaled_queries, size, unsqueeze
from onnx_kvtool.symbolic.dimensions import dim_of, dims_of

# Heads split and joined, and Attention-24 over them.


def known_size(value: ir.Value, axis: int, what: str) -> int:
    """Return a size that has to be fixed. Raise Refusal, with the name `what`, if it is not."""
    dim = dim_of(value, axis)
    if not isinstance(dim, int):
        raise Refusal(
            "unknown-size", f"{what} is unknown", help="declare it, or give it with `--dim`"
        )
    return dim


def apart(em: Emitter, rows: ir.Value, heads: int, width: int | None = None) -> ir.Value:
    """Return (B, L, heads * D) as (B, heads, L, D); `width` is heads * D, where it is known."""
    op, total = em.op, width or dim_of(rows, -1)
    # A number, where it is known, for lowering and for compilers.
    one = total // heads if isinstance(total, int) else -1
    split = op("Reshape", rows, [0, 0, heads, one])
    turned = op("Transpose", split, perm=[0, 2, 1, 3], hint="heads")
    # `attend` asks for D, which says how the scores are scaled.
    turned.shape = ir.Shape((dim_of(rows, 0), heads, dim_of(rows, 1), one if one > 0 else None))
    return turned


def parts(em: Emitter, rows: ir.Value, widths: tuple[int, ...]) -> tuple[ir.Value, ...]:
    """Return the parts of the last axis that have these widths."""
    return em.multi("Split", rows, list(widths), axis=-1, count=len(widths))


SCORES, WEIGHTS = 1, 3
"""Values of `qk_matmul_output_mode`: scores before anything is added, and the result of Softmax."""


@dataclass(frozen=True, slots=True)
class Attended:
    """The arguments of Attention-24 beside query, key and value.

    Attributes:
        scale: Factor of the scores; None and 0 for 1 / sqrt(D).
        softcap: Limit of the scores; 0 for none.
        mask: (B or 1, H or 1, L, S), bool, or added to the scores.
        nonpad: Valid keys of each row, (B,), int64.
        past_key: (B, H, P, D); None without a cache that grows.
        past_value: Likewise.
        shown: `SCORES` or `WEIGHTS` to return these as well; None for neither.
    """

    scale: float | None = None
    is_causal: bool = False
    softcap: float = 0.0
    mask: ir.Value | None = None
    nonpad: ir.Value | None = None
    past_key: ir.Value | None = None
    past_value: ir.Value | None = None
    shown: int | None = None


def attend(
    em: Emitter, query: ir.Value, key: ir.Value, value: ir.Value, how: Attended
) -> tuple[ir.Value, ir.Value | None, ir.Value | None, ir.Value | None]:
    """Return attention of separate heads as (B, L, H * E), then present key and value, and scores.

    The present ones are None without a past, the scores unless `how.shown` asks for them.

    The query is (B, H, L, D), the key (B, KV, S, D), and the value (B, KV, S, E).
    """
    dtype = dtype_of(query)
    attributes: dict[str, AttributeValue] = {}
    if how.is_causal:
        attributes["is_causal"] = 1
    width = dim_of(query, 3)
    scale = how.scale or (width**-0.5 if isinstance(width, int) and width else None)
    if scale:
        query, attributes["scale"] = scaled_queries(em, query, dtype, scale)
    if how.softcap > 0:
        attributes["softcap"] = how.softcap
    inputs = [query, key, value, how.mask, how.past_key, how.past_value, how.nonpad]
    while inputs[-1] is None:
        inputs.pop()
    has_past = how.past_key is not None
    if how.shown is not None:
        attributes["qk_matmul_output_mode"] = how.shown
    count = 4 if how.shown is not None else 3 if has_past else 1
    found = em.multi("Attention", *inputs, attributes=attributes, count=count)
    presents = found[1:3] if has_past else (None, None)
    for absent in found[1:3] if not has_past else ():
        absent.name = ""
    op = em.op
    rows = op("Transpose", found[0], perm=[0, 2, 1, 3], hint="rows")
    output = op("Reshape", rows, [0, 0, -1], hint="joined")
    return output, *presents, found[3] if count == 4 else None


# The masks of the attention operators of `com.microsoft`, as one mask that is added.


_I = ir.DataType.INT64


def added(
    site: Site, query: ir.Value, mask: ir.Value | None, total: ir.Value, dtype: ir.DataType
) -> ir.Value | None:
    """Return the bias and the mask as one value to add to the scores: (B or 1, H or 1, L, T).

    None if the node has neither.

    Args:
        site: The node; `attention_bias` and `mask_filter_value` are read.
        query: (B, L, ...).
        mask: Which keys are valid: (B, T), (B, L, T), or where the keys of each sequence end, (B,),
            and begin, (2 B,).
        total: T: (), int64.
        dtype: That of the scores.

    Raises:
        Refusal: For another mask, or one of unknown rank.
    """
    bias = site.find("attention_bias")
    if mask is None:
        return bias
    op, given = site.op, site.real_or_none("mask_filter_value")
    largest = float(ml_dtypes.finfo(dtype.numpy()).max)  # type: ignore[no-untyped-call]
    least = max(-10000.0 if given is None else given, -largest)
    length = size(site, query, 1)

    def build() -> ir.Value:
        padded = cast(site, _is_padding(site, query, mask, total), dtype)
        hidden = op("Mul", padded, least, hint="padding")
        if len(dims_of(mask) or ()) == 3:
            return hidden
        # A row for each query, as runtimes want it.
        shape = op("Concat", [1], [1], op("Reshape", length, [1]), [1], axis=0)
        return op("Expand", hidden, shape)

    hiding = site.once(("padding", mask, total, dtype, least, length), build)
    return hiding if bias is None else op("Add", bias, hiding, hint="hiding")


def _is_padding(site: Site, query: ir.Value, mask: ir.Value, total: ir.Value) -> ir.Value:
    """Return True where a key is padding: (B, 1, 1 or L, T)."""
    op, dims, what = site.op, dims_of(mask), f"the mask `{mask.name}` of `{site.node.op_type}`"
    if dims is None:
        raise Refusal(
            "unknown-rank",
            f"the rank of {what} is unknown, expected 1 to 3",
            help="declare its shape",
        )
    if len(dims) in (2, 3):
        return unsqueeze(site, op("Not", op("Greater", mask, 0)), [1, 2][: 4 - len(dims)])
    if len(dims) != 1:
        raise no_form(f"the rank of {what} is {len(dims)}, expected 1 to 3")
    columns, wide = op("Range", 0, total, 1, hint="columns"), cast(site, mask, _I)
    ends: tuple[ir.Value, ...] = (wide,)
    count, batch = dims[0], dim_of(query, 0)
    if count is None or count != batch:
        has_starts = site.node.op_type in ("Attention", "QAttention")
        if isinstance(count, int) and isinstance(batch, int):
            if not has_starts or count != 2 * batch:
                raise no_form(
                    f"{what} has {count} elements, expected {batch}, the batch, which is the only "
                    "one that has a standard form"
                )
            ends = halves(site, wide, axis=0)
        elif has_starts:
            raise Refusal(
                "unknown-size",
                f"whether `{mask.name}` says where the keys of each sequence end, or where they "
                "begin too, follows from its size, which is unknown",
                help="declare its shape, by the name of the batch dimension",
            )
    before = [op("Less", columns, op("Reshape", end, [-1, 1, 1, 1])) for end in ends]
    padding = op("Not", before[0])
    return op("Or", padding, before[1]) if len(before) > 1 else padding


# Attention with a sink, one more score without a value, as MatMul and Softmax.


def attend_beside_sink(
    em: Emitter,
    heads: tuple[ir.Value, ir.Value, ir.Value],
    counts: tuple[int, int],
    how: Attended,
    seen: ir.Value,
    sink: ir.Value,
) -> tuple[ir.Value, ir.Value | None]:
    """Return attention with a sink, (B, L, H * E), and what `how.shown` asks for, (B, H, L, S).

    Heads of a group are rows of one product, so that no buffer is repeated.

    Args:
        em: Where to build.
        heads: Query (B, H, L, D), keys (B, KV, S, D) and values (B, KV, S, E).
        counts: H and KV.
        how: Scale, softcap, and the mask that is added to the scores; the rest is in `seen`.
        seen: Where a query sees a key: (B, 1, L or 1, S), bool.
        sink: The score of the column: (1, H or 1, 1, 1).
    """
    query, keys, values = heads
    op = em.op
    # Heads of a group are rows of one product; 0 keeps a size.
    grouped, apart = ([0, n, -1, 0] for n in (counts[1], counts[0]))
    if not how.scale:
        width = cast(em, size(em, query, 3), dtype_of(query))
        query = op("Mul", query, op("Reciprocal", op("Sqrt", width), hint="scale"), hint="scaled")
    elif how.scale != 1:
        query = op("Mul", query, how.scale, hint="scaled")
    rows = op("Reshape", query, grouped, hint="grouped")
    turned = op("Transpose", keys, perm=[0, 1, 3, 2])
    scores = op("Reshape", op("MatMul", rows, turned), apart, hint="scores")
    if how.softcap > 0:
        capped = op("Tanh", op("Div", scores, how.softcap))
        scores = op("Mul", capped, how.softcap, hint="capped")
    masked = scores
    if how.mask is not None:
        masked = op("Add", scores, how.mask, hint="biased")
    masked = op("Where", seen, masked, -np.inf, hint="masked")
    front = op("Slice", op("Shape", masked), em.constant([0], "first"), em.constant([3], "axes"))
    column = op("Expand", sink, op("Concat", front, [1], axis=0), hint="sink")
    weights = op("Softmax", op("Concat", masked, column, axis=-1), axis=-1)  # (B, H, L, S + 1)
    weights = op("Slice", weights, [0], [-1], [3])
    rows = op("Reshape", weights, grouped, hint="weights")
    found = op("Reshape", op("MatMul", rows, values), apart, hint="attended")
    joined = op("Transpose", found, perm=[0, 2, 1, 3], hint="rows")
    output = op("Reshape", joined, [0, 0, -1], hint="joined")
    return output, {SCORES: scores, WEIGHTS: weights}.get(how.shown or 0)
