"""What is added to the scores: the window and the user's mask as one value for all layers."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import reduce, unsqueeze, where
from onnx_kvtool.ops.attention import Attention
from onnx_kvtool.rewrite.lowering.attention.mask import Window, allowed_keys, empty_rows, padded
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["bias_of"]


def bias_of(
    em: Emitter,
    view: Attention,
    window: Window,
    dtype: ir.DataType,
    heads: tuple[int, int],
    *,
    is_short: bool,
) -> tuple[ir.Value | None, ir.Value | None]:
    """Return what is added to the scores, and True for rows that see no key.

    Args:
        em: Where to build.
        view: The Attention; its mask fits (see `mask_fits`).
        window: What hides keys beside the mask.
        dtype: Element type of the scores.
        heads: H and KV.
        is_short: Whether the mask may end before the keys do, and hides those behind it.

    Returns:
        (B or 1, 1 or H, L or 1, S or 1), and the same with S = 1, where H = KV; where heads are in
        groups (B or 1, 1, 1, ...), or (B or 1, KV, G, ...) for a mask that differs between heads.
        None for nothing to add, and where every row certainly sees a key.
    """
    mask = view.attn_mask
    if not window.hides and mask is None:
        return None, None
    key = (window.key if window.hides else None, mask, dtype)
    bias = em.once(
        ("attention bias", *key), lambda: _sum_of_masks(em, window, mask, dtype, is_short)
    )
    if mask is None:
        empty = empty_rows(em, window)
    else:
        empty = em.once(("attention empty rows", *key), lambda: _all_hidden(em, bias, dtype))
    if heads[0] == heads[1]:
        return bias, empty
    dims = dims_of(mask)
    is_per_head = dims is not None and len(dims) > 2 and dims[-3] == heads[0]
    grouped = [0, heads[1], heads[0] // heads[1], 0, 0] if is_per_head else None
    return _for_groups(em, bias, grouped), None if empty is None else _for_groups(
        em, empty, grouped
    )


def _for_groups(em: Emitter, value: ir.Value, shape: list[int] | None) -> ir.Value:
    """Return (B, 1, L, S) as (B, 1, 1, L, S); with a shape, (B, H, L, S) as (B, KV, G, L, S)."""

    def build() -> ir.Value:
        apart = unsqueeze(em, value, [2])
        if shape is None:
            return apart
        dtype = value.dtype or ir.DataType.UNDEFINED
        return em.op("Reshape", apart, em.constant(shape, "shape"), dtype=dtype)

    return em.once(("for groups", value, tuple(shape or ())), build)


def _sum_of_masks(
    em: Emitter, window: Window, mask: ir.Value | None, dtype: ir.DataType, is_short: bool
) -> ir.Value:
    if mask is not None and is_short:
        mask = padded(em, mask, window, dtype)
    elif mask is not None and mask.shape is not None and len(mask.shape) < 4:
        mask = unsqueeze(em, mask, range(4 - len(mask.shape)))
    seen = allowed_keys(em, window) if window.hides else None
    if mask is not None and mask.dtype == ir.DataType.BOOL:
        bool_ = ir.DataType.BOOL
        seen = mask if seen is None else em.op("And", seen, mask, dtype=bool_, hint="is_seen")
        mask = None
    if seen is None:
        assert mask is not None
        return mask
    nothing, hidden = (em.constant(np.array(n, dtype.numpy()), "number") for n in (0.0, -np.inf))
    bias = where(em, seen, nothing, hidden, hint="bias")
    return bias if mask is None else em.op("Add", bias, mask, dtype=dtype, hint="bias")


def _all_hidden(em: Emitter, bias: ir.Value, dtype: ir.DataType) -> ir.Value:
    most = reduce(em, "ReduceMax", bias, [-1])
    hidden = em.constant(np.array(-np.inf, dtype.numpy()), "number")
    return em.op("Equal", most, hidden, dtype=ir.DataType.BOOL, hint="empty_rows")
