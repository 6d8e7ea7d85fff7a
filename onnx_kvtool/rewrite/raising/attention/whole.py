"""Attention that reads the rows in use, or the whole capacity with a mask."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from onnx_kvtool.core.walk import maker, producer
from onnx_kvtool.emit.emitter import Emitter, ScopedValues
from onnx_kvtool.emit.forms import axis_size, with_hidden_keys
from onnx_kvtool.ops.operators import Attention, Mode, TensorScatter
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.rewrite.raising.attention.replacing import for_each_sequence
from onnx_kvtool.rewrite.raising.layout import bounds_along, constants
from onnx_kvtool.symbolic.dimensions import dims_of

# Attention over the rows in use of a cache, made to read the whole capacity.
#
#     K = Slice(TensorScatter(past_key, ...), 0, n)         ->   K = TensorScatter(past_key, ...)
#     V = Slice(TensorScatter(past_value, ...), 0, n)       ->   V = TensorScatter(past_value, ...)
#     Attention(Q, K, V, mask)  # (.., L, n)                ->   Attention(Q, K, V, Pad(mask))
#
# The mask that the stage writes has a column for each row in use. Columns that hide are added for
# the other rows. Without a mask `nonpad_kv_seqlen` counts the rows in use:
#
#     Attention(Q, K, V, nonpad_kv_seqlen=n)            ->   Attention(Q, K, V, nonpad_kv_seqlen=n)
#     Attention(Q, K, V)                                ->   Attention(Q, K, V, nonpad_kv_seqlen=n)
#
# Hidden rows add nothing to the result unless they hold NaN: a caller starts with caches of zeros.


ROWS = 2
KEY, VALUE, MASK, _COUNT = 1, 2, 3, 6

WholeMask = Callable[[ir.Value, ir.Value, Emitter], ir.Value]
"""Writes a mask over all rows of a cache, given that over the rows in use and their number."""


def read_whole(
    node: ir.Node,
    opset: int,
    scope: ScopedValues,
    mask_of: WholeMask | None,
    wide: Mapping[ir.Value, ir.Value],
    in_use: ir.Value | None,
) -> list[ir.Node] | None:
    """Let an Attention read caches whole, or what is computed of whole caches, in place.

    Return the nodes that may be read by nobody now. Return None if the Attention reads something
    else, or hides keys by something else than a mask or their number.

    Args:
        node: An Attention whose mask, if it has one, is as long as its keys.
        opset: Version of the default domain of the result.
        scope: The scope of its graph.
        mask_of: What writes the mask; None for one that is padded.
        wide: By a value that is as long as the rows in use, the one that is as long as the caches.
        in_use: The rows in use after the step: (1,), int64; None if `wide` is empty.
    """
    try:
        view = Attention(node, opset)
        parts = [_part(value, opset) for value in (view.key, view.value)]
    except MalformedNode:
        return None
    if view.past_key is not None or set(view.outputs) != {"Y"}:
        return None
    if max(view.left_window, view.right_window) >= 0:
        return None
    (keys, count), (values, other) = parts
    is_cut = count is not None and count is other
    if not is_cut:
        keys, values, count = wide.get(view.key), wide.get(view.value), in_use
    if keys is None or values is None or count is None:
        return None
    mask = view.attn_mask
    em = Emitter(scope, opset, node.name or "kvtool/attention")
    if mask is None:
        if not _is_counted(view, count, opset):
            return None
        batch = (dims_of(keys if is_cut else view.query) or (None,))[0]
        last = _COUNT, for_each_sequence(em, count, batch, view.query)
    elif view.is_causal or view.nonpad_kv_seqlen is not None or mask.dtype is None:
        return None
    elif mask_of is not None:
        last = MASK, mask_of(mask, count, em)
    elif is_cut:
        last = MASK, _padded(mask, keys, count, em)
    else:
        return None
    before = (view.key, view.value, view.nonpad_kv_seqlen, mask)
    old = [made for value in before if (made := producer(value)) is not None]
    em.insert_before(node)
    node.resize_inputs(max(len(node.inputs), last[0] + 1))
    for index, new in ((KEY, keys), (VALUE, values), last):
        node.replace_input_with(index, new)
    return old


def _is_counted(view: Attention, count: ir.Value, opset: int) -> bool:
    """Return whether an Attention without a mask shows all keys, or as many as `count` says."""
    if view.nonpad_kv_seqlen is None:
        return not view.is_causal
    expand = maker(view.nonpad_kv_seqlen, "Expand")
    if expand is None:
        return view.nonpad_kv_seqlen is count
    return NodeView(expand, opset).required("input") is count


def _part(value: ir.Value, opset: int) -> tuple[ir.Value, ir.Value] | tuple[None, None]:
    """Return the cache whose first rows a value is, and how many: (1,), int64."""
    node = maker(value, "Slice")
    if node is not None:
        view = NodeView(node, opset)
        cache, ends = view.operands("data", "ends")
        bounds = bounds_along(view, ROWS, 4, constants)
        if is_cache(cache, opset, "linear") and bounds is not None and bounds[0].number == 0:
            return cache, ends
    return None, None


def is_cache(value: ir.Value, opset: int, mode: Mode) -> bool:
    """Return whether a value is a cache after a step, (B, KV, C, D), written in this mode."""
    node = maker(value, "TensorScatter")
    if node is None:
        return False
    scatter = TensorScatter(node, opset)
    return scatter.rank == 4 and scatter.axis % 4 == ROWS and scatter.mode == mode


def _padded(mask: ir.Value, cache: ir.Value, count: ir.Value, em: Emitter) -> ir.Value:
    """Return a mask with the rows not in use hidden; it is made once for all layers."""

    def build() -> ir.Value:
        capacity = axis_size(em, cache, ROWS, "capacity")
        return padded(mask, capacity, None, em, "rows")

    return em.once(("whole mask", mask, count), build)


def padded(
    mask: ir.Value, capacity: ir.Value | list[int], rows: int | None, em: Emitter, hint: str
) -> ir.Value:
    """Return a mask with columns that hide, up to as many as a cache has rows."""
    last = em.op("Shape", mask, start=-1, hint=hint)
    whole = with_hidden_keys(em, mask, em.op("Sub", capacity, last, hint="unused"))
    dims = dims_of(mask)
    if dims is not None:
        whole.shape = ir.Shape([*dims[:-1], rows])
    return whole


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
        is_cached = all(is_cache(value, opset, "linear") for value in (view.key, view.value))
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
    for index, value in ((KEY, view.key), (VALUE, view.value)):
        node.replace_input_with(index, _first(em, value, ROWS, count, name))
    mask = view.attn_mask
    if mask is not None:
        cut = em.once(("mask in use", mask, count), lambda: _first(em, mask, -1, count, name))
        node.replace_input_with(MASK, cut)
    em.insert_before(node)
    return True


def _first(em: Emitter, value: ir.Value, axis: int, count: ir.Value, name: str) -> ir.Value:
    """Return the first of what a value has along an axis."""
    found = em.op("Slice", value, [0], count, [axis], hint="rows_in_use")
    dims = dims_of(value)
    if dims is not None and dims[axis] != 1:  # one that is the same for all keys stays one
        kept = list(dims)
        kept[axis] = name
        found.shape = ir.Shape(kept)
    return found
