"""The operands, the bias and the weights of Attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from onnx_kvtool.core.words import counted
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.elementwise.binary import is_narrow, widened
from onnx_kvtool.runtime.kernels.kernel import Array, Bools, Dtype
from onnx_kvtool.runtime.kernels.normalization.layer import (
    Reals,
    check_broadcasts,
    check_shape,
    rounded,
)

# The operands of Attention in their four-dimensional form.


class Operands(NamedTuple):
    """Query, keys and values of one attention.

    Letters: B batch, H query heads, KV key/value heads, L query length, P past length, S total key
    length (past and new), D head size, E value head size.

    Attributes:
        query: (B, H, L, D).
        key: (B, KV, S, D), the past keys first.
        value: (B, KV, S, E), the past values first.
        past: P; None without an internal cache.
        is_flat: Whether the inputs had three dimensions, so that the output has as well.
    """

    query: Array
    key: Array
    value: Array
    past: int | None
    is_flat: bool

    @property
    def scores_shape(self) -> tuple[int, int, int, int]:
        """(B, H, L, S)."""
        batch, heads, length, _ = self.query.shape
        return batch, heads, length, self.key.shape[2]


def read_operands(
    Q: Array,
    K: Array,
    V: Array,
    past_key: Array | None,
    past_value: Array | None,
    q_num_heads: int | None,
    kv_num_heads: int | None,
) -> Operands:
    """Split the heads, put the past before the new keys, and check that all sizes agree.

    Raises:
        KernelError: If ranks differ or are neither 3 nor 4; if head counts are missing for three
            dimensions, do not divide the last one, or contradict four; if KV does not divide H; if
            batch, head sizes or lengths disagree; if only one of the past inputs is given.
    """
    rank = Q.ndim
    if rank not in (3, 4) or K.ndim != rank or V.ndim != rank:
        raise KernelError(
            f"`Q`, `K` and `V` have shapes {Q.shape}, {K.shape} and {V.shape}, expected three "
            "dimensions each, or four each"
        )
    heads = {"q_num_heads": q_num_heads, "kv_num_heads": kv_num_heads}
    if rank == 3:
        query = split_heads(Q, "Q", _given(heads, "q_num_heads"), "q_num_heads")
        key = split_heads(K, "K", _given(heads, "kv_num_heads"), "kv_num_heads")
        value = split_heads(V, "V", _given(heads, "kv_num_heads"), "kv_num_heads")
    else:
        query, key, value = Q, K, V
        for name, got in (("q_num_heads", Q.shape[1]), ("kv_num_heads", K.shape[1])):
            if heads[name] not in (None, got):
                raise KernelError(
                    f"`{name}` is {heads[name]}, but dimension 1 of four has "
                    f"{counted(got, 'head')}",
                    help=f"leave `{name}` out: it belongs to inputs of three dimensions",
                )
    _check_sizes(query, key, value)
    past = None
    if past_key is not None and past_value is not None:
        past = past_key.shape[2] if past_key.ndim == 4 else None
        key = _joined(past_key, key, "past_key", "K")
        value = _joined(past_value, value, "past_value", "V")
    elif past_key is not None or past_value is not None:
        given, missing = ("key", "value") if past_value is None else ("value", "key")
        raise KernelError(f"`past_{given}` is given without `past_{missing}`")
    if key.shape[2] != value.shape[2]:
        raise KernelError(
            f"`past_key` has {past} rows, expected as many as `past_value`: "
            f"{value.shape[2] - V.shape[-2]}"
        )
    return Operands(query, key, value, past, rank == 3)


def split_heads(values: Array, name: str, heads: int, attribute: str) -> Array:
    """Return (B, L, heads * size) as a view of shape (B, heads, L, size).

    Raises:
        KernelError: If `heads` is below 1 or does not divide the last dimension.
    """
    batch, length, width = values.shape
    if heads < 1 or width % heads:
        raise KernelError(
            f"`{attribute}` is {heads}, expected a divisor of {width}, the last dimension of "
            f"`{name}` with shape {values.shape}"
        )
    return values.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)


def _given(heads: dict[str, int | None], name: str) -> int:
    count = heads[name]
    if count is None:
        raise KernelError(f"`{name}` is missing, which three dimensions need")
    return count


def _check_sizes(query: Array, key: Array, value: Array) -> None:
    batch, heads, _, size = query.shape
    kv_heads, length = key.shape[1:3]
    if kv_heads == 0 or heads % kv_heads:
        raise KernelError(
            f"{counted(heads, 'head')} of `Q` cannot share {counted(kv_heads, 'head')} of `K` "
            "evenly"
        )
    check_shape("K", key.shape, (batch, kv_heads, length, size), "batch and head size of `Q`")
    expected = (batch, kv_heads, length, value.shape[3])
    check_shape("V", value.shape, expected, "batch, heads and length of `K`")


def _joined(past: Array, new: Array, past_name: str, name: str) -> Array:
    batch, heads, _, size = new.shape
    length = past.shape[2] if past.ndim == 4 else 0
    expected = (batch, heads, length, size)
    check_shape(past_name, past.shape, expected, f"(batch, kv_num_heads, any, size) of `{name}`")
    return np.concatenate([past, new], axis=2)


# The keys that each query of Attention sees, as a bias that is added to the scores.


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
            f"`attn_mask` with shape {attn_mask.shape} is padded to {total} keys, and only "
            "the first is visible; its last dimension is not broadcast"
        )
    hidden = False if attn_mask.dtype == np.bool_ else -np.inf
    padded = np.full(
        (*attn_mask.shape[:-1], total),
        hidden,
        np.float64 if attn_mask.dtype.kind in "iu" else attn_mask.dtype,
    )
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
    """Return the bias of the scores: 0 and minus infinity, or more if the mask has numbers.

    A query i is at place i + offset among the keys; offset is P with an internal cache,
    nonpad_kv_seqlen - L with an external one, and 0 without. It sees no later keys if causal, none
    outside of the windows (-1 has no limit), none after the valid ones, none that the mask hides.

    Numbers of the mask are rounded to the element type of the query, as in the schema's function
    body. The bias broadcasts to (B, H, L, S); it is None when every query sees every key.

    Raises:
        KernelError: If a window is below -1.
    """
    if left < -1 or right < -1:
        name, size = ("left", left) if left < -1 else ("right", right)
        raise KernelError(f"`{name}_window_size` is {size}, expected 0 or more, or -1 for no limit")
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
    """Return whether a query may see a key, without the mask: (B or 1, 1, L or 1, S)."""
    _, _, length, total = operands.scores_shape
    offset: Any = operands.past or 0
    first = offset
    valid = None if nonpad is None else nonpad.reshape(-1, 1, 1, 1).astype(np.int64)
    if valid is not None:
        offset = valid - length
        first = int(offset.min(initial=total))
        if first + length == total:  # as in a decode step, after padding has been left out
            valid = None
    # The last key is at total - 1, and a query there sees all before it.
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
    if valid is not None and not is_causal:  # the last query is the last valid key
        conditions.append(keys < valid)
    if not conditions:
        return None
    allowed = conditions[0]
    for condition in conditions[1:]:
        allowed = allowed & condition
    return allowed


def _as_bias(allowed: _Bools, dtype: Dtype) -> Reals:
    bias = np.zeros(allowed.shape, dtype)
    bias[~allowed] = -np.inf
    return bias


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


# Leaving out the padding of a cache, if that does not change the result.
#
# A decode step sees few rows of a cache that is mostly empty. By the text, the scores of all rows
# are computed, minus infinity is added to those of padding, and its values get a weight of 0. If
# these scores and values are finite, the result is the same without them. The check takes a quarter
# of the time of the computation.


_MARGIN = 4.0
"""Rounding may exceed a bound of the exact score by less than this factor."""


def without_padding(
    operands: Operands, attn_mask: Array | None, nonpad_kv_seqlen: Array, scale: float
) -> tuple[Operands, Array | None]:
    """Return operands and mask without the keys that are padding in every row of the batch.

    Attention over the result is Attention over all, except for the rounding of sums. The arguments
    are returned unchanged if a hidden score or value may be NaN or infinite, which reaches the
    output by the text, and if the mask has numbers, which may be so as well.
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
    kept = operands._replace(key=key[:, :, :count], value=operands.value[:, :, :count])
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
    return math.sqrt(sum(float(np.dot(piece, piece)) for piece in _pieces(rows)))


def _pieces(rows: Array) -> Iterator[Array]:
    """Yield the elements in flat arrays, which are views for caches of three or four dimensions."""
    whole = rows.swapaxes(1, 2)
    if whole.flags.c_contiguous:
        yield whole.reshape(-1)
        return
    for row in rows:
        turned = row.swapaxes(0, 1)  # heads lie inside the rows of a cache of three dimensions
        if turned.flags.c_contiguous:
            yield turned.reshape(-1)
        else:
            yield from (head.reshape(-1) for head in row)


# The arithmetic of Attention: scores, softmax, and weighted values.


_FEW = 32
"""Most queries of a group where BLAS prefers the keys as rows of the product."""


def raw_scores(operands: Operands, scale: float) -> Reals:
    """Return scale * Q K^T, (B, H, L, S), a new array.

    The queries of a group are rows of one product with the keys that they share, so that no key is
    repeated.
    """
    dtype = operands.query.dtype
    query, key = widened(operands.query), widened(operands.key)
    if not is_narrow(dtype):
        query = query * dtype.type(scale)
    else:
        root = rounded(np.asarray(math.sqrt(scale), np.float32), dtype)
        query = rounded(query * root, dtype)
        key = rounded(key * root, dtype)
    rows = _grouped(query, key)
    if rows.shape[-2] <= _FEW:
        scores = (key @ rows.swapaxes(-1, -2)).swapaxes(-1, -2)
    else:
        scores = rows @ key.swapaxes(-1, -2)
    return rounded(scores.reshape(operands.scores_shape), dtype)


def capped(scores: Reals, softcap: float, dtype: Dtype) -> Reals:
    """Return softcap * tanh(scores / softcap), or the scores for a softcap of 0."""
    if not softcap:
        return scores
    cap = rounded(np.asarray(softcap, scores.dtype), dtype)
    limited = rounded(np.tanh(rounded(scores / cap, dtype)), dtype)
    return rounded(limited * cap, dtype)


def attention_weights(
    scores: Reals,
    empty: Bools | None,
    dtype: Dtype,
    precision: Dtype,
) -> Reals:
    """Return the softmax of the scores over the keys.

    Args:
        scores: (B, H, L, S), values of `dtype`; may be overwritten.
        empty: True for queries that see no key, whose weights are 0; broadcasts to (B, H, L, 1).
            None when there is none.
        dtype: The type that the weights are rounded to in the end.
        precision: The type that the scores and each step of the softmax are rounded to before;
            float64 computes in itself.

    Returns:
        (B, H, L, S). A row whose greatest score is minus infinity though a key is seen is NaN, as
        the softmax of the schema's function body has it (onnx.reference 1.23.2 gives 0).
    """
    values = scores if precision == dtype else _in(scores, precision)
    values -= np.maximum.reduce(values, axis=-1, keepdims=True, initial=-np.inf)
    values = _in(values, precision)
    values = _in(np.exp(values, out=values), precision)
    # Only the sum is rounded once: bfloat16 added one by one stops growing at 256 times an element.
    values /= _in(np.add.reduce(values, axis=-1, keepdims=True), precision)
    if empty is not None:
        values[np.broadcast_to(empty, (*values.shape[:-1], 1))[..., 0]] = 0
    return rounded(rounded(values, precision), dtype).astype(_computed(dtype), copy=False)


def weighted_values(weights: Reals, operands: Operands, empty: Bools | None) -> Array:
    """Return weights V, (B, H, L, E), of the element type of the query; 0 where no key is seen."""
    value = widened(operands.value)
    dtype = operands.query.dtype
    products = _grouped(weights, value) @ value
    shape = (*weights.shape[:-1], value.shape[-1])
    output: Array = products.reshape(shape).astype(dtype, copy=False)
    if empty is not None:  # weights of 0 would still make NaN of NaN and infinity
        output[np.broadcast_to(empty, (*weights.shape[:-1], 1))[..., 0]] = 0
    return output


def _in(values: Reals, precision: Dtype) -> Reals:
    """Return values rounded to a type, in the type of its arithmetic."""
    return rounded(values.astype(_computed(precision), copy=False), precision)


def _computed(dtype: Dtype) -> Dtype:
    return np.dtype(np.float32) if is_narrow(dtype) else dtype


def _grouped(rows: Reals, shared: Reals) -> Reals:
    """Return (B, H, L, n) as (B, KV, H / KV * L, n), for a product with (B, KV, n, m)."""
    batch, heads, length, width = rows.shape
    kv_heads = shared.shape[1]
    return rows.reshape(batch, kv_heads, heads // kv_heads * length, width)
