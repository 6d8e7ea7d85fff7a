"""Attention as one fused operator, and all heads of a group together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter, Replacement
from onnx_kvtool.emit.forms import one_shape, positions, size
from onnx_kvtool.ops.operators import Attention
from onnx_kvtool.rewrite.lowering.attention.mask import (
    Window,
    allowed_keys,
    mask_covers,
    mask_fits,
    padded,
)
from onnx_kvtool.symbolic.dimensions import Dim, dim_of

# Attention kept fused, with an explicit mask in place of inputs that the target lacks.
#
# Matches
#     Y = Attention(Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen) <is_causal, windows>
#
# Emits
#     seen = column < limit(nonpad_kv_seqlen, is_causal, windows)   # (B or 1, 1, L, S), bool
#     Y = Attention(Q, K, V, seen and attn_mask, past_key, past_value) <is_causal=0>
#
# The kernel is the same and the result is equal bit for bit (measured in onnxruntime 1.31.1).
# Rows that see no key are zero by the text of onnx 1.23.2; onnxruntime before 1.28 gives NaN or
# the mean.


_KEPT = (
    "kv_num_heads",
    "q_num_heads",
    "qk_matmul_output_mode",
    "scale",
    "softcap",
    "softmax_precision",
)


def keep_with_mask(view: Attention, em: Emitter) -> Replacement | None:
    """Emit Attention with the window written out as a mask.

    Returns:
        None for an internal cache, an unknown rank, a user's mask of another form than the scores,
        and where the target has all that there is.
    """
    if view.rank not in (3, 4) or view.past_key is not None:
        return None
    dtype = view.query.dtype
    window = Window(view, view.key, 1 if view.rank == 3 else 2)
    mask = view.attn_mask
    is_short = mask is not None and not mask_covers(mask, window.total)
    if dtype is None or not (window.hides or is_short):
        return None
    if mask is not None and not mask_fits(mask, dtype):
        return None
    if mask is not None and is_short:
        if not view.pads_mask:
            return None
        mask = padded(em.sharing, mask, window, dtype)
    seen = _seen_through(em.sharing, window, mask, dtype) if window.hides else mask
    attributes = {
        name: view.node.attributes[name].value for name in _KEPT if name in view.node.attributes
    }
    names = [output.name for output in view.node.outputs]
    dtypes = [output.dtype or dtype for output in view.node.outputs]
    outputs = em.multi(
        "Attention", view.query, view.key, view.value, seen, attributes=attributes, dtypes=dtypes
    )
    kept = tuple(o if name else None for o, name in zip(outputs, names, strict=True))
    return Replacement(kept, via="mask")


def _seen_through(
    em: Emitter, window: Window, mask: ir.Value | None, dtype: ir.DataType
) -> ir.Value:
    """Return what the window and the user's mask let a query see, one value for all layers."""
    seen, view = allowed_keys(em, window), window.view
    if not view.is_causal and view.left_window < 0 and view.right_window < 0:
        # One row would broadcast; kernels ask for all of them.
        rows = positions(em, view.query, window.query_axis, place=2, rank=4)
        every = em.op("Less", [-1], rows, hint="every_row")
        seen = em.op("And", seen, every, hint="is_seen")
    if mask is None:
        return seen
    if mask.dtype == ir.DataType.BOOL:
        return em.op("And", seen, mask, hint="is_seen")
    mask = one_shape(em, mask, seen, (dim_of(view.query, 0), 1, window.length, window.total))
    hidden = em.constant(np.array(-np.inf, dtype.numpy()), "minus_infinity")
    return em.op("Where", seen, mask, hidden, hint="bias")


# The shapes of scores whose query heads are rows of one operand for each key/value head.


_ALLOWS_ZERO = 14
"""First opset where a Reshape takes a size of 0 for what it is."""


@dataclass(frozen=True, slots=True)
class ScoreShapes:
    """What a Reshape of scores is given.

    Attributes:
        of: Returns (B, KV, G, L, width) or, with the rows of a group together, (B, KV, G * L,
            width), from `apart` and the width, None for S.
        has_zeros: Whether a 0 is a size, and not one of the operand.
    """

    of: Callable[[bool, int | None], ir.Value]
    has_zeros: bool


def shapes_together(em: Emitter, window: Window, kv_heads: int, group: int) -> ScoreShapes | None:
    """Return how scores of the heads of a group are put together and taken apart.

    Shapes that are computed at run time are made once for all layers.

    Returns:
        None where neither L nor S is a number above 0, and no Reshape tells a size of 0 from one
        that stays.
    """
    total, rows = (dim if isinstance(dim, int) else 0 for dim in (window.total, window.length))
    if total > 0 or rows > 0:

        def constant(apart: bool, width: int | None) -> ir.Value:
            heads, last = [kv_heads, group] if apart else [kv_heads], width or total
            if last > 0:
                return em.constant([0, *heads, -1, last], "shape")
            return em.constant([0, *heads, rows if apart else group * rows, -1], "shape")

        return ScoreShapes(constant, has_zeros=False)
    if em.opset < _ALLOWS_ZERO:
        return None
    em, query = em.sharing, window.view.query
    batch, length = (_vector(em, query, axis) for axis in (0, window.query_axis))
    keys = _vector(em, window.keys, window.key_axis, window.total)

    def computed(apart: bool, width: int | None) -> ir.Value:
        heads, last = [kv_heads, group] if apart else [kv_heads], [width] if width else keys
        middle = length if apart else em.op("Mul", length, [group], hint="rows")
        hint = "apart" if apart else "together"
        return em.op("Concat", batch, heads, middle, last, axis=0, hint=hint)

    return ScoreShapes(computed, has_zeros=True)


def _vector(em: Emitter, value: ir.Value, axis: int, dim: Dim = None) -> ir.Value:
    """Return a size as a vector of one."""
    return em.op("Reshape", size(em, value, axis, dim), [1], hint="size")
