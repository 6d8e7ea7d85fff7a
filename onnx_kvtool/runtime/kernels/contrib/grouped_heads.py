"""The heads of GroupQueryAttention and SparseAttention."""

from __future__ import annotations

from dataclasses import dataclass

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.attention.rotary_embedding import rotary_embedding_23
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.layer import check_shape

__all__ = ["Heads", "rotated", "split_heads"]


@dataclass(frozen=True, slots=True)
class Heads:
    """New rows, head by head.

    Attributes:
        query: (B, H, L, D).
        key: (B, KV, L, D).
        value: (B, KV, L, D).
    """

    query: Array
    key: Array
    value: Array


def split_heads(
    query: Array, key: Array | None, value: Array | None, heads: int, kv_heads: int
) -> Heads:
    """Return the heads as views.

    Args:
        query: (B, L, H * D); or (B, L, (H + 2 * KV) * D) without the others.
        key: (B, L, KV * D).
        value: (B, L, KV * D).
        heads: H.
        kv_heads: KV.

    Raises:
        KernelError: If KV does not divide H, a width is no multiple of its heads, a shape does not
            fit that of `query`, only one of `key` and `value` is given, or there are no rows.
    """
    if heads < 1 or kv_heads < 1 or heads % kv_heads:
        raise KernelError(
            f"`num_heads` is {heads} and `kv_num_heads` is {kv_heads}, expected a multiple of it"
        )
    if query.ndim != 3:
        raise KernelError(f"`query` has shape {query.shape}, expected three dimensions")
    if (key is None) != (value is None):
        given = "key" if value is None else "value"
        raise KernelError(f"`{given}` is given alone, expected both `key` and `value` or neither")
    batch, length, width = query.shape
    if length == 0:
        raise KernelError(f"`query` has shape {query.shape}, expected one row or more")
    parts = heads if key is not None else heads + 2 * kv_heads
    if width == 0 or width % parts:
        raise KernelError(
            f"the last dimension of `query` with shape {query.shape} is {width}, expected a "
            f"multiple of {parts}, its heads"
        )
    size = width // parts
    if key is None or value is None:
        split = query.reshape(batch, length, parts, size).transpose(0, 2, 1, 3)
        return Heads(
            split[:, :heads], split[:, heads : heads + kv_heads], split[:, heads + kv_heads :]
        )
    for name, given_rows in (("key", key), ("value", value)):
        expected = (batch, length, kv_heads * size)
        check_shape(name, given_rows.shape, expected, "batch, rows and head size of `query`")
    return Heads(
        *(
            rows.reshape(batch, length, count, size).transpose(0, 2, 1, 3)
            for rows, count in ((query, heads), (key, kv_heads), (value, kv_heads))
        )
    )


def rotated(
    heads: Heads,
    positions: Array,
    cos_cache: Array | None,
    sin_cache: Array | None,
    interleaved: int | None,
) -> Heads:
    """Return the heads with the first R elements of query and key rotated.

    Args:
        heads: The heads.
        positions: (B, L), of the new rows.
        cos_cache: (M, R / 2).
        sin_cache: (M, R / 2).
        interleaved: Whether neighbours are rotated, not halves; None for no.

    Raises:
        KernelError: If a cache is absent, or as for `rotary_embedding_23`.
    """
    if cos_cache is None or sin_cache is None:
        raise KernelError("`do_rotary` is 1, but `cos_cache` or `sin_cache` is absent")
    if cos_cache.ndim != 2:
        raise KernelError(f"`cos_cache` has shape {cos_cache.shape}, expected two dimensions")
    query, key = (
        rotary_embedding_23(
            x,
            cos_cache,
            sin_cache,
            positions,
            interleaved=int(interleaved == 1),
            num_heads=None,
            rotary_embedding_dim=2 * cos_cache.shape[1],
        )[0]
        for x in (heads.query, heads.key)
    )
    return Heads(query, key, heads.value)
