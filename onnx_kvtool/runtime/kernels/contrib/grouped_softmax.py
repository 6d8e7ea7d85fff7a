"""The arithmetic of GroupQueryAttention."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.kernels.contrib.grouped_cache import Lengths
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.layer import Reals

__all__ = ["Softmax", "attended"]

_Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Softmax:
    """How scores become weights.

    Attributes:
        scale: Factor of the scores.
        softcap: Limit of the scores; None for none.
        is_causal: Whether a query sees no later key.
        window: Keys that a query sees up to its own; None for all.
        sink: (H,), a score that takes weight and has no value; None for none.
    """

    scale: float
    softcap: float | None
    is_causal: bool
    window: int | None
    sink: Array | None


def attended(
    query: Array,
    keys: Array,
    values: Array,
    lengths: Lengths,
    bias: Array | None,
    softmax: Softmax,
    qk_output: int,
) -> tuple[Array, Array | None]:
    """Return the weighted values and the scores that are asked for.

    Args:
        query: (B, H, L, D).
        keys: (B, KV, buffer, D).
        values: (B, KV, buffer, D).
        lengths: Valid rows of the buffers.
        bias: (B or 1, H or 1, L, total); None for none.
        softmax: How scores become weights.
        qk_output: 0 for no scores, 1 for those before the softmax, 2 for those after it.

    Returns:
        (B, H, L, D), and (B, H, L, total) with 0 for hidden keys or None, of the type of the query.
    """
    batch, heads, length, _ = query.shape
    output = np.zeros(query.shape, query.dtype)
    shown = np.zeros((batch, heads, length, lengths.total), query.dtype) if qk_output else None
    for row in range(batch):
        valid, past, first = (
            int(each[row]) for each in (lengths.valid, lengths.past, lengths.first)
        )
        seen = _seen(length, past, valid, softmax)
        columns = slice(first, first + valid)
        added = None if bias is None else widened(bias[row % bias.shape[0], :, :, columns])
        with np.errstate(all="ignore"):
            scores = _scores(widened(query[row]), widened(keys[row, :, :valid]), softmax)
            scores = scores if added is None else scores + added
            weights = _weights(np.where(seen, scores, -np.inf), softmax.sink)
            if shown is not None:
                asked = weights if qk_output == 2 else np.where(seen, scores, 0)
                shown[row, :, :, :valid] = narrowed(asked, query.dtype)
            output[row] = narrowed(_grouped(weights, widened(values[row, :, :valid])), query.dtype)
    return output, shown


def _seen(length: int, past: int, valid: int, softmax: Softmax) -> _Bools:
    """Return where a query sees a key: (L, valid)."""
    keys, rows = np.arange(valid), past + np.arange(length)[:, None]
    seen = np.ones((length, valid), np.bool_)
    if softmax.is_causal:
        seen &= keys <= rows
    if softmax.window is not None:
        seen &= keys > rows - softmax.window
    return seen


def _scores(query: Reals, keys: Reals, softmax: Softmax) -> Reals:
    """Return the scores of one row of the batch: (H, L, valid)."""
    scores = _grouped(query, keys.swapaxes(-1, -2))
    scores *= query.dtype.type(softmax.scale)
    if softmax.softcap is None:
        return scores
    cap = query.dtype.type(softmax.softcap)
    return np.asarray(np.tanh(scores / cap) * cap)


def _grouped(rows: Reals, shared: Reals) -> Reals:
    """Return (H, L, n) times (KV, n, m), each of which serves H / KV heads: (H, L, m)."""
    heads, length, width = rows.shape
    groups = shared.shape[0]
    product = rows.reshape(groups, heads // groups * length, width) @ shared
    return np.asarray(product.reshape(heads, length, shared.shape[-1]))


def _weights(scores: Reals, sink: Array | None) -> Reals:
    """Return the softmax over the keys, 0 where a score is minus infinity: (H, L, valid)."""
    greatest = scores.max(axis=-1, keepdims=True)
    extra = None if sink is None else widened(sink)[:, None, None].astype(scores.dtype)
    if extra is not None:
        greatest = np.maximum(greatest, extra)
    # A row in which no key is seen has no greatest score, and shares nothing out.
    greatest = np.where(np.equal(greatest, -np.inf), greatest.dtype.type(0), greatest)
    raised = np.exp(scores - greatest)
    total = raised.sum(axis=-1, keepdims=True)
    if extra is not None:
        total = total + np.exp(extra - greatest)
    return np.asarray(np.divide(raised, total, out=np.zeros_like(raised), where=total != 0))
