"""Attention of separate and joined heads, with padding masks and with a sink."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.rule import Site, no_form
from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Refusal
from onnx_kvtool.emit.forms import cast, dtype_of, halves, scaled_queries, size, unsqueeze
from onnx_kvtool.symbolic.dimensions import Dim, dims_of

# Heads split and joined, and Attention-24 over them.


@dataclass(frozen=True, slots=True)
class Tokens:
    """The new rows of a query.

    Attributes:
        em: Where to build.
        query: (B, L, ...).
    """

    em: Emitter
    query: ir.Value

    @property
    def length(self) -> ir.Value:
        """L: (), int64."""
        return size(self.em, dim_of(self.query, 1), self.query, 1)

    @property
    def batch(self) -> ir.Value:
        """B: (), int64."""
        return size(self.em, dim_of(self.query, 0), self.query, 0)


def dim_of(value: ir.Value, axis: int) -> Dim:
    """Return a size of a value; None if the size or the rank is unknown."""
    dims = dims_of(value)
    return None if dims is None or not -len(dims) <= axis < len(dims) else dims[axis]


def known_size(value: ir.Value, axis: int, what: str) -> int:
    """Return a size that has to be fixed.

    Raises:
        Refusal: If it is not; `what` names it in the message.
    """
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
        is_causal: Whether later keys are hidden.
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

    Args:
        em: Where to build.
        query: (B, H, L, D).
        key: (B, KV, S, D).
        value: (B, KV, S, E).
        how: The other arguments.
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


def over_queries(em: Emitter, mask: ir.Value, tokens: Tokens) -> ir.Value:
    """Return a mask (..., 1, S) with a row for each query, as runtimes want it: (..., L, S)."""
    one = em.constant([1], "one")
    length = em.op("Reshape", tokens.length, one)
    shape = em.op("Concat", one, one, length, one, axis=0)
    return em.op("Expand", mask, shape)


def number(em: Emitter, value: float, dtype: ir.DataType, hint: str) -> ir.Value:
    """Return a scalar constant of an element type: the finite number nearest to `value`."""
    greatest = float(ml_dtypes.finfo(dtype.numpy()).max)  # type: ignore[no-untyped-call]
    return em.constant(np.array(min(max(value, -greatest), greatest), dtype.numpy()), hint)


# The masks of the attention operators of `com.microsoft`, as one mask that is added.


_I = ir.DataType.INT64
_FILTER = -10000.0


def added(
    site: Site,
    tokens: Tokens,
    mask: ir.Value | None,
    total: ir.Value,
    dtype: ir.DataType,
) -> ir.Value | None:
    """Return the bias and the mask as one value to add to the scores: (B or 1, H or 1, L, T).

    None if the node has neither.

    Args:
        site: The node; `attention_bias` and `mask_filter_value` are read.
        tokens: The new rows.
        mask: Which keys are valid: (B, T), (B, L, T), or where the keys of each sequence end, (B,),
            and begin, (2 B,).
        total: T: (), int64.
        dtype: That of the scores.

    Raises:
        Refusal: For another mask, or one of unknown rank.
    """
    has_bias = any(formal.name == "attention_bias" for formal in site.facts.inputs)
    bias = site.input("attention_bias") if has_bias else None
    if mask is None:
        return bias
    op, filter_value = site.op, site.attribute("mask_filter_value")
    least = filter_value if isinstance(filter_value, float) else _FILTER
    rank = len(dims_of(mask) or ())
    key = ("padding", mask, total, dtype, least, tokens.length)

    def build() -> ir.Value:
        padded = cast(site, _is_padding(site, tokens, mask, total), dtype)
        hidden = op("Mul", padded, number(site, least, dtype, "mask_filter_value"), hint="padding")
        return hidden if rank == 3 else over_queries(site, hidden, tokens)

    hiding = site.once(key, build)
    return hiding if bias is None else op("Add", bias, hiding, hint="hiding")


def _is_padding(site: Site, tokens: Tokens, mask: ir.Value, total: ir.Value) -> ir.Value:
    """Return True where a key is padding: (B, 1, 1 or L, T)."""
    dims = dims_of(mask)
    if dims is None or len(dims) not in (1, 2, 3):
        code = "unknown-rank" if dims is None else "contrib-form"
        what = "unknown" if dims is None else str(len(dims))
        raise Refusal(
            code,
            f"the rank of the mask `{mask.name}` of `{site.node.op_type}` is {what}, expected 1 to "
            "3",
            help="declare its shape" if dims is None else None,
        )
    if len(dims) > 1:
        valid = site.op("Greater", mask, 0)
        axes = [1, 2] if len(dims) == 2 else [1]
        return unsqueeze(site, site.op("Not", valid), axes)
    columns = site.op("Range", 0, total, 1, hint="columns")
    ends, starts = _ends(site, tokens, mask)
    shape = site.constant([-1, 1, 1, 1], "shape")
    behind = site.op("Less", columns, site.op("Reshape", ends, shape))
    padding = site.op("Not", behind)
    if starts is None:
        return padding
    before = site.op("Less", columns, site.op("Reshape", starts, shape))
    return site.op("Or", padding, before)


def _ends(site: Site, tokens: Tokens, mask: ir.Value) -> tuple[ir.Value, ir.Value | None]:
    """Return the keys behind the last valid one of each sequence, and the first valid one."""
    wide = cast(site, mask, _I)
    count, batch = dim_of(mask, 0), dim_of(tokens.query, 0)
    if count is not None and count == batch:
        return wide, None
    has_starts = site.node.op_type in ("Attention", "QAttention")
    are_known = isinstance(count, int) and isinstance(batch, int)
    if not has_starts and not are_known:
        return wide, None
    if has_starts and isinstance(count, int) and isinstance(batch, int) and count == 2 * batch:
        ends, starts = halves(site, wide, axis=0)
        return ends, starts
    if are_known:
        raise no_form(
            f"the mask `{mask.name}` of `{site.node.op_type}` has {count} elements, expected "
            f"{batch}, the batch, which is the only one that has a standard form"
        )
    raise Refusal(
        "unknown-size",
        f"whether `{mask.name}` says where the keys of each sequence end, or where they begin too, "
        "follows from its size, which is unknown",
        help="declare its shape, by the name of the batch dimension",
    )


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
        width = cast(em, size(em, None, query, 3), dtype_of(query))
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
    weights = op("Softmax", _with_column(em, masked, sink), axis=-1)
    weights = op("Slice", weights, [0], [-1], [3])
    rows = op("Reshape", weights, grouped, hint="weights")
    found = op("Reshape", op("MatMul", rows, values), apart, hint="attended")
    joined = op("Transpose", found, perm=[0, 2, 1, 3], hint="rows")
    output = op("Reshape", joined, [0, 0, -1], hint="joined")
    return output, {SCORES: scores, WEIGHTS: weights}.get(how.shown or 0)


def _with_column(em: Emitter, scores: ir.Value, sink: ir.Value) -> ir.Value:
    """Return (B, H, L, S + 1)."""
    op = em.op
    zero, three = em.constant([0], "first"), em.constant([3], "axes")
    front = em.op("Slice", em.op("Shape", scores), zero, three)
    shape = em.op("Concat", front, [1], axis=0)
    column = op("Expand", sink, shape, hint="sink")
    return op("Concat", scores, column, axis=-1)
