"""The heads of GroupQueryAttention."""

from __future__ import annotations

from dataclasses import dataclass

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.checks import check_shape

__all__ = ["Heads", "split_heads"]


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
