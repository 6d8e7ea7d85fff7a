"""GroupQueryAttention of `com.microsoft`: TensorScatter and Attention-24."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
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
from onnx_kvtool.rewrite.contrib.rule import is_read, refuse_input, refuse_value
from onnx_kvtool.rewrite.engine.emit import Emitter
from onnx_kvtool.rewrite.engine.forms import cast
from onnx_kvtool.rewrite.engine.rule import Refusal, Replacement
from onnx_kvtool.rewrite.lowering.sizes import positions, size
from onnx_kvtool.symbolic.dims import dims_of

__all__ = ["group_query_attention"]

_I = ir.DataType.INT64
_B = ir.DataType.BOOL


def group_query_attention(view: NodeView, em: Emitter) -> Replacement:
    """Write GroupQueryAttention as RotaryEmbedding-23, TensorScatter-24 and Attention-24.

    The new rows are written from `seqlens_k` + 1 - L on, in a prompt, which has L =
    `total_sequence_length`, from 0 on; so many and L more rows may be seen, later ones not. Where
    past and present have as many rows by what is declared, that is in place; else the past is
    padded with rows of zeros to `total_sequence_length` first, where that is more. A window is a
    mask. In a prompt, a query behind the valid rows of its sequence sees other keys than in
    onnxruntime; nobody reads what comes of it.

    Refuses smooth softmax, sinks, quantized caches, those that drop rows, scores as an output,
    heads that are normalized, and query lengths.
    """
    _refuse(view)
    heads, groups = view.integer("num_heads"), view.integer("kv_num_heads")
    query, key, value = _rows(view, em, heads, groups)
    call = _Call(em, Tokens(em, view.required("query")), view)
    wide = dim_of(view.required("query"), 2)
    total = heads if view.input("key") is not None else heads + 2 * groups
    one = wide // total if isinstance(wide, int) else None
    query, key, value = (
        apart(em, rows, count, None if one is None else count * one)
        for rows, count in ((query, heads), (key, groups), (value, groups))
    )
    if view.attribute("do_rotary") == 1:
        query, key = _rotated(view, em, call, query, key)
    keys, values = (
        _written(view, em, call, name, new) for name, new in (("key", key), ("value", value))
    )
    window, causal = view.integer("local_window_size"), view.integer("causal") == 1
    if window != -1 and (window < 1 or not causal):
        raise Refusal(
            "contrib-form",
            f"`local_window_size` of `GroupQueryAttention` is {window}, expected -1, or 1 or more "
            "if it is causal",
        )
    scale, softcap = view.attribute("scale"), view.attribute("softcap")
    output, _, _ = attend(
        em,
        query,
        keys,
        values,
        Attended(
            scale=scale if isinstance(scale, float) else None,
            is_causal=causal,
            softcap=softcap if isinstance(softcap, float) else 0.0,
            mask=_mask(view, em, call, keys, window),
            nonpad=call.seen if causal else call.valid,
        ),
    )
    presents = [v if is_read(view, i) else None for i, v in ((0, output), (1, keys), (2, values))]
    return Replacement((*presents, None)[: len(view.node.outputs)])


def _refuse(view: NodeView) -> None:
    refuse_input(view, "head_sink", "k_scale", "v_scale", "q_norm_weight", "k_norm_weight")
    refuse_input(view, "query_seqlens")
    refuse_value(view, "smooth_softmax", -1, 0)
    for name in ("k_quant_type", "v_quant_type"):
        refuse_value(view, name, "NONE")
    refuse_value(view, "kv_cache_bit_width", None, 0)
    refuse_value(view, "sliding_window_cache", 0)
    refuse_value(view, "causal", 0, 1)
    if is_read(view, 3):
        raise Refusal(
            "contrib-form",
            "`output_qk` of `GroupQueryAttention` is read, which has no standard form",
        )
    past, query = view.input("past_key"), view.required("query")
    if past is not None and past.dtype != query.dtype:
        raise Refusal(
            "contrib-form",
            f"`past_key` of `GroupQueryAttention` is of type {past.dtype}, expected {query.dtype} "
            "as the query: quantized caches have no standard form",
        )
    if (past is None) != (view.input("past_value") is None):
        raise Refusal("contrib-form", "`GroupQueryAttention` has one past input, expected two")


def _rows(
    view: NodeView, em: Emitter, heads: int, groups: int
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return query, key and value, (B, L, heads * D) each."""
    query, key, value = view.required("query"), view.input("key"), view.input("value")
    if key is not None and value is not None:
        return query, key, value
    if key is not None or value is not None:
        raise Refusal(
            "contrib-form", "`GroupQueryAttention` has one of `key` and `value`, expected both"
        )
    width = known_size(query, 2, "the width of the packed query of `GroupQueryAttention`")
    one = width // (heads + 2 * groups)
    found = parts(em, query, (heads * one, groups * one, groups * one))
    return found[0], found[1], found[2]


@dataclass(frozen=True, slots=True)
class _Call:
    """Where the rows of a call go; what the layers of a model have in common is built once."""

    em: Emitter
    tokens: Tokens
    view: NodeView

    @property
    def total(self) -> ir.Value:
        """`total_sequence_length`: (1,), int64."""
        em, given = self.em, self.view.required("total_sequence_length")
        one = em.constant([1], "one")

        def build() -> ir.Value:
            wide = cast(em, given, _I)
            return wide if dims_of(given) == (1,) else em.op("Reshape", wide, one)

        return em.once(("total_sequence_length", given), build)

    @property
    def valid(self) -> ir.Value:
        """Rows that are valid after the call: (B,), int64."""
        em, given = self.em, self.view.required("seqlens_k")

        def build() -> ir.Value:
            wide = cast(em, given, _I)
            dims = dims_of(given)
            if dims is None or len(dims) != 1:
                wide = em.op("Reshape", wide, em.constant([-1], "all"))
            return em.op("Add", wide, em.constant([1], "one"), hint="valid_rows")

        return em.once(("valid rows", given), build)

    @property
    def is_later(self) -> ir.Value:
        """1 where there is a past to continue, 0 in a prompt: (1,), int64."""
        em, length = self.em, self.tokens.length

        def build() -> ir.Value:
            prompt = em.op("Equal", self.total, length, dtype=_B)
            return cast(em, em.op("Not", prompt, dtype=_B), _I, hint="is_later")

        return em.once(("is later", self.total, length), build)

    @property
    def start(self) -> ir.Value:
        """The first row that is written: (B,), int64."""
        em, length = self.em, self.tokens.length

        def build() -> ir.Value:
            before = em.op("Sub", self.valid, length)
            return em.op("Mul", before, self.is_later, hint="write_indices")

        return em.once(("write indices", self.valid, self.is_later, length), build)

    @property
    def seen(self) -> ir.Value:
        """Rows that the last new one sees: (B,), int64."""
        em, length = self.em, self.tokens.length
        key = ("seen rows", self.start, length)
        return em.once(key, lambda: em.op("Add", self.start, length, hint="nonpad_kv_seqlen"))

    def places(self) -> ir.Value:
        """Return the row of each new one: (B, L), int64."""
        em, query = self.em, self.tokens.query
        rows = positions(em, dim_of(query, 1), query, 1, place=1, rank=2)
        shape = em.constant([-1, 1], "column")

        def build() -> ir.Value:
            return em.op("Add", em.op("Reshape", self.start, shape), rows, hint="places")

        return em.once(("places", self.start, rows), build)


def _rotated(
    view: NodeView, em: Emitter, call: _Call, query: ir.Value, key: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Return query and key rotated by the angles of their positions."""
    cos, sin = view.input("cos_cache"), view.input("sin_cache")
    if cos is None or sin is None:
        raise Refusal(
            "contrib-form",
            "`do_rotary` of `GroupQueryAttention` is 1, but `cos_cache` or `sin_cache` is absent",
        )
    given = view.input("position_ids")
    places = call.places() if given is None else _places(em, call, given)
    attributes = {
        "interleaved": 1 if view.attribute("rotary_interleaved") == 1 else 0,
        "rotary_embedding_dim": 2 * known_size(cos, 1, "the width of `cos_cache`"),
    }
    rotated = (
        em.op(
            "RotaryEmbedding",
            rows,
            cos,
            sin,
            places,
            attributes=attributes,
            dtype=rows.dtype or ir.DataType.UNDEFINED,
        )
        for rows in (query, key)
    )
    return next(rotated), next(rotated)


def _places(em: Emitter, call: _Call, given: ir.Value) -> ir.Value:
    """Return the position of each new row, as onnxruntime reads `position_ids`.

    In a prompt it looks at the first element alone, and counts on from it in all of the batch.
    """
    query = call.tokens.query
    if dim_of(query, 1) == 1 and dim_of(query, 0) == 1:
        return given

    def build() -> ir.Value:
        one = em.constant([1], "one")
        axes, origin = em.constant([0, 1], "axes"), em.constant([0, 0], "origin")
        first = em.op("Slice", given, origin, em.constant([1, 1], "corner"), axes)
        rows = positions(em, dim_of(query, 1), query, 1, place=1, rank=2)
        counted = em.op("Expand", em.op("Add", first, rows), em.op("Shape", given))
        later = em.op("Equal", call.is_later, one, dtype=_B)
        flags = em.op("Expand", later, em.op("Shape", given), dtype=_B)
        return em.op("Where", flags, given, counted, hint="places")

    return em.once(("places of", given, call.is_later), build)


def _written(view: NodeView, em: Emitter, call: _Call, name: str, new: ir.Value) -> ir.Value:
    """Return the present buffer: (B, KV, rows, D)."""
    past = view.input(f"past_{name}")
    if past is None:
        return new
    dtype = past.dtype or ir.DataType.UNDEFINED
    index = 1 if name == "key" else 2
    present = view.node.outputs[index] if index < len(view.node.outputs) else None
    before, after = dims_of(past), dims_of(present)
    if before is None or after is None or before[2] is None or before[2] != after[2]:
        past = _grown(em, call, past, None if before is None else before[2])
    attributes = {"axis": 2}
    inputs = (past, new, call.start)
    return em.op(
        "TensorScatter", *inputs, attributes=attributes, dtype=dtype, hint=f"present_{name}"
    )


def _grown(em: Emitter, call: _Call, past: ir.Value, rows: object) -> ir.Value:
    """Return the past with rows of zeros up to `total_sequence_length`, if that is more."""
    dim = rows if isinstance(rows, int | str) else None
    zero, one = em.constant([0], "zero"), em.constant([1], "one")

    def build() -> ir.Value:
        count = em.op("Reshape", size(em, dim, past, 2), one)
        more = em.op("Max", em.op("Sub", call.total, count), zero)
        front = em.constant([0] * 6, "zeros")
        return em.op("Concat", front, more, zero, attributes={"axis": 0}, hint="pads")

    pads = em.once(("rows to add", call.total, dim if dim is not None else past), build)
    return em.op("Pad", past, pads, dtype=past.dtype or ir.DataType.UNDEFINED, hint="grown")


def _mask(view: NodeView, em: Emitter, call: _Call, keys: ir.Value, window: int) -> ir.Value | None:
    """Return what `nonpad_kv_seqlen` does not say: a window, and what is added to scores."""
    bias = view.input("attention_bias")
    near = None if window < 1 else _near(em, call, keys, window)
    if bias is None:
        return near
    dtype = bias.dtype or ir.DataType.UNDEFINED
    # Columns of the bias are rows of the buffer, which may be longer.
    zero = em.constant([0], "zero")
    last = em.constant([3], "last")
    count = em.op("Gather", em.op("Shape", bias), last)
    rows = em.op("Gather", em.op("Shape", keys), em.constant([2], "rows"))
    more = em.op("Max", em.op("Sub", rows, count), zero)
    front = em.constant([0] * 7, "zeros")
    pads = em.op("Concat", front, more, attributes={"axis": 0}, hint="pads")
    bias = em.op("Pad", bias, pads, dtype=dtype)
    if near is None:
        return bias
    seen = em.constant(np.zeros((), dtype.numpy()), "seen")
    hidden = em.constant(np.array(-np.inf, dtype.numpy()), "hidden")
    added = em.op("Where", near, seen, hidden, dtype=dtype)
    return em.op("Add", bias, added, dtype=dtype)


def _near(em: Emitter, call: _Call, keys: ir.Value, window: int) -> ir.Value:
    """Return True where a key is one of the last of `window` up to a query: (B, 1, L, S)."""
    places = call.places()
    key = ("near", places, window, dim_of(keys, 2) or keys)

    def build() -> ir.Value:
        columns = positions(em, dim_of(keys, 2), keys, 2, place=3, rank=4)
        row = em.op("Unsqueeze", places, em.constant([1, 3], "axes"))
        first = em.op("Sub", row, em.constant([window], "window"))
        return em.op("Less", first, columns, dtype=_B, hint="is_near")

    return em.once(key, build)
