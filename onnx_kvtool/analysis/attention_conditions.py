"""Conditions of `targets/runtimes.toml` that ask for forms of Attention, and of cache updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx_kvtool.analysis.element_conditions import type_of
from onnx_kvtool.ops.attention import Attention
from onnx_kvtool.ops.tensor_scatter import TensorScatter
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.symbolic.dims import Dim, contradict, dims_of

if TYPE_CHECKING:
    import onnx_ir as ir

    from onnx_kvtool.analysis.constants import Folder
    from onnx_kvtool.targets.release import Limit

__all__ = ["ATTENTION_CONDITIONS"]

_LONG_WAY = 100
"""Nodes from a shape back to what it is computed from."""


def _nonpad(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    return Attention(node, opset).nonpad_kv_seqlen is not None


def _causal_nonpad_rows(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    view = Attention(node, opset)
    return view.nonpad_kv_seqlen is not None and view.is_causal and _length(view.query) != 1


def _masked(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    view = Attention(node, opset)
    return view.attn_mask is not None or view.nonpad_kv_seqlen is not None


def _causal_single_row(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    view = Attention(node, opset)
    if not view.is_causal or view.nonpad_kv_seqlen is not None or view.past_key is not None:
        return False
    queries, keys = _length(view.query), _length(view.key)
    # With as many keys as queries, a single query has the one key that it may see.
    return queries is None or (queries != keys and (queries == 1 or isinstance(queries, str)))


def _masked_softcap(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    view = Attention(node, opset)
    return view.softcap != 0 and _hides_keys(view)


def _masked_score_output(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    view = Attention(node, opset)
    return (
        "qk_matmul_output" in view.outputs
        and view.integer("qk_matmul_output_mode") in limit.values
        and _hides_keys(view)
    )


def _short_mask(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Only a mask that is certainly short: the release fails loudly on one that turns out to be."""
    view = Attention(node, opset)
    dims = dims_of(view.attn_mask)
    if view.past_key is not None or not dims:
        return False
    return contradict(dims[-1], _length(view.key))


def _window(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    view = Attention(node, opset)
    return view.left_window >= 0 or view.right_window >= 0


def _computed_heads(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether heads are grouped in 4-D, and the shape of an operand is computed."""
    view = Attention(node, opset)
    dims = [dims_of(value) for value in (view.query, view.key)]
    if any(one is not None and len(one) == 3 for one in dims):
        return False  # attributes give the numbers
    query, key = (None if one is None else one[1] for one in dims)
    if isinstance(query, int) and query == key:
        return False
    before: list[ir.Value | None] = [view.query, view.key, view.value]
    steps = 0
    while before and steps < _LONG_WAY:
        value = before.pop()
        producer = None if value is None else value.producer()
        if producer is None:
            continue
        if producer.op_type == "Reshape":
            if folder.integers(producer.inputs[1]) is None:
                return True
        elif producer.op_type not in ("MatMul", "Gemm", "TensorScatter", "ScatterND"):
            before += producer.inputs
        steps += 1
    return bool(before)


def _uncounted_heads(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    """Whether a part of each head is rotated, of which the attributes do not say how many."""
    view = NodeView(node, opset)
    return bool(view.attribute("rotary_embedding_dim")) and not view.attribute("num_heads")


def _no_plain_4d(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    view = Attention(node, opset)
    if view.past_key is not None or view.past_value is not None or view.softcap != 0:
        return True
    if view.nonpad_kv_seqlen is not None or set(view.outputs) != {"Y"}:
        return True
    operands = [view.query, view.key, view.value]
    if view.attn_mask is not None:
        operands.append(view.attn_mask)
    return any(len(dims_of(value) or ()) != 4 for value in operands)


def _no_kv_cache_update(node: ir.Node, opset: int, limit: Limit, folder: Folder) -> bool:
    view = TensorScatter(node, opset)
    past, update = dims_of(view.past_cache), dims_of(view.update)
    if past is None or update is None or len(past) != 4 or len(update) != 4:
        return True
    return not (
        view.sequence_axis == 2
        and isinstance(past[2], int)
        and view.mode == "linear"
        and view.write_indices is not None
        and view.past_cache.is_graph_input()
        and view.present_cache.is_graph_output()
        and type_of(node) in limit.types
    )


def _hides_keys(view: Attention) -> bool:
    hides = view.is_causal or view.attn_mask is not None or view.nonpad_kv_seqlen is not None
    return hides or view.left_window >= 0 or view.right_window >= 0


def _length(value: ir.Value) -> Dim:
    """Return L of (B, H, L, D) or (B, L, H * D)."""
    dims = dims_of(value)
    return dims[-2] if dims is not None and len(dims) >= 2 else None


ATTENTION_CONDITIONS = (
    ("nonpad", _nonpad),
    ("causal-nonpad-rows", _causal_nonpad_rows),
    ("masked", _masked),
    ("causal-single-row", _causal_single_row),
    ("masked-softcap", _masked_softcap),
    ("masked-score-output", _masked_score_output),
    ("short-mask", _short_mask),
    ("window", _window),
    ("computed-heads", _computed_heads),
    ("uncounted-heads", _uncounted_heads),
    ("no-plain-4d", _no_plain_4d),
    ("no-kv-cache-update", _no_kv_cache_update),
)
"""Lines of `CONDITIONS` in `analysis/conditions.py`."""
