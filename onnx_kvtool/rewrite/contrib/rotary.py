"""RotaryEmbedding of `com.microsoft`, from which that of ONNX came."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.contrib.rule import only, refuse_value
from onnx_kvtool.rewrite.engine.emit import Emitter
from onnx_kvtool.rewrite.engine.rule import Refusal, Replacement
from onnx_kvtool.rewrite.lowering.sizes import positions, size
from onnx_kvtool.symbolic.dims import dims_of

__all__ = ["rotary_embedding"]


def rotary_embedding(view: NodeView, em: Emitter) -> Replacement:
    """Write RotaryEmbedding as RotaryEmbedding-23.

    One position alone is that of the first row. Without `num_heads` there are as many heads of
    twice the width of `cos_cache` as the last axis holds. Refuses packed batches, and a scale,
    which onnxruntime does not apply on a CPU.
    """
    refuse_value(view, "is_packed_batching", None, 0)
    refuse_value(view, "scale", None, 1.0)
    x, cos = view.required("input"), view.required("cos_cache")
    dims, table = dims_of(x), dims_of(cos)
    if dims is None:
        raise Refusal(
            "unknown-rank",
            f"the rank of `{x.name}`, 3 or 4 as its heads are joined or not, is unknown",
            help="declare its shape",
        )
    heads, part = view.attribute("num_heads") or 0, view.attribute("rotary_embedding_dim") or 0
    if len(dims) == 3 and not heads:
        width, half = dims[2], None if table is None else table[-1]
        if not isinstance(width, int) or not isinstance(half, int) or not half:
            raise Refusal(
                "unknown-size",
                "the number of heads of `RotaryEmbedding` follows from the last dimensions of "
                "`input` and `cos_cache`, which are unknown",
                help="declare their shapes",
            )
        heads = width // (2 * half)
    attributes = {
        "interleaved": 1 if view.attribute("interleaved") == 1 else 0,
        "rotary_embedding_dim": part,
        **({"num_heads": heads} if len(dims) == 3 else {}),
    }
    result = em.op(
        "RotaryEmbedding",
        x,
        cos,
        view.required("sin_cache"),
        _positions(view, em, x, len(dims)),
        attributes=attributes,
        dtype=x.dtype or ir.DataType.UNDEFINED,
    )
    return only(result)


def _positions(view: NodeView, em: Emitter, x: ir.Value, rank: int) -> ir.Value:
    """Return a position for each row of each batch: (B, L), int64."""
    given, dims = view.required("position_ids"), dims_of(x)
    known = dims_of(given)
    if known is None:
        raise Refusal(
            "unknown-rank",
            f"whether `{given.name}` is one position or one for each row is unknown",
            help="declare its shape",
        )
    if len(known) == 2:
        return given
    assert dims is not None
    axis = 1 if rank == 3 else 2
    rows = em.op("Add", positions(em, dims[axis], x, axis, place=1, rank=2), given)
    sizes = (size(em, dims[at], x, at) for at in (0, axis))
    flat = (em.op("Reshape", one, em.constant([1], "one")) for one in sizes)
    shape = em.op("Concat", *flat, attributes={"axis": 0})
    return em.op("Expand", rows, shape, hint="positions")
