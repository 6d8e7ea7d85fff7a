"""The lengths, positions, masks and caches of a GroupQueryAttention."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.contrib.rule import Site, no_form, refuse_input, refuse_value
from onnx_kvtool.emit.forms import Term, cast, dtype_of, positions, size
from onnx_kvtool.symbolic.dimensions import dim_of, dims_of

# The places of new rows in the caches of GroupQueryAttention, and the keys that they see.


_I = ir.DataType.INT64


@dataclass(frozen=True, slots=True)
class Call:
    """The lengths of a call, as terms; the layers of a model share the nodes.

    Attributes:
        counts: The input that counts the valid rows of each sequence, and by how much it is less
            than their number.
        window: Number of keys that a query sees, if the cache drops others; its rows are no
            positions then.
    """

    site: Site
    counts: tuple[str, int] = ("seqlens_k", 1)
    window: int | None = None

    def _term(self, name: str, axis: int) -> Term:
        """Return a size of an input as a term: (), int64."""
        return Term(self.site, size(self.site, self.site.required(name), axis))

    @property
    def length(self) -> Term:
        """L, the number of new rows: (), int64."""
        return self._term("query", 1)

    @property
    def total(self) -> Term:
        """`total_sequence_length`: (1,), int64."""
        given = self.site.required("total_sequence_length")
        wide = Term(self.site, given).cast(_I)
        return wide if dims_of(given) == (1,) else wide.op("Reshape", [1])

    @property
    def valid(self) -> Term:
        """Number of valid rows after the call: (B,), int64."""
        name, fewer = self.counts
        given = self.site.required(name)
        count = Term(self.site, given).cast(_I)
        if len(dims_of(given) or ()) != 1:
            count = count.op("Reshape", [-1])
        return count.op("Add", [fewer], hint="valid_rows") if fewer else count

    @property
    def is_later(self) -> Term:
        """1 if there is a past to continue, 0 in a prompt: (1,), int64."""
        prompt = self.total.op("Equal", self.length)
        return (~prompt).then(cast, _I, hint="is_later")

    @property
    def start(self) -> Term:
        """The first row that is written: (B,), int64."""
        before = self.valid - self.length
        if self.window is not None:
            return self.kept(before)
        return before.op("Mul", self.is_later, hint="write_indices")

    @property
    def seen(self) -> Term:
        """Number of rows that the last new one sees: (B,), int64."""
        return self.start.op("Add", self.length, hint="nonpad_kv_seqlen")

    def kept(self, count: Term) -> Term:
        """Return the number of rows that a cache with a window keeps of `count`: (B,), int64.

        Beyond its capacity C, it drops the first C - W + 1 rows at once, as often as needed.
        """
        capacity = self._term("past_key", 2)
        slack = capacity - self.window
        leaving = slack.op("Add", 1, hint="leaving")
        beyond = (count - capacity).op("Max", 0)
        return count.op("Sub", (beyond + slack) / leaving * leaving, hint="kept_rows")

    def evicted(self, rows: ir.Value, new: ir.Value) -> ir.Value:
        """Return a cache with a window after it dropped rows: (B, KV, C + L, D) to (B, KV, C, D).

        The rows after those that it keeps are unspecified.
        """
        em, op = self.site, self.site.op
        past, heads = em.required("past_key"), em.integer("kv_num_heads")
        leaving = self.seen - self.kept(self.valid)  # a prompt has no padding
        first = leaving.op("Reshape", [-1, 1, 1], hint="first_kept")
        places = positions(em, past, 2, place=2, rank=3)
        total = self._term("past_key", 2) + self.length
        at = (first + places).op("Min", total - 1)
        each = Term(em, op("Range", 0, self._term("query", 0) * heads, 1)) * total
        indices = each.op("Reshape", [-1, heads, 1]).op("Add", at, hint="rows_kept")
        shape = op("Concat", [-1], op("Reshape", size(em, new, 3), [1]), axis=0)
        return op("Gather", op("Reshape", rows, shape), indices, axis=0, hint="present")

    @property
    def _counted(self) -> ir.Value:
        """The new rows, counted from 0: (1, L), int64."""
        query = self.site.required("query")
        return positions(self.site, query, 1, place=1, rank=2)

    def places(self) -> ir.Value:
        """Return the row of the cache where each new one is written: (B, L), int64."""
        column = self.start.op("Reshape", [-1, 1])
        return column.op("Add", self._counted, hint="places").value

    def near(self, keys: ir.Value, window: int) -> ir.Value:
        """Return whether a key is one of the last `window` keys up to a query: (B, 1, L, S)."""
        first = self.site.op("Sub", self._column, [window])
        return self.site.op("Less", first, self.rows_of(keys), hint="is_near")

    def visible(self, keys: ir.Value, *, is_causal: bool) -> ir.Value:
        """Return whether a query sees a key; if not causal, any valid key: (B, 1, L or 1, S)."""
        op, rows = self.site.op, self.rows_of(keys)
        if is_causal:
            return op("Not", op("Greater", rows, self._column), hint="is_seen")
        return op("Less", rows, op("Reshape", self.valid, [-1, 1, 1, 1]), hint="is_seen")

    @property
    def _column(self) -> ir.Value:
        return self.site.op("Unsqueeze", self.places(), [1, 3])

    def rows_of(self, keys: ir.Value) -> ir.Value:
        """Return the row of each key: (1, 1, 1, S)."""
        return positions(self.site, keys, 2, place=3, rank=4)

    def positions_of(self, given: ir.Value) -> ir.Value:
        """Return the position of each new row, as onnxruntime reads `position_ids`.

        In a prompt it reads the first element alone, and counts up from it in the whole batch.
        """
        query, op = self.site.required("query"), self.site.op
        if dim_of(query, 1) == 1 and dim_of(query, 0) == 1:
            return given
        first, shape = op("Slice", given, [0, 0], [1, 1], [0, 1]), op("Shape", given)
        counted = op("Expand", op("Add", first, self._counted), shape)
        flags = op("Expand", op("Equal", self.is_later, [1]), shape)
        return op("Where", flags, given, counted, hint="places")


# The caches of GroupQueryAttention: updated in place or grown, quantized or not.


_INT8 = ir.DataType.INT8
_FLOAT = ir.DataType.FLOAT


def cache_of(call: Call, name: str, new: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the cache of keys or values with the new rows, and the values that attention reads.

    Both are (B, KV, rows, D); the second is dequantized, and has the type of the query.

    Raises:
        Refusal: For quantized values of another width than 8 bits, or without a past or a scale.
    """
    site, letter, past = call.site, name[0], call.site.input(f"past_{name}")
    kind, dtype = site.attribute(f"{letter}_quant_type"), new.dtype
    if kind == "NONE":
        refuse_input(site, f"{letter}_scale")
    else:
        dtype = _INT8
        refuse_value(site, f"{letter}_quant_type", "PER_TENSOR", "PER_CHANNEL")
        refuse_value(site, "kv_cache_bit_width", None, 0, 8)
        if past is None or site.input(f"{letter}_scale") is None:
            raise no_form(
                f"`GroupQueryAttention` has a quantized cache without `past_{name}` or "
                f"`{letter}_scale`"
            )
    if past is not None and past.dtype != dtype:
        raise no_form(
            f"`{past.name}` of `GroupQueryAttention` is of type {past.dtype}, expected {dtype}: "
            "no other quantized cache has a standard form"
        )
    if kind == "NONE":
        return _written(call, name, new)
    shape = [1, 1, 1, 1] if kind == "PER_TENSOR" else [1, site.integer("kv_num_heads"), 1, -1]
    op, given = site.op, site.required(f"{letter}_scale")
    scale = op("Reshape", given, shape, hint="scale")
    quantized = op("Round", op("Div", cast(site, new, _FLOAT), scale))
    quantized = op("Min", op("Max", quantized, -128), 127, hint="quantized")
    present, rows = _written(call, name, cast(site, quantized, _INT8))
    values = op("Mul", cast(site, rows, _FLOAT), scale, hint="dequantized")
    return present, cast(site, values, dtype_of(new))


def _written(call: Call, name: str, new: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the present buffer, and the one that attention reads: (B, KV, rows, D) each."""
    site, has_window = call.site, call.window is not None
    buffer = past = site.input(f"past_{name}")
    if past is None:
        return new, new
    present = dict(enumerate(site.node.outputs)).get(1 if name == "key" else 2)
    before, after = dim_of(past, 2), None if present is None else dim_of(present, 2)
    if has_window or before is None or before != after:
        buffer = _grown(call, past)
    rows = site.op("TensorScatter", buffer, new, call.start, axis=2, hint=f"present_{name}")
    if not has_window:
        return rows, rows
    kept = call.evicted(rows, new)
    kept.shape = past.shape
    return kept, rows


def _grown(call: Call, past: ir.Value) -> ir.Value:
    """Return the past padded with zeros to `total_sequence_length` rows, if that is more.

    A cache with a window always gets one row for each new one.
    """
    op = call.site.op
    if call.window is not None:
        more = op("Reshape", call.length, [1])
    else:
        count = op("Reshape", size(call.site, past, 2), [1])
        more = op("Max", op("Sub", call.total, count), [0])
    return op("Pad", past, op("Concat", [0] * 6, more, [0], axis=0, hint="pads"), hint="grown")
