"""RotaryEmbedding-23, for opsets below 23."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.analysis.dims import dims_of
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.emit import Emitter
from onnx_kvtool.rewrite.lowering.context import LoweringContext, Replacement
from onnx_kvtool.rewrite.lowering.forms import unsqueeze

__all__ = ["lower_rotary_embedding_23"]

_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)


def lower_rotary_embedding_23(
    context: LoweringContext, node: ir.Node, em: Emitter
) -> Replacement | None:
    """Rotate the halves of the first R elements of each head; the others stay.

        cos, sin   = Unsqueeze(Gather(cache, position_ids))  # (B, L, 1, R / 2), for all layers
        x1, x2, x3 = Split(X)                                # R / 2, R / 2 and the rest
        Y          = Concat(cos * x1 - sin * x2, sin * x1 + cos * x2, x3)

    X is (B, H, L, D), or (B, L, H * D), which is seen as (B, L, H, D). The order of the arithmetic
    is that of the schema's body, which computes the tables anew for each node.

    Returns:
        None, for the schema's body, where the halves are interleaved, or the head size, R or the
        width of the tables is no number.
    """
    view = NodeView(node, context.opset_of(node))
    x, dims = view.required("X"), dims_of(view.required("X"))
    if x.dtype not in _FLOATS or dims is None or len(dims) not in (3, 4):
        return None
    if view.integer("interleaved") or not isinstance(dims[-1], int):
        return None
    heads = view.integer("num_heads") if len(dims) == 3 else 1
    if heads <= 0 or dims[-1] % heads:
        return None
    size = dims[-1] // heads
    rotated = view.integer("rotary_embedding_dim") or size
    tables = [
        _table(em, view, name, rotated, 2 if len(dims) == 3 else 1)
        for name in ("cos_cache", "sin_cache")
    ]
    cos, sin = tables
    if cos is None or sin is None or rotated % 2 or not 0 < rotated <= size:
        return None

    def op(op_type: str, *inputs: ir.Value, hint: str) -> ir.Value:
        return em.op(op_type, *inputs, dtype=x.dtype or ir.DataType.UNDEFINED, hint=hint)

    split = x
    if len(dims) == 3:
        split = op("Reshape", x, em.constant([0, 0, heads, size], "shape"), hint="heads")
    parts = _parts(em, split, [rotated // 2, rotated // 2, size - rotated], x.dtype)
    first, second = parts[0], parts[1]
    real = op(
        "Sub",
        op("Mul", cos, first, hint="cos_x1"),
        op("Mul", sin, second, hint="sin_x2"),
        hint="real",
    )
    imaginary = op(
        "Add",
        op("Mul", sin, first, hint="sin_x1"),
        op("Mul", cos, second, hint="cos_x2"),
        hint="imaginary",
    )
    joined = em.op(
        "Concat", real, imaginary, *parts[2:], attributes={"axis": -1}, dtype=x.dtype, hint="joined"
    )
    if len(dims) == 3:
        joined = op("Reshape", joined, em.constant([0, 0, dims[-1]], "shape"), hint="rotated")
    return Replacement((joined,))


def _table(
    em: Emitter, view: NodeView, name: str, rotated: int, heads_axis: int
) -> ir.Value | None:
    """Return cosines or sines with a dimension for the heads; None for a width other than R / 2."""
    table, positions = view.required(name), view.input("position_ids")
    dims = dims_of(table)
    if dims is None or dims[-1] != rotated // 2 or table.dtype is None:
        return None
    dtype = table.dtype

    def build() -> ir.Value:
        rows = table if positions is None else em.op("Gather", table, positions, dtype=dtype)
        return unsqueeze(em, rows, [heads_axis], hint=name)

    return em.once(("rotary table", table, positions, heads_axis), build)


def _parts(
    em: Emitter, value: ir.Value, sizes: list[int], dtype: ir.DataType | None
) -> tuple[ir.Value, ...]:
    """Split the last axis into parts of these sizes; a part of size 0 is left out."""
    sizes = [n for n in sizes if n]
    dtypes = [dtype or ir.DataType.UNDEFINED] * len(sizes)
    if em.opset >= 13:
        lengths = em.constant(sizes, "split")
        return em.multi("Split", value, lengths, attributes={"axis": -1}, dtypes=dtypes)
    return em.multi("Split", value, attributes={"axis": -1, "split": sizes}, dtypes=dtypes)
