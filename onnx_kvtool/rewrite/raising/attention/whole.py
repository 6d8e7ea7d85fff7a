"""Attention that reads the rows in use, or the whole capacity with a mask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.core.walk import maker, producer
from onnx_kvtool.emit.emitter import Emitter, ScopedValues
from onnx_kvtool.emit.forms import with_hidden_keys
from onnx_kvtool.ops.operators import Attention, TensorScatter
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.rewrite.raising.attention.writing import for_each_sequence
from onnx_kvtool.rewrite.raising.layout import bounds_along, constants
from onnx_kvtool.symbolic.dimensions import dims_of

# Attention over the rows in use of a cache, made to read the whole capacity.
#
#     K = Slice(TensorScatter(past_key, ...), 0, n)         ->   K = TensorScatter(past_key, ...)
#     V = Slice(TensorScatter(past_value, ...), 0, n)       ->   V = TensorScatter(past_value, ...)
#     Attention(Q, K, V, mask)  # (.., L, n)                ->   Attention(Q, K, V, Pad(mask))
#
# The mask that the stage writes is as long as the keys, so that what it lacks are the rows not in
# use, which are hidden. Without a mask `nonpad_kv_seqlen` counts the rows in use:
#
#     Attention(Q, K, V, nonpad_kv_seqlen=n)            ->   Attention(Q, K, V, nonpad_kv_seqlen=n)
#     Attention(Q, K, V)                                ->   Attention(Q, K, V, nonpad_kv_seqlen=n)
#
# Rows that were never written count for nothing, but for NaN: a caller starts with caches of
# zeros.


_ROWS = 2
_MASK_OF_CAPACITY, _COUNT = 3, 6


@dataclass(frozen=True, slots=True)
class _Part:
    """The first rows of a cache.

    Attributes:
        cache: The cache after the step, (B, KV, C, D).
        count: How many rows: (1,), int64.
    """

    cache: ir.Value
    count: ir.Value


WholeMask = Callable[[ir.Value, ir.Value, Emitter], ir.Value]
"""Writes a mask over all rows of a cache, given that over the rows in use and their number."""


def read_whole(
    node: ir.Node, opset: int, scope: ScopedValues, mask_of: WholeMask | None = None
) -> list[ir.Node] | None:
    """Let an Attention read caches whole, in place.

    Args:
        node: An Attention whose mask, if it has one, is as long as its keys.
        opset: Version of the default domain of the result.
        scope: The scope of its graph.
        mask_of: What writes the mask; None for one that is padded.

    Returns:
        The nodes that may be read by nobody now; None where it reads no first rows of linear
        caches, or hides keys by something else than a mask.
    """
    try:
        view = Attention(node, opset)
        parts = [_part(value, opset) for value in (view.key, view.value)]
    except MalformedNode:
        return None
    keys, values = parts
    if keys is None or values is None or keys.count is not values.count:
        return None
    if view.past_key is not None:
        return None
    em = Emitter(scope, opset, node.name or "kvtool/attention")
    if view.attn_mask is not None:
        if view.is_causal or view.nonpad_kv_seqlen is not None or view.attn_mask.dtype is None:
            return None
        mask = view.attn_mask
        made = _padded(mask, keys, em) if mask_of is None else mask_of(mask, keys.count, em)
        last = _MASK_OF_CAPACITY, made
    elif _is_counted(view, keys.count, opset):
        batch = (dims_of(keys.cache) or (None,))[0]
        last = _COUNT, for_each_sequence(em, keys.count, batch, view.query)
    else:
        return None
    return _read(view, keys.cache, values.cache, last, em)


def read_wide(
    node: ir.Node,
    opset: int,
    scope: ScopedValues,
    wide: Mapping[ir.Value, ir.Value],
    count: ir.Value,
    mask_of: WholeMask | None,
) -> list[ir.Node] | None:
    """Let an Attention read what is computed of whole caches, in place.

    Args:
        node: An Attention whose mask, if it has one, is as long as its keys.
        opset: Version of the default domain of the result.
        scope: The scope of its graph.
        wide: By a value that is as long as the rows in use, the one that is as long as the caches.
        count: The rows in use after the step: (1,), int64.
        mask_of: What writes the mask; None where nothing does.

    Returns:
        The nodes that may be read by nobody now; None where it reads something else, or hides keys
        by something else than a mask or their number.
    """
    try:
        view = Attention(node, opset)
    except MalformedNode:
        return None
    mask = view.attn_mask
    if view.past_key is not None or set(view.outputs) != {"Y"}:
        return None
    keys, values = wide.get(view.key), wide.get(view.value)
    if keys is None or values is None or max(view.left_window, view.right_window) >= 0:
        return None
    em = Emitter(scope, opset, node.name or "kvtool/attention")
    if mask is None and _is_counted(view, count, opset):
        batch = (dims_of(view.query) or (None,))[0]
        last = _COUNT, for_each_sequence(em, count, batch, view.query)
    elif mask is None or mask_of is None or view.is_causal or view.nonpad_kv_seqlen is not None:
        return None
    else:
        last = _MASK_OF_CAPACITY, mask_of(mask, count, em)
    return _read(view, keys, values, last, em)


def _read(
    view: Attention, keys: ir.Value, values: ir.Value, last: tuple[int, ir.Value], em: Emitter
) -> list[ir.Node]:
    """Let an Attention read other keys, values and one more input; return the old producers."""
    node = view.node
    before = (view.key, view.value, view.nonpad_kv_seqlen, view.attn_mask)
    old = [made for value in before if (made := producer(value)) is not None]
    em.insert_before(node)
    node.resize_inputs(max(len(node.inputs), last[0] + 1))
    for index, value in ((1, keys), (2, values), last):
        node.replace_input_with(index, value)
    return old


def _is_counted(view: Attention, count: ir.Value, opset: int) -> bool:
    """Return whether an Attention without a mask hides nothing, or counts the keys of all."""
    if view.nonpad_kv_seqlen is None:
        return not view.is_causal
    expand = maker(view.nonpad_kv_seqlen, "Expand")
    if expand is None:
        return view.nonpad_kv_seqlen is count
    return NodeView(expand, opset).required("input") is count


def _part(value: ir.Value, opset: int) -> _Part | None:
    """Return the cache whose first rows a value is."""
    node = maker(value, "Slice")
    if node is None:
        return None
    view = NodeView(node, opset)
    scattered = maker(view.required("data"), "TensorScatter")
    if scattered is None:
        return None
    scatter = TensorScatter(scattered, opset)
    shape = scatter.past_cache.shape
    rank = None if shape is None else len(shape)
    if rank != 4 or scatter.mode != "linear" or scatter.axis % rank != _ROWS:
        return None
    bounds = bounds_along(view, _ROWS, rank, constants)
    if bounds is None or bounds[0].number != 0:
        return None
    return _Part(view.required("data"), view.required("ends"))


def _padded(mask: ir.Value, keys: _Part, em: Emitter) -> ir.Value:
    """Return a mask with the rows not in use hidden; it is made once for all layers."""

    def build() -> ir.Value:
        capacity = em.op("Shape", keys.cache, start=_ROWS, end=_ROWS + 1, hint="capacity")
        last = em.op("Shape", mask, start=-1, hint="rows")
        rest = em.op("Sub", capacity, last, hint="unused")
        whole = with_hidden_keys(em, mask, rest)
        dims = dims_of(mask)
        if dims is not None:
            whole.shape = ir.Shape([*dims[:-1], None])
        return whole

    return em.once(("whole mask", mask, keys.count), build)


# Attention over whole caches, made to read the rows in use.
#
#     Attention(Q, K, V, mask, nonpad_kv_seqlen=n)
#       ->  m = ReduceMax(n)
#           Attention(Q, Slice(K, 0, m), Slice(V, 0, m), Slice(mask, 0, m), nonpad_kv_seqlen=n)
#
# where K and V are what a TensorScatter writes. Rows from `m` on are hidden from all sequences by
# `nonpad_kv_seqlen`, also where `is_causal` counts from it, so that the result is the same.
# onnxruntime 1.32.0 computes scores for hidden rows as well: a step takes as long as one at full
# caches.


WHY_IN_USE = (
    "`auto` reads the rows in use: over the whole capacity a step behind few rows takes as long as"
    " one behind many, which is slower than in a model that grows"
)
"""Why `auto` does not let attention read the whole capacity of a cache that grew."""

WHY_IN_USE_GROUPED = (
    "`auto` reads the rows in use, as GroupQueryAttention does: over the whole capacity a step "
    "behind few rows takes as long as one behind many, and a prompt several times as long"
)
"""Why it does not for one of GroupQueryAttention."""

WHY_WHOLE = "`auto` reads the whole capacity, as the source does"
"""Why it does for one that is fixed in the source."""

_KEY, _VALUE, _MASK_OF_ROWS = 1, 2, 3


def read_in_use(node: ir.Node, opset: int, scope: ScopedValues, names: dict[ir.Value, str]) -> bool:
    """Let an Attention read the rows in use of its caches, in place.

    Args:
        node: An Attention.
        opset: Version of the default domain of new nodes.
        scope: The scope of its graph.
        names: By the value that counts rows, the name of the dimension that it is; grows. With one
            name for all layers, what is made of that size is made once when they are lowered.

    Returns:
        False where nothing counts the rows of linear caches (B, KV, C, D).
    """
    try:
        view = Attention(node, opset)
        is_cached = all(_is_cache(value, opset) for value in (view.key, view.value))
    except MalformedNode:
        return False
    count = view.nonpad_kv_seqlen
    if not is_cached or count is None or view.past_key is not None or len(view.outputs) > 1:
        return False
    em = Emitter(scope, opset, node.name or "kvtool/attention")
    if dims_of(count) != (1,):
        key = ("rows in use", count)
        counts = count
        count = em.once(key, lambda: em.op("ReduceMax", counts, hint="rows_in_use"))
    name = names.get(count) or names.setdefault(count, scope.names.fresh("rows_in_use"))
    for index, value in ((_KEY, view.key), (_VALUE, view.value)):
        node.replace_input_with(index, _first(em, value, _ROWS, count, name))
    mask = view.attn_mask
    if mask is not None:
        cut = em.once(("mask in use", mask, count), lambda: _first(em, mask, -1, count, name))
        node.replace_input_with(_MASK_OF_ROWS, cut)
    em.insert_before(node)
    return True


def _is_cache(value: ir.Value, opset: int) -> bool:
    scattered = maker(value, "TensorScatter")
    if scattered is None:
        return False
    scatter = TensorScatter(scattered, opset)
    rank = scatter.rank
    return rank == 4 and scatter.mode == "linear" and scatter.axis % rank == _ROWS


def _first(em: Emitter, value: ir.Value, axis: int, count: ir.Value, name: str) -> ir.Value:
    """Return the first of what a value has along an axis."""
    found = em.op("Slice", value, [0], count, [axis], hint="rows_in_use")
    dims = dims_of(value)
    if dims is not None and dims[axis] != 1:  # one that is the same for all keys stays one
        kept = list(dims)
        kept[axis] = name
        found.shape = ir.Shape(kept)
    return found
