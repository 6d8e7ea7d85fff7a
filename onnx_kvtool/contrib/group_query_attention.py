"""GroupQueryAttention and SparseAttention."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.block_quantized import is_stored
from onnx_kvtool.contrib.grouped_call import Call, cache_of
from onnx_kvtool.contrib.heads import (
    SCORES,
    WEIGHTS,
    Attended,
    apart,
    attend,
    attend_beside_sink,
    known_size,
    parts,
)
from onnx_kvtool.contrib.rule import (
    Site,
    is_read,
    no_form,
    read_outputs,
    refuse_input,
    refuse_value,
)
from onnx_kvtool.emit.emitter import Refusal, Replacement
from onnx_kvtool.emit.forms import dtype_of, scales_queries
from onnx_kvtool.model_io.external_data import array
from onnx_kvtool.symbolic.dimensions import dim_of

# GroupQueryAttention of `com.microsoft`: TensorScatter and Attention-24.


def group_query_attention(site: Site) -> Replacement:
    """Write GroupQueryAttention as RotaryEmbedding-23, TensorScatter-24 and Attention-24.

    The L new rows are written from row `seqlens_k` + 1 - L on; in a prompt, where L =
    `total_sequence_length`, from row 0 on. Queries see the rows up to the last new one. If past and
    present declare the same number of rows, the cache is updated in place; else the past is padded
    with zeros to `total_sequence_length` first, if that is more. A window is a mask. In a prompt, a
    query behind the valid rows of its sequence sees other keys than in onnxruntime; nobody reads
    its result.

    A cache that drops rows (`sliding_window_cache`) gets room for the new rows behind those that it
    keeps; a Gather then takes the rows to keep. The rows behind them differ from onnxruntime, which
    does not specify them.

    A sink or smooth softmax is one more column of scores: attention is written as MatMul and
    Softmax then. Caches quantized to int8 stay quantized: new rows are divided by the scale,
    rounded and written, and attention reads the dequantized values.

    Scores as an output (`output_qk`) are those of Attention, 0 where a key is hidden.

    Refuses other quantized caches; a bias or scores beside a cache that drops rows; normalized
    heads, which onnxruntime computes on GPUs and ignores on a CPU; and query lengths.
    """
    _refuse(site)
    query, key, value, scale = heads_of(site)
    call = Call(site.sharing)
    if site.attribute("do_rotary") == 1:
        given = site.input("position_ids")
        places = call.places() if given is None else call.positions_of(given)
        query, key, scale = rotated(site, (query, key), scale, places)
    if site.integer("sliding_window_cache") == 1:
        call = replace(call, window=site.integer("local_window_size"))
    presents, buffers = zip(
        *(cache_of(call, name, new) for name, new in (("key", key), ("value", value))),
        strict=True,
    )
    output, scores = _attended(site, call, (query, *buffers), scale)
    return read_outputs(site, output, *presents, scores)


def _attended(
    site: Site,
    call: Call,
    heads: tuple[ir.Value, ir.Value, ir.Value],
    scale: float | None,
) -> tuple[ir.Value, ir.Value | None]:
    """Return attention of query, key and value, (B, H, rows, D) each, as (B, L, H * D).

    Also return `output_qk`, (B, H, L, `total_sequence_length`), if somebody reads it; else None.
    """
    op = site.op
    query, keys, values = heads
    window, causal = site.integer("local_window_size"), site.integer("causal") == 1
    if window != -1 and (window < 1 or not causal):
        raise no_form(
            f"`local_window_size` of `GroupQueryAttention` is {window}, expected -1, or 1 or more "
            "if it is causal"
        )
    near = None if window < 1 else call.near(keys, window)
    bias = _padded_bias(site, keys)
    how = Attended(
        scale=scale,
        is_causal=causal,
        softcap=site.real_or_none("softcap") or 0.0,
        shown={0: None, 1: SCORES, 2: WEIGHTS}[site.integer("qk_output") * is_read(site, 3)],
    )
    # The score of the sink: (1, H, 1, 1) or (1, 1, 1, 1).
    sink, seen = site.input("head_sink"), None
    if sink is not None:
        sink = op("Reshape", sink, [1, -1, 1, 1])
    elif site.integer("smooth_softmax") == 1:
        sink = site.constant(np.zeros((1, 1, 1, 1), dtype_of(query).numpy()), "smooth")
    if sink is not None or how.shown == SCORES:
        seen = call.visible(keys, is_causal=causal)
        if near is not None:
            seen = op("And", seen, near)
    if sink is not None and seen is not None:
        counts = (site.integer("num_heads"), site.integer("kv_num_heads"))
        output, shown = attend_beside_sink(site, heads, counts, replace(how, mask=bias), seen, sink)
    else:
        nonpad = (call.seen if causal else call.valid).value
        mask = bias or near
        if bias is not None and near is not None:
            zero = np.array(0, dtype_of(bias).numpy())
            hidden = np.array(-np.inf, zero.dtype)
            mask = op("Add", bias, op("Where", near, zero, hidden))
        how = replace(how, mask=mask, nonpad=nonpad)
        output, *_, shown = attend(site, query, keys, values, how)
    if shown is None:
        return output, None
    if how.shown == SCORES and seen is not None:
        if bias is not None:
            shown = op("Add", shown, bias)
        shown = op("Where", seen, shown, 0, hint="seen_scores")
    return output, op("Slice", shown, [0], call.total, [3], hint="output_qk")


def _refuse(site: Site) -> None:
    past = site.input("past_key")
    refuse_input(site, "q_norm_weight", "k_norm_weight", "query_seqlens")
    refuse_value(site, "smooth_softmax", -1, 0, 1)
    refuse_value(site, "sliding_window_cache", 0, 1)
    refuse_value(site, "causal", 0, 1)
    if is_read(site, 3):
        refuse_value(site, "qk_output", 1, 2)
    if site.integer("sliding_window_cache") == 1:
        refuse_input(site, "attention_bias")
        window, rows = site.integer("local_window_size"), None if past is None else dim_of(past, 2)
        is_short = isinstance(rows, int) and rows < window
        if past is None or window < 1 or is_short or is_read(site, 3):
            raise no_form(
                "`sliding_window_cache` of `GroupQueryAttention` is 1, expected a "
                f"`local_window_size` of 1 or more, here {window}, a `past_key` of at least as "
                f"many rows, here {'none' if past is None else rows or 'unknown'}, and no "
                "`output_qk`, whose columns are not specified"
            )
    if (past is None) != (site.input("past_value") is None):
        raise no_form("`GroupQueryAttention` has one past input, expected two")


def heads_of(site: Site) -> tuple[ir.Value, ir.Value, ir.Value, float | None]:
    """Return query, key and value, (B, heads, L, D) each, and the factor of the scores.

    The factor is None if it depends on D, and D is unknown.
    """
    heads, groups = site.integer("num_heads"), site.integer("kv_num_heads")
    query, key, value = site.required("query"), site.input("key"), site.input("value")
    name, wide = site.node.op_type, dim_of(query, 2)
    if (key is None) != (value is None):
        raise no_form(f"`{name}` has one of `key` and `value`, expected both")
    if key is None or value is None:
        one = known_size(query, 2, f"the width of the packed query of `{name}`")
        one //= heads + 2 * groups
        query, key, value = parts(site, query, (heads * one, groups * one, groups * one))
    else:
        one = wide // heads if isinstance(wide, int) else 0
    query, key, value = (
        apart(site, rows, count, count * one)
        for rows, count in ((query, heads), (key, groups), (value, groups))
    )
    scale = site.real_or_none("scale") or (one**-0.5 if one else None)
    return query, key, value, scale


def rotated(
    site: Site, heads: tuple[ir.Value, ir.Value], scale: float | None, places: ir.Value
) -> tuple[ir.Value, ir.Value, float | None]:
    """Return query and key rotated by the angles of their positions, and the remaining scale.

    The angles are looked up once for all layers. If the queries are to be scaled, the angles of
    queries are scaled instead, once for all layers.
    """
    cos, sin = site.input("cos_cache"), site.input("sin_cache")
    if cos is None or sin is None:
        raise no_form(
            f"`do_rotary` of `{site.node.op_type}` is 1, but `cos_cache` or `sin_cache` is absent"
        )
    width = 2 * known_size(cos, 1, "the width of `cos_cache`")

    def rotate(rows: ir.Value, factor: float | None = None) -> ir.Value:
        op = site.sharing.op
        rows_ = (op("Gather", table, places, hint="angles") for table in (cos, sin))
        angles = rows_ if factor is None else (op("Mul", a, factor, hint="scaled") for a in rows_)
        turned = site.op(
            "RotaryEmbedding",
            rows,
            *angles,
            interleaved=1 if site.attribute("rotary_interleaved") == 1 else 0,
            rotary_embedding_dim=width,
        )
        turned.shape = rows.shape
        return turned

    query, key = heads
    dtype = dtype_of(query)
    if scale and scales_queries(dtype, scale) and dim_of(query, 3) == width:
        return rotate(query, scale), rotate(key), 1.0
    return rotate(query), rotate(key), scale


def _padded_bias(site: Site, keys: ir.Value) -> ir.Value | None:
    """Return `attention_bias` with a column for each row of the buffer, which may be longer."""
    bias = site.input("attention_bias")
    if bias is None:
        return None
    op = site.op
    count, rows = op("Gather", op("Shape", bias), [3]), op("Gather", op("Shape", keys), [2])
    more = op("Max", op("Sub", rows, count), [0])
    return op("Pad", bias, op("Concat", [0] * 7, more, axis=0, hint="pads"))


# SparseAttention of `com.microsoft`: TensorScatter, and Attention-24 with a mask of blocks.


def sparse_attention(site: Site) -> Replacement:
    """Write SparseAttention as RotaryEmbedding-23, TensorScatter-24 and Attention-24.

    The lists of blocks become a table, (layouts, blocks, blocks), that says which blocks of keys a
    block of queries sees. It is looked up by position, once for all layers with the same lists. All
    keys of the buffers are multiplied, also those of hidden blocks. New rows are written as in
    GroupQueryAttention. In a batch of different lengths, where onnxruntime 1.32 reads wrong weights
    on a CPU, each sequence is computed as if it were alone.

    Refuses lists of blocks that are no constants, and a list with a block after that of the query,
    with a block twice, or without any.
    """
    table = _table(site, site.integer("num_heads"))
    query, key, value, scale = heads_of(site)
    call = Call(site.sharing, ("key_total_sequence_lengths", 0))
    if site.attribute("do_rotary") == 1:
        query, key, scale = rotated(site, (query, key), scale, call.places())
    keys, values = (_written(call, name, new) for name, new in (("key", key), ("value", value)))
    # A query may see every block up to its own, in every layout.
    is_dense = np.array_equal(table, np.tril(np.ones_like(table)))
    mask = None if is_dense else _sparse_attention_mask(call, table, keys)
    how = Attended(scale=scale, is_causal=True, mask=mask, nonpad=call.seen.value)
    output, *_ = attend(site, query, keys, values, how)
    return read_outputs(site, output, keys, values)


def _written(call: Call, name: str, new: ir.Value) -> ir.Value:
    """Return the present buffer: (B, KV, rows, D)."""
    past = call.site.required(f"past_{name}")
    present = call.site.op("TensorScatter", past, new, call.start, axis=2, hint=f"present_{name}")
    present.shape = None if past.shape is None else ir.Shape(past.shape)
    return present


def _table(site: Site, heads: int) -> np.ndarray:
    """Return whether a block of queries sees a block of keys: (layouts, blocks, blocks), bool.

    Raises:
        Refusal: If that is unknown, or onnxruntime computes something else for such lists.
    """
    lists = []
    for name in ("block_row_indices", "block_col_indices"):
        value = site.required(name)
        if not is_stored(value) or value.const_value is None:
            raise Refusal("not-constant", f"`{name}` of `SparseAttention` is no constant")
        lists.append(array(value.const_value))
    starts, columns = lists
    if starts.ndim != 2 or starts.shape[1] < 2 or columns.shape[:-1] != starts.shape[:1]:
        raise no_form(
            f"`block_row_indices` and `block_col_indices` of `SparseAttention` have shapes "
            f"{starts.shape} and {columns.shape}, expected two rows for each layout"
        )
    if heads % len(starts):
        raise no_form(
            f"`SparseAttention` has {len(starts)} layouts, which do not divide its {heads} heads"
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
            raise no_form(
                f"row {row} of `block_col_indices` of `SparseAttention` is {seen.tolist()}, "
                f"expected different blocks from 0 to {row}"
            )
        table[layout, row, seen] = True
    return table


def _sparse_attention_mask(call: Call, table: np.ndarray, keys: ir.Value) -> ir.Value:
    """Return where a query may see a key: (B, 1 or H, L, S), bool."""
    op, heads = call.site.op, call.site.integer("num_heads")
    size, (layouts, blocks, _) = call.site.integer("sparse_block_size"), table.shape
    rows = op(
        "Gather", table, op("Div", call.places(), size, hint="own_block"), axis=1, hint="rows"
    )
    at = op("Reshape", call.rows_of(keys), [-1])
    # Buffers may be longer than the lists; nobody sees the rows after the listed blocks.
    block = op("Min", op("Div", at, size), blocks - 1)
    seen = op("Gather", rows, block, axis=3, hint="columns")
    turned = op("Transpose", seen, perm=[1, 0, 2, 3])
    if layouts in (1, heads):
        return turned
    # Heads use the layouts in turns.
    return op("Concat", *[turned] * (heads // layouts), axis=1, hint="is_shown")
