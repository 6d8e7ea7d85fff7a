"""Attention over windows of a fixed size, made to read circular caches as they lie.

    Attention(Q, Gather(K, order), Gather(V, order), mask)   # order = (arange(W) + n) mod W
      ->  Attention(Q, K, V, Gather(mask, (arange(W) - n) mod W))

Attention is a sum over keys, whatever their order, so that the columns of the mask are put into the
order of the rows, in place of the rows into that of the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.constants import Folder
from onnx_kvtool.emit.emitter import Emitter, ScopedValues
from onnx_kvtool.ops.attention import Attention
from onnx_kvtool.ops.tensor_scatter import TensorScatter
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["columns", "is_any_order", "read_rotated"]

_ROWS = 2
_KEY, _VALUE, _MASK = 1, 2, 3


@dataclass(frozen=True, slots=True)
class _Rotated:
    """All rows of a circular cache in order.

    Attributes:
        cache: The cache after the step, (B, KV, W, D).
        rows: W.
        order: Where the rows stand, (W,).
        oldest: The row of the first, modulo W: (1,).
    """

    cache: ir.Value
    rows: int
    order: ir.Value
    oldest: ir.Value


def read_rotated(node: ir.Node, opset: int, scope: ScopedValues) -> Sequence[ir.Node]:
    """Let an Attention over windows of a fixed size read them as they lie.

    What it reads of them are all rows in order, `Gather(cache, (arange(W) + oldest) mod W)`.

    Returns:
        The nodes that may be read by nobody now.
    """
    try:
        view = Attention(node, opset)
        parts = [_rotated(value, opset) for value in (view.key, view.value)]
    except MalformedNode:
        return ()
    keys, values = parts
    if keys is None or values is None or not is_any_order(view):
        return ()
    if (keys.order, keys.rows) != (values.order, values.rows):
        return ()
    mask = view.attn_mask
    if mask is not None and (dims_of(mask) or (None,))[-1] != keys.rows:
        return ()
    em = Emitter(scope, opset, node.name or "kvtool/attention")
    if mask is not None:
        key = ("turned mask", mask, keys.order)
        turned = em.once(key, lambda: columns(mask, keys.rows, keys.oldest, em))
        node.replace_input_with(_MASK, turned)
    before = [p for value in (view.key, view.value) if (p := value.producer()) is not None]
    node.replace_input_with(_KEY, keys.cache)
    node.replace_input_with(_VALUE, values.cache)
    graph = node.graph
    assert graph is not None
    graph.insert_before(node, em.commit())
    return before


def _rotated(value: ir.Value, opset: int) -> _Rotated | None:
    """Return the circular cache of which a value has all rows, `(arange(W) + oldest) mod W`."""
    node = value.producer()
    if node is None or node.op_type != "Gather" or node.domain != "":
        return None
    view = NodeView(node, opset)
    cache, order = view.required("data"), view.required("indices")
    scattered, turned = cache.producer(), order.producer()
    if scattered is None or scattered.op_type != "TensorScatter" or scattered.domain != "":
        return None
    rank, dims = len(dims_of(cache) or ()), dims_of(cache)
    scatter = TensorScatter(scattered, opset)
    if rank != 4 or dims is None or scatter.mode != "circular":
        return None
    if view.integer("axis") % rank != _ROWS or scatter.axis % rank != _ROWS:
        return None
    rows = dims[_ROWS]
    if turned is None or turned.op_type != "Mod" or not isinstance(rows, int):
        return None
    if len(turned.inputs) != 2 or turned.inputs[0] is None:
        return None
    added = turned.inputs[0].producer()
    folder = Folder()
    if added is None or added.op_type != "Add" or len(added.inputs) != 2:
        return None
    if _numbers(folder, turned.inputs[1]) != [rows]:
        return None
    counted, oldest = added.inputs
    if _numbers(folder, counted) != list(range(rows)) or oldest is None:
        return None
    return _Rotated(cache, rows, order, oldest) if dims_of(oldest) in ((1,), None, ()) else None


def _numbers(folder: Folder, value: ir.Value | None) -> list[int] | None:
    found = folder.integers(value)
    return None if found is None else [int(number) for number in found.ravel()]


def is_any_order(view: Attention) -> bool:
    """Return whether only a mask says which key is which."""
    if view.is_causal or view.nonpad_kv_seqlen is not None or view.past_key is not None:
        return False
    return max(view.left_window, view.right_window) < 0 and "qk_matmul_output" not in view.outputs


def columns(mask: ir.Value, capacity: int, oldest: ir.Value, em: Emitter) -> ir.Value:
    """Return a mask whose column of each row is number `(row - oldest) mod capacity`.

    Args:
        mask: (..., capacity).
        capacity: Rows of the cache.
        oldest: A number that is, modulo the capacity, the row of the first column: (1,), int64.
        em: Where to build.
    """
    slots = em.constant(np.arange(capacity, dtype=np.int64), "rows")
    size = em.constant([capacity])
    places = em.op("Mod", em.op("Sub", slots, oldest, hint="behind"), size, hint="columns")
    dtype = mask.dtype or ir.DataType.UNDEFINED
    found = em.op("Gather", mask, places, attributes={"axis": -1}, dtype=dtype, hint="mask")
    dims = dims_of(mask)
    if dims is not None:
        found.shape = ir.Shape([*dims[:-1], capacity])
    return found
