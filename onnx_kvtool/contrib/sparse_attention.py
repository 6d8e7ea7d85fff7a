"""SparseAttention of `com.microsoft`: TensorScatter, and Attention-24 with a mask of blocks."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.group_query_attention import heads_of, rotated
from onnx_kvtool.contrib.grouped_call import Call
from onnx_kvtool.contrib.heads import Attended, Tokens, attend, dim_of
from onnx_kvtool.contrib.packed import is_stored
from onnx_kvtool.contrib.rule import is_read
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.emit.sizes import positions
from onnx_kvtool.model_io.external_data import array
from onnx_kvtool.ops.view import NodeView

__all__ = ["sparse_attention"]

_B = ir.DataType.BOOL


def sparse_attention(view: NodeView, em: Emitter) -> Replacement:
    """Write SparseAttention as RotaryEmbedding-23, TensorScatter-24 and Attention-24.

    Which blocks of keys a block of queries sees becomes a table, (layouts, blocks, blocks), that is
    looked up by position, once for all layers that have the same; all keys of the buffers are
    multiplied, also those of blocks that nobody sees. New rows go where those of
    GroupQueryAttention do. Of a batch of different lengths, of which onnxruntime 1.32 reads the
    wrong weights on a CPU, each sequence is computed as it is alone.

    Refuses lists of blocks that are no constants, or show a block behind that of the query, one
    twice, or none at all.
    """
    table = _table(view, view.integer("num_heads"))
    query, key, value, scale = heads_of(view, em)
    call = Call(em, Tokens(em, view.required("query")), view, ("key_total_sequence_lengths", 0))
    if view.attribute("do_rotary") == 1:
        query, key, scale = rotated(view, em, call, (query, key), scale, call.places())
    keys, values = (
        _written(view, em, call, name, new) for name, new in (("key", key), ("value", value))
    )
    mask = None if _is_dense(table) else _mask(view, em, call, table, keys)
    how = Attended(scale=scale, is_causal=True, mask=mask, nonpad=call.seen)
    output, _, _ = attend(em, query, keys, values, how)
    found = (output, keys, values)
    return Replacement(tuple(v if is_read(view, i) else None for i, v in enumerate(found)))


def _written(view: NodeView, em: Emitter, call: Call, name: str, new: ir.Value) -> ir.Value:
    """Return the present buffer: (B, KV, rows, D)."""
    past = view.required(f"past_{name}")
    dtype = past.dtype or ir.DataType.UNDEFINED
    attributes = {"axis": 2}
    inputs = (past, new, call.start)
    present = em.op(
        "TensorScatter", *inputs, attributes=attributes, dtype=dtype, hint=f"present_{name}"
    )
    present.shape = None if past.shape is None else ir.Shape(past.shape)
    return present


def _table(view: NodeView, heads: int) -> np.ndarray:
    """Return which blocks of keys a block of queries sees: (layouts, blocks, blocks), bool.

    Raises:
        Refusal: If that is not known, or such that onnxruntime computes something else than what
            the lists say.
    """
    lists = []
    for name in ("block_row_indices", "block_col_indices"):
        value = view.required(name)
        if not is_stored(value) or value.const_value is None:
            raise Refusal("not-constant", f"`{name}` of `SparseAttention` is no constant")
        lists.append(array(value.const_value))
    starts, columns = lists
    if starts.ndim != 2 or starts.shape[1] < 2 or columns.shape[:-1] != starts.shape[:1]:
        raise Refusal(
            "contrib-form",
            f"`block_row_indices` and `block_col_indices` of `SparseAttention` have shapes "
            f"{starts.shape} and {columns.shape}, expected two rows for each layout",
        )
    if heads % len(starts):
        raise Refusal(
            "contrib-form",
            f"`SparseAttention` has {len(starts)} layouts, which do not divide its {heads} heads",
        )
    blocks = starts.shape[1] - 1
    table = np.zeros((len(starts), blocks, blocks), bool)
    for layout, row in np.ndindex(len(starts), blocks):
        seen = columns[layout, starts[layout, row] : starts[layout, row + 1]]
        if (
            not len(seen)
            or len(set(seen.tolist())) < len(seen)
            or seen.min() < 0
            or seen.max() > row
        ):
            raise Refusal(
                "contrib-form",
                f"row {row} of `block_col_indices` of `SparseAttention` is {seen.tolist()}, "
                f"expected different blocks from 0 to {row}",
            )
        table[layout, row, seen] = True
    return table


def _is_dense(table: np.ndarray) -> bool:
    """Return whether a query sees every block up to its own, in every layout."""
    return bool(np.array_equal(table, np.tril(np.ones_like(table))))


def _mask(view: NodeView, em: Emitter, call: Call, table: np.ndarray, keys: ir.Value) -> ir.Value:
    """Return where a query may see a key: (B, 1 or H, L, S), bool."""
    size, heads = (
        em.constant(view.integer("sparse_block_size"), "block_size"),
        view.integer("num_heads"),
    )
    layouts, blocks, _ = table.shape
    shown, places = em.constant(table, "shown_blocks"), call.places()

    def build() -> ir.Value:
        own = em.op("Div", places, size, hint="own_block")
        rows = em.op("Gather", shown, own, attributes={"axis": 1}, dtype=_B, hint="rows")
        at = em.op("Reshape", _positions(em, keys), em.constant([-1], "all"))
        # Buffers may be longer than the lists; nobody sees the rows behind them.
        block = em.op("Min", em.op("Div", at, size), em.constant(blocks - 1, "last"))
        seen = em.op("Gather", rows, block, attributes={"axis": 3}, dtype=_B, hint="columns")
        turned = em.op("Transpose", seen, attributes={"perm": [1, 0, 2, 3]}, dtype=_B)
        if layouts in (1, heads):
            return turned
        # Layouts are used in turns.
        parts = [turned] * (heads // layouts)
        return em.op("Concat", *parts, attributes={"axis": 1}, dtype=_B, hint="is_shown")

    return em.once(("shown", shown, size, places, heads, dim_of(keys, 2) or keys), build)


def _positions(em: Emitter, keys: ir.Value) -> ir.Value:
    """Return the row of each key: (1, 1, 1, S)."""
    return positions(em, dim_of(keys, 2), keys, 2, place=3, rank=4)
