"""Attention-23/24/25 lowered: kept with an explicit mask where the target has it, else computed.

The schema's own body repeats K and V for grouped heads and builds the mask anew in each layer; a
decode step of a medium decoder then takes 1.6 times the native one in onnxruntime. Here the query
heads are grouped over the key/value heads by a reshape of the query, so that K and V are never
repeated; the scale is multiplied into the query; and the mask is built once and shared by all
layers. What this form does not cover falls back to the schema's body. `rows_stay` in `mask.py` says
how caches (B, S, KV * D) are read. Only models for onnxruntime get an If for it: its cost in other
runtimes was not measured.
"""

from __future__ import annotations

from onnx_kvtool.emit.emitter import Emitter, Refusal, Replacement
from onnx_kvtool.ops.operators import Attention
from onnx_kvtool.ops.view import MalformedNode
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.rewrite.lowering.attention.fused import keep_with_mask
from onnx_kvtool.rewrite.lowering.attention.grouped_heads import grouped_attention
from onnx_kvtool.symbolic.dimensions import dims_of


def lower_attention_25(rewritten: Rewritten, em: Emitter) -> Replacement | None:
    """Rewrite one Attention; None leaves it to the schema's body.

    Refuses values of another element type than the queries, which the body multiplies as they are.
    """
    view = Attention(rewritten.node, rewritten.opset)
    _check_ranks(view)
    if em.opset >= 23 and rewritten.context.keep_fused:
        return keep_with_mask(view, em)
    of_query, of_value = view.query.dtype, view.value.dtype
    if of_query is not None and of_value is not None and of_query != of_value:
        raise Refusal(
            "element-type",
            f"the queries are {of_query.name} and the values {of_value.name}, and no product takes "
            f"both at opset {em.opset}",
            help="cast the values in front of the node",
        )
    limits = rewritten.context.limits
    is_measured = limits is not None and limits.release.runtime == "onnxruntime"
    may_branch = is_measured and rewritten.context.options.branches
    return grouped_attention(view, em, may_branch=may_branch)


def _check_ranks(view: Attention) -> None:
    pasts = {"past_key": view.past_key, "past_value": view.past_value}
    for name, operand in {"K": view.key, "V": view.value, **pasts}.items():
        wanted = 4 if name in pasts else view.rank
        dims = None if operand is None else dims_of(operand)
        if dims is not None and wanted is not None and len(dims) != wanted:
            raise MalformedNode(
                "rank-mismatch", f"`{name}` has rank {len(dims)}, expected {wanted}"
            )
