"""Which keys each query of Attention sees, as numbers that are added to the scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.attention.operands import Operands
from onnx_kvtool.runtime.kernels.elementwise.precision import widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.checks import check_broadcasts, check_shape
from onnx_kvtool.runtime.kernels.normalization.precision import Reals

__all__ = ["additive_bias", "check_nonpad", "mask_23", "mask_24"]

_Bools = npt.NDArray[np.bool_]


def mask_23(attn_mask: Array, operands: Operands) -> Array:
    """Return the mask of Attention-23, which broadcasts to (B, H, L, S).

    Raises:
        KernelError: If it does not broadcast.
    """
    shape = operands.scores_shape
    if attn_mask.ndim == 0:
        attn_mask = attn_mask.reshape(1)
    check_broadcasts("attn_mask", attn_mask.shape, "Q K^T", shape)
    return attn_mask


def mask_24(
    attn_mask: Array,
    operands: Operands,
    nonpad_kv_seqlen: Array | None,
    warn: Callable[[str], None],
) -> Array:
    """Return the mask of Attention-24 and later, padded to the length of the keys.

    A last dimension below S is padded with False or minus infinity. The text lets a last dimension
    of 1 be both broadcast and padded; the function body of the schema (onnx 1.23.2) pads it, and so
    does this, with a warning.

    Raises:
        KernelError: If it does not broadcast to (B, H, L, S) then; if it is shorter than the
            greatest of `nonpad_kv_seqlen`.
    """
    total = operands.scores_shape[-1]
    if attn_mask.ndim == 0 or attn_mask.shape[-1] >= total:
        return mask_23(attn_mask, operands)
    length = attn_mask.shape[-1]
    longest = 0 if nonpad_kv_seqlen is None else int(nonpad_kv_seqlen.max(initial=0))
    if length < longest:
        raise KernelError(
            f"`attn_mask` has {length} keys (shape {attn_mask.shape}), expected at least "
            f"{longest}, the greatest of `nonpad_kv_seqlen`"
        )
    if length == 1:
        warn(
            f"`attn_mask` with shape {attn_mask.shape} is padded to {total} keys, of which only "
            "the first is seen; its last dimension is not broadcast"
        )
    hidden = False if attn_mask.dtype == np.bool_ else -np.inf
    padded = np.full((*attn_mask.shape[:-1], total), hidden, _mask_type(attn_mask))
    padded[..., :length] = attn_mask
    return mask_23(padded, operands)


def additive_bias(
    operands: Operands,
    attn_mask: Array | None,
    nonpad_kv_seqlen: Array | None,
    is_causal: bool,
    left: int,
    right: int,
) -> Reals | None:
    """Return what is added to the scores, 0 and minus infinity but for a mask of numbers.

    A query i stands at i + offset among the keys; offset is P with an internal cache,
    nonpad_kv_seqlen - L with an external one, and 0 without. It sees no keys behind itself if
    causal, none beyond the windows, none behind the valid ones, and none that the mask hides.

    Args:
        operands: Queries and keys.
        attn_mask: Broadcasts to (B, H, L, S); True where a key is seen, or numbers, which are
            rounded to the element type of the query as in the schema's function body.
        nonpad_kv_seqlen: (B,), int64, valid keys of each row.
        is_causal: Whether later keys are hidden.
        left: Keys before a query that it sees, -1 for all.
        right: Keys after a query that it sees, -1 for all.

    Returns:
        Broadcasts to (B, H, L, S); None when every query sees every key.

    Raises:
        KernelError: If `nonpad_kv_seqlen` is given with an internal cache, is of another shape, or
            outside 0 to S; if a window is below -1.
    """
    _check_windows(left, right)
    if nonpad_kv_seqlen is not None:
        check_nonpad(nonpad_kv_seqlen, operands)
    allowed = _allowed(operands, nonpad_kv_seqlen, is_causal, left, right)
    dtype = widened(operands.query[:0]).dtype
    if attn_mask is None:
        return None if allowed is None else _as_bias(allowed, dtype)
    if attn_mask.dtype == np.bool_:
        seen: _Bools = attn_mask.astype(np.bool_, copy=False)
        return _as_bias(seen if allowed is None else seen & allowed, dtype)
    numbers = widened(attn_mask.astype(operands.query.dtype, copy=False))
    return numbers if allowed is None else numbers + _as_bias(allowed, dtype)


def _allowed(
    operands: Operands, nonpad: Array | None, is_causal: bool, left: int, right: int
) -> _Bools | None:
    """Return where a query may see a key, the mask aside: (B or 1, 1, L or 1, S)."""
    _, _, length, total = operands.scores_shape
    offset: Any = operands.past or 0
    first = offset
    valid = None if nonpad is None else nonpad.reshape(-1, 1, 1, 1).astype(np.int64)
    if valid is not None:
        offset = valid - length
        first = int(offset.min(initial=total))
        if first + length == total:  # as in a decode step, after padding has been left out
            valid = None
    # The last key stands at total - 1, and a query there sees all before it.
    is_causal = is_causal and first < total - 1
    keys = np.arange(total)
    conditions: list[_Bools] = []
    if is_causal or left >= 0 or right >= 0:
        rows = np.arange(length).reshape(1, 1, length, 1) + offset
        if is_causal:
            conditions.append(keys <= rows)
        # No window reaches further than all queries and keys; a greater one could overflow.
        reach = total + length
        if left >= 0:
            conditions.append(keys >= rows - min(left, reach))
        if right >= 0:
            conditions.append(keys <= rows + min(right, reach))
    if valid is not None:
        conditions.append(keys < valid)
    if not conditions:
        return None
    allowed = conditions[0]
    for condition in conditions[1:]:
        allowed = allowed & condition
    return allowed


def _as_bias(allowed: _Bools, dtype: np.dtype[Any]) -> Reals:
    return np.asarray(np.where(allowed, dtype.type(0), dtype.type(-np.inf)))


def _mask_type(mask: Array) -> npt.DTypeLike:
    """Return the type of a padded mask: integers have no infinity."""
    return np.float64 if mask.dtype.kind in "iu" else mask.dtype


def _check_windows(left: int, right: int) -> None:
    for name, size in (("left_window_size", left), ("right_window_size", right)):
        if size < -1:
            raise KernelError(f"`{name}` is {size}, expected 0 or more, or -1 for no limit")


def check_nonpad(nonpad: Array, operands: Operands) -> None:
    """Check the counts of valid keys.

    Raises:
        KernelError: If they are given with an internal cache, are not (B,), or are outside 0 to S.
    """
    batch, _, _, total = operands.scores_shape
    if operands.past is not None:
        raise KernelError(
            "`nonpad_kv_seqlen` is given together with `past_key`",
            help="pass the whole cache as `K` and `V`, or leave `nonpad_kv_seqlen` out",
        )
    check_shape("nonpad_kv_seqlen", nonpad.shape, (batch,), "one count for each batch row")
    for row, count in enumerate(nonpad.tolist()):
        if not 0 <= count <= total:
            raise KernelError(
                f"`nonpad_kv_seqlen`[{row}] is {count}, expected 0 to {total}: the rows of `K`"
            )
