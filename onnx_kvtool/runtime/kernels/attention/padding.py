"""Leaving out the keys behind the valid ones of a cache, where nothing shows it.

A decode step sees few rows of a cache that is mostly empty. The text has it compute the scores of
all rows, hide those behind the valid ones by adding minus infinity, and weigh their values by 0. As
long as those scores and values are finite, the result is that without them, and to find out that
they are takes a quarter of the time of the computation.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from onnx_kvtool.runtime.kernels.attention.operands import Operands
from onnx_kvtool.runtime.kernels.elementwise.precision import is_narrow
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["without_padding"]

_MARGIN = 4.0
"""By how much rounding may exceed a bound of the exact score, and more."""


def without_padding(
    operands: Operands, attn_mask: Array | None, nonpad_kv_seqlen: Array, scale: float
) -> tuple[Operands, Array | None]:
    """Return operands and mask without the keys that are padding in every row of the batch.

    Attention over the result is Attention over all, but for the rounding of sums. That is not so,
    and the arguments come back as they are, where a hidden score or value may be NaN or infinite,
    which the text lets through to the output; and for a mask of numbers, which may be so as well.

    Args:
        operands: The operands; their sizes fit each other.
        attn_mask: Broadcasts to (B, H, L, S); True where a key is seen, or numbers.
        nonpad_kv_seqlen: (B,), 0 to S: valid keys of each row.
        scale: Factor of the scores.
    """
    total = operands.scores_shape[-1]
    count = int(nonpad_kv_seqlen.max(initial=0))
    if count == total or (attn_mask is not None and attn_mask.dtype != np.bool_):
        return operands, attn_mask
    query, key = operands.query, operands.key
    bound = scale * _norm(query) * _norm(key[:, :, count:])
    # To numpy bfloat16 is no float; it has the range of float32, but for less than the margin.
    kind: Any = query.dtype if query.dtype.kind == "f" else np.float32
    limit = float(np.finfo(kind).max)
    # A comparison with NaN is false.
    if not bound * _MARGIN < limit or not math.isfinite(_norm(operands.value[:, :, count:])):
        return operands, attn_mask
    if attn_mask is not None and attn_mask.shape[-1] == total:
        attn_mask = attn_mask[..., :count]
    kept = dataclasses.replace(operands, key=key[:, :, :count], value=operands.value[:, :, :count])
    return kept, attn_mask


def _norm(rows: Array) -> float:
    """Return no less than the Euclidean norm of each row; infinity or NaN if an element is.

    Args:
        rows: (B, H, n, D).
    """
    if rows.size == 0:
        return 0.0
    if is_narrow(rows.dtype):
        # Without the sign, the bits of a 16-bit type sort as its magnitudes do, NaN last.
        bits = max(int(np.max(p.view(np.uint16) & np.uint16(0x7FFF))) for p in _pieces(rows))
        return float(np.uint16(bits).view(rows.dtype)) * math.sqrt(rows.shape[-1])
    with np.errstate(all="ignore"):
        return math.sqrt(sum(float(np.dot(piece, piece)) for piece in _pieces(rows)))


def _pieces(rows: Array) -> Iterator[Array]:
    """Yield the elements in flat arrays, which are views for caches of three or four dimensions."""
    for row in rows:
        turned = row.swapaxes(0, 1)  # heads lie inside the rows of a cache of three dimensions
        if turned.flags.c_contiguous:
            yield turned.reshape(-1)
        else:
            yield from (head.reshape(-1) for head in row)
