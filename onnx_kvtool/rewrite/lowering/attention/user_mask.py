"""The user's `attn_mask`, where it can be combined with the window as it is."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.symbolic.dims import Dim, dims_of

__all__ = ["mask_fits"]


def mask_fits(mask: ir.Value, total: Dim, dtype: ir.DataType, *, per_head: bool) -> bool:
    """Return whether a mask has a known form that needs no padding.

    Args:
        mask: Broadcasts to (B, H, L, S); its last dimension may be shorter than S by the schema.
        total: S.
        dtype: Element type of the scores; the mask must be of it, or bool.
        per_head: Whether a mask that differs between heads fits.
    """
    dims = dims_of(mask)
    if dims is None or not 2 <= len(dims) <= 4 or mask.dtype not in (dtype, ir.DataType.BOOL):
        return False
    if total is None or dims[-1] != total:
        return False  # it may be shorter: only an equal number or name is surely as long
    return per_head or len(dims) == 2 or dims[-3] == 1
