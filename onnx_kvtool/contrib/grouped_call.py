"""The lengths, positions, masks and caches of a GroupQueryAttention."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.contrib.heads import Tokens, dim_of
from onnx_kvtool.contrib.rule import Site, no_form, refuse_input, refuse_value
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast, dtype_of, positions, size
from onnx_kvtool.symbolic.dimensions import dims_of

# The places of new rows in the caches of GroupQueryAttention, and the keys that they see.


_I = ir.DataType.INT64


@dataclass(frozen=True, slots=True)
class Call:
    """The lengths of a call, as values; the layers of a model share the nodes.

    Attributes:
        em: Where to build.
        tokens: The new rows.
        site: The node.
        counts: The input that counts the valid rows of each sequence, and by how much it is less
            than their number.
        window: Number of keys that a query sees, if the cache drops others; its rows are no
            positions then.
    """

    site: Site
    tokens: Tokens
    counts: tuple[str, int] = ("seqlens_k", 1)
    window: int | None = None

    @property
    def total(self) -> ir.Value:
        """`total_sequence_length`: (1,), int64."""
        em, given = self.site, self.site.required("total_sequence_length")

        def build() -> ir.Value:
            wide = cast(em, given, _I)
            return wide if dims_of(given) == (1,) else em.op("Reshape", wide, [1])

        return em.once(("total_sequence_length", given), build)

    @property
    def valid(self) -> ir.Value:
        """Number of valid rows after the call: (B,), int64."""
        em, (name, fewer) = self.site, self.counts
        given = self.site.required(name)

        def build() -> ir.Value:
            wide = cast(em, given, _I)
            dims = dims_of(given)
            if dims is None or len(dims) != 1:
                wide = em.op("Reshape", wide, [-1])
            if not fewer:
                return wide
            return em.op("Add", wide, [fewer], hint="valid_rows")

        return em.once(("valid rows", given, fewer), build)

    @property
    def is_later(self) -> ir.Value:
        """1 if there is a past to continue, 0 in a prompt: (1,), int64."""
        em, length = self.site, self.tokens.length

        def build() -> ir.Value:
            prompt = em.op("Equal", self.total, length)
            return cast(em, em.op("Not", prompt), _I, hint="is_later")

        return em.once(("is later", self.total, length), build)

    @property
    def start(self) -> ir.Value:
        """The first row that is written: (B,), int64."""
        em, length = self.site, self.tokens.length
        before = em.once(
            ("rows before", self.valid, length), lambda: em.op("Sub", self.valid, length)
        )
        if self.window is not None:
            return self.kept(before)
        return em.once(
            ("write indices", before, self.is_later),
            lambda: em.op("Mul", before, self.is_later, hint="write_indices"),
        )

    @property
    def seen(self) -> ir.Value:
        """Number of rows that the last new one sees: (B,), int64."""
        em, length = self.site, self.tokens.length
        key = ("seen rows", self.start, length)
        return em.once(key, lambda: em.op("Add", self.start, length, hint="nonpad_kv_seqlen"))

    def kept(self, count: ir.Value) -> ir.Value:
        """Return the number of rows that a cache with a window keeps of `count`: (B,), int64.

        Beyond its capacity C, it drops the first C - W + 1 rows at once, as often as needed.
        """
        em, past = self.site, self.site.required("past_key")
        assert self.window is not None
        capacity, more = size(em, dim_of(past, 2), past, 2), em.constant(self.window, "window")

        def build() -> ir.Value:
            slack = em.op("Sub", capacity, more)
            leaving = em.op("Add", slack, em.constant(1, "one"), hint="leaving")
            beyond = em.op("Max", em.op("Sub", count, capacity), em.constant(0, "zero"))
            turns = em.op("Div", em.op("Add", beyond, slack), leaving)
            return em.op("Sub", count, em.op("Mul", turns, leaving), hint="kept_rows")

        return em.once(("kept rows", count, capacity, more), build)

    def evicted(self, rows: ir.Value, new: ir.Value) -> ir.Value:
        """Return a cache with a window after it dropped rows: (B, KV, C, D).

        The rows after those that it keeps are unspecified.

        Args:
            rows: The rows kept before the call, then the new ones: (B, KV, C + L, D).
            new: (B, KV, L, D).
        """
        em, past = self.site, self.site.required("past_key")
        heads, batch = self.site.integer("kv_num_heads"), self.tokens.batch
        seen, kept = self.seen, self.kept(self.valid)  # a prompt has no padding
        places = positions(em, dim_of(past, 2), past, 2, place=2, rank=3)

        def build() -> ir.Value:
            one, column = em.constant(1, "one"), em.constant([-1, 1, 1], "column")
            total = em.op("Add", size(em, dim_of(past, 2), past, 2), self.tokens.length)
            first = em.op("Reshape", em.op("Sub", seen, kept), column, hint="first_kept")
            at = em.op("Min", em.op("Add", first, places), em.op("Sub", total, one))
            count = em.op("Mul", batch, em.constant(heads, "heads"))
            each = em.op("Mul", em.op("Range", em.constant(0), count, one), total)
            each = em.op("Reshape", each, em.constant([-1, heads, 1], "shape"))
            return em.op("Add", each, at, hint="rows_kept")

        indices = em.once(("rows kept", seen, kept, places, heads, batch), build)
        width = em.op("Reshape", size(em, dim_of(new, 3), new, 3), _one(em))
        shape = em.op("Concat", em.constant([-1], "all"), width, axis=0)
        return em.op("Gather", em.op("Reshape", rows, shape), indices, axis=0, hint="present")

    @property
    def _counted(self) -> ir.Value:
        """The new rows, counted from 0: (1, L), int64."""
        query = self.tokens.query
        return positions(self.site, dim_of(query, 1), query, 1, place=1, rank=2)

    def places(self) -> ir.Value:
        """Return the row of the cache where each new one is written: (B, L), int64."""
        em, rows = self.site, self._counted

        def build() -> ir.Value:
            return em.op("Add", em.op("Reshape", self.start, [-1, 1]), rows, hint="places")

        return em.once(("places", self.start, rows), build)

    def angles(self, table: ir.Value, places: ir.Value, factor: float | None) -> ir.Value:
        """Return the rows of a table at places, times a factor: (B, L, R / 2)."""
        em = self.site
        rows = em.once(
            ("rotary rows", table, places),
            lambda: em.op("Gather", table, places, hint="angles"),
        )
        if factor is None:
            return rows

        def build() -> ir.Value:
            return em.op("Mul", rows, factor, hint="scaled")

        return em.once(("scaled angles", rows, factor), build)

    def near(self, keys: ir.Value, window: int) -> ir.Value:
        """Return whether a key is one of the last `window` keys up to a query: (B, 1, L, S)."""
        em, places = self.site, self.places()

        def build() -> ir.Value:
            first = em.op("Sub", self._column(places), [window])
            return em.op("Less", first, self.rows_of(keys), hint="is_near")

        return em.once(("near", places, window, dim_of(keys, 2) or keys), build)

    def visible(self, keys: ir.Value, *, is_causal: bool) -> ir.Value:
        """Return whether a query sees a key; if not causal, any valid key: (B, 1, L or 1, S)."""
        em, rows = self.site, self.places() if is_causal else self.valid

        def build() -> ir.Value:
            if is_causal:
                behind = em.op("Greater", self.rows_of(keys), self._column(rows))
                return em.op("Not", behind, hint="is_seen")
            ends = em.op("Reshape", rows, [-1, 1, 1, 1])
            return em.op("Less", self.rows_of(keys), ends, hint="is_seen")

        return em.once(("seen", rows, is_causal, dim_of(keys, 2) or keys), build)

    def _column(self, places: ir.Value) -> ir.Value:
        return self.site.op("Unsqueeze", places, [1, 3])

    def rows_of(self, keys: ir.Value) -> ir.Value:
        """Return the row of each key: (1, 1, 1, S)."""
        return positions(self.site, dim_of(keys, 2), keys, 2, place=3, rank=4)

    def positions_of(self, given: ir.Value) -> ir.Value:
        """Return the position of each new row, as onnxruntime reads `position_ids`.

        In a prompt it reads the first element alone, and counts up from it in the whole batch.
        """
        em, query = self.site, self.tokens.query
        if dim_of(query, 1) == 1 and dim_of(query, 0) == 1:
            return given

        def build() -> ir.Value:
            axes, origin = em.constant([0, 1], "axes"), em.constant([0, 0], "origin")
            first = em.op("Slice", given, origin, [1, 1], axes)
            counted = em.op("Expand", em.op("Add", first, self._counted), em.op("Shape", given))
            later = em.op("Equal", self.is_later, [1])
            flags = em.op("Expand", later, em.op("Shape", given))
            return em.op("Where", flags, given, counted, hint="places")

        return em.once(("places of", given, self.is_later), build)


# The caches of GroupQueryAttention: updated in place or grown, quantized or not.


_INT8 = ir.DataType.INT8
_FLOAT = ir.DataType.FLOAT


def cache_of(site: Site, call: Call, name: str, new: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the cache of keys or values with the new rows, and the values that attention reads.

    Both are (B, KV, rows, D); the second is dequantized, and has the type of the query.

    Args:
        site: The node.
        call: Where the rows go.
        name: `key` or `value`.
        new: (B, KV, L, D).

    Raises:
        Refusal: For quantized values of another width than 8 bits, or without a past or a scale.
    """
    past, letter = site.input(f"past_{name}"), name[0]
    if site.attribute(f"{letter}_quant_type") == "NONE":
        refuse_input(site, f"{letter}_scale")
        _demand_type(site, past, new.dtype)
        return _written(site, call, name, new)
    refuse_value(site, f"{letter}_quant_type", "PER_TENSOR", "PER_CHANNEL")
    refuse_value(site, "kv_cache_bit_width", None, 0, 8)
    given = site.input(f"{letter}_scale")
    if given is None or past is None:
        raise no_form(
            f"`GroupQueryAttention` has a quantized cache without `past_{name}` or `{letter}_scale`"
        )
    _demand_type(site, past, _INT8)
    is_one = site.attribute(f"{letter}_quant_type") == "PER_TENSOR"
    shape = [1, 1, 1, 1] if is_one else [1, site.integer("kv_num_heads"), 1, -1]
    op = site.op
    scale = op("Reshape", given, shape, hint="scale")
    quantized = op("Round", op("Div", cast(site, new, _FLOAT), scale))
    quantized = op("Min", op("Max", quantized, -128), 127, hint="quantized")
    present, rows = _written(site, call, name, cast(site, quantized, _INT8))
    values = op("Mul", cast(site, rows, _FLOAT), scale, hint="dequantized")
    return present, cast(site, values, dtype_of(new))


def _demand_type(site: Site, past: ir.Value | None, dtype: ir.DataType | None) -> None:
    if past is not None and past.dtype != dtype:
        raise no_form(
            f"`{past.name}` of `GroupQueryAttention` is of type {past.dtype}, expected {dtype}: "
            "no other quantized cache has a standard form"
        )


def _written(site: Site, call: Call, name: str, new: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the present buffer, and the one that attention reads: (B, KV, rows, D) each."""
    past = site.input(f"past_{name}")
    if past is None:
        return new, new
    index = 1 if name == "key" else 2
    present = site.node.outputs[index] if index < len(site.node.outputs) else None
    before, after = dims_of(past), dims_of(present)
    has_window, buffer = call.window is not None, past
    if has_window or before is None or after is None or None is before[2] or before[2] != after[2]:
        buffer = _grown(site, call, past, None if before is None else before[2])
    rows = site.op("TensorScatter", buffer, new, call.start, axis=2, hint=f"present_{name}")
    if not has_window:
        return rows, rows
    present = call.evicted(rows, new)
    present.shape = past.shape
    return present, rows


def _grown(em: Emitter, call: Call, past: ir.Value, rows: object) -> ir.Value:
    """Return the past padded with zeros to `total_sequence_length` rows, if that is more.

    A cache with a window always gets one row for each new one.
    """
    dim = rows if isinstance(rows, int | str) else None
    zero, one = em.constant([0], "zero"), _one(em)

    def build() -> ir.Value:
        if call.window is not None:
            more = em.op("Reshape", call.tokens.length, one)
        else:
            count = em.op("Reshape", size(em, dim, past, 2), one)
            more = em.op("Max", em.op("Sub", call.total, count), zero)
        return em.op("Concat", [0] * 6, more, zero, axis=0, hint="pads")

    shared = call.total if call.window is None else call.tokens.length
    key = ("rows to add", call.window is None, shared, dim if dim is not None else past)
    return em.op("Pad", past, em.once(key, build), hint="grown")


def _one(em: Emitter) -> ir.Value:
    return em.constant([1], "one")
