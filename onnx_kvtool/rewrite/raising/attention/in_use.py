"""Attention over whole caches, made to read the rows in use.

    Attention(Q, K, V, mask, nonpad_kv_seqlen=n)
      ->  m = ReduceMax(n)
          Attention(Q, Slice(K, 0, m), Slice(V, 0, m), Slice(mask, 0, m), nonpad_kv_seqlen=n)

where K and V are what a TensorScatter writes. Rows from `m` on are hidden from all sequences by
`nonpad_kv_seqlen`, also where `is_causal` counts from it, so that the result is the same.
onnxruntime 1.32.0 computes scores for hidden rows as well: a step takes as long as one at full
caches.
"""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter, ScopedValues
from onnx_kvtool.ops.attention import Attention
from onnx_kvtool.ops.tensor_scatter import TensorScatter
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["WHY_IN_USE", "WHY_IN_USE_GROUPED", "WHY_WHOLE", "read_in_use"]

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

_ROWS = 2
_KEY, _VALUE, _MASK = 1, 2, 3


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
    if not is_cached or count is None or view.past_key is not None:
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
        node.replace_input_with(_MASK, cut)
    graph = node.graph
    assert graph is not None
    graph.insert_before(node, em.commit())
    return True


def _is_cache(value: ir.Value, opset: int) -> bool:
    scattered = value.producer()
    if scattered is None or scattered.op_type != "TensorScatter" or scattered.domain != "":
        return False
    scatter = TensorScatter(scattered, opset)
    rank = scatter.rank
    return rank == 4 and scatter.mode == "linear" and scatter.axis % rank == _ROWS


def _first(em: Emitter, value: ir.Value, axis: int, count: ir.Value, name: str) -> ir.Value:
    """Return the first of what a value has along an axis."""
    dtype = value.dtype or ir.DataType.UNDEFINED
    first, axes = em.constant([0], "first"), em.constant([axis], "axes")
    found = em.op("Slice", value, first, count, axes, dtype=dtype, hint="rows_in_use")
    dims = dims_of(value)
    if dims is not None and dims[axis] != 1:  # one that is the same for all keys stays one
        kept = list(dims)
        kept[axis] = name
        found.shape = ir.Shape(kept)
    return found
