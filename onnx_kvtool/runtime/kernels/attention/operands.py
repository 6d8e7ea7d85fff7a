"""The operands of Attention in their four-dimensional form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnx_kvtool.core.quantity import counted
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.checks import check_shape

__all__ = ["Operands", "read_operands", "split_heads"]


@dataclass(frozen=True, slots=True)
class Operands:
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
            batch, head sizes or lengths disagree; if only one of the past inputs is given; if the
            element types of query and keys, or of a past input and its new one, differ.
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
    if key.dtype != query.dtype:
        raise KernelError(f"`K` is of dtype {key.dtype}, expected {query.dtype} as `Q`")


def _joined(past: Array, new: Array, past_name: str, name: str) -> Array:
    batch, heads, _, size = new.shape
    length = past.shape[2] if past.ndim == 4 else 0
    expected = (batch, heads, length, size)
    check_shape(past_name, past.shape, expected, f"(batch, kv_num_heads, any, size) of `{name}`")
    if past.dtype != new.dtype:
        raise KernelError(
            f"`{past_name}` is of dtype {past.dtype}, expected {new.dtype} as `{name}`"
        )
    return np.concatenate([past, new], axis=2)
