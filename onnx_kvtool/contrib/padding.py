"""What hides keys in the attention operators of `com.microsoft`, as one mask."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.heads import Tokens, dim_of, number, over_queries
from onnx_kvtool.contrib.rule import Builder
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast, unsqueeze
from onnx_kvtool.emit.result import Refusal
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["added"]

_I, _B = ir.DataType.INT64, ir.DataType.BOOL
_FILTER = -10000.0


def added(
    view: NodeView,
    em: Emitter,
    tokens: Tokens,
    mask: ir.Value | None,
    total: ir.Value,
    dtype: ir.DataType,
) -> ir.Value | None:
    """Return what is added to the scores, (B or 1, H or 1, L, T); None for nothing.

    Args:
        view: The node, of which `attention_bias` and `mask_filter_value` are read.
        em: Where to build.
        tokens: The new rows.
        mask: Which keys are valid: (B,) and (2 B,), where they end and begin, (B, T) or (B, L, T).
        total: T: (), int64.
        dtype: That of the scores.

    Raises:
        Refusal: For another mask, or one of which the rank is unknown.
    """
    has_bias = any(formal.name == "attention_bias" for formal in view.facts.inputs)
    bias = view.input("attention_bias") if has_bias else None
    if mask is None:
        return bias
    op, filter_value = Builder(em, dtype), view.attribute("mask_filter_value")
    least = filter_value if isinstance(filter_value, float) else _FILTER
    rank = len(dims_of(mask) or ())
    key = ("padding", mask, total, dtype, least, tokens.length)

    def build() -> ir.Value:
        padded = cast(em, _is_padding(view, em, tokens, mask, total), dtype)
        hidden = op("Mul", padded, number(em, least, dtype, "mask_filter_value"), hint="padding")
        return hidden if rank == 3 else over_queries(em, hidden, tokens)

    hiding = em.once(key, build)
    return hiding if bias is None else op("Add", bias, hiding, hint="hiding")


def _is_padding(
    view: NodeView, em: Emitter, tokens: Tokens, mask: ir.Value, total: ir.Value
) -> ir.Value:
    """Return True where a key is padding: (B, 1, 1 or L, T)."""
    dims = dims_of(mask)
    if dims is None or len(dims) not in (1, 2, 3):
        code = "unknown-rank" if dims is None else "contrib-form"
        what = "unknown" if dims is None else str(len(dims))
        raise Refusal(
            code,
            f"the rank of the mask `{mask.name}` of `{view.node.op_type}` is {what}, expected 1 to "
            "3",
            help="declare its shape" if dims is None else None,
        )
    if len(dims) > 1:
        zero = em.constant(np.array(0, (mask.dtype or ir.DataType.INT32).numpy()), "zero")
        valid = em.op("Greater", mask, zero, dtype=_B)
        axes = [1, 2] if len(dims) == 2 else [1]
        return unsqueeze(em, em.op("Not", valid, dtype=_B), axes)
    columns = em.op("Range", em.constant(0), total, em.constant(1), hint="columns")
    ends, starts = _ends(view, em, tokens, mask)
    shape = em.constant([-1, 1, 1, 1], "shape")
    behind = em.op("Less", columns, em.op("Reshape", ends, shape), dtype=_B)
    padding = em.op("Not", behind, dtype=_B)
    if starts is None:
        return padding
    before = em.op("Less", columns, em.op("Reshape", starts, shape), dtype=_B)
    return em.op("Or", padding, before, dtype=_B)


def _ends(
    view: NodeView, em: Emitter, tokens: Tokens, mask: ir.Value
) -> tuple[ir.Value, ir.Value | None]:
    """Return the keys behind the last valid one of each sequence, and the first valid one."""
    wide = cast(em, mask, _I)
    count, batch = dim_of(mask, 0), dim_of(tokens.query, 0)
    if count is not None and count == batch:
        return wide, None
    has_starts = view.node.op_type in ("Attention", "QAttention")
    are_known = isinstance(count, int) and isinstance(batch, int)
    if not has_starts and not are_known:
        return wide, None
    if has_starts and isinstance(count, int) and isinstance(batch, int) and count == 2 * batch:
        halves = em.multi("Split", wide, attributes={"axis": 0, "num_outputs": 2}, dtypes=(_I, _I))
        return halves[0], halves[1]
    if are_known:
        raise Refusal(
            "contrib-form",
            f"the mask `{mask.name}` of `{view.node.op_type}` has {count} elements, expected "
            f"{batch}, the batch, which is the only one that has a standard form",
        )
    raise Refusal(
        "unknown-size",
        f"whether `{mask.name}` says where the keys of each sequence end, or where they begin too, "
        "follows from its size, which is unknown",
        help="declare its shape, by the name of the batch dimension",
    )
