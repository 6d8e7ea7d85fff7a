"""RotaryEmbedding-23."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from onnx_kvtool.core.words import counted
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.elementwise.binary import widened
from onnx_kvtool.runtime.kernels.kernel import Array, Lines
from onnx_kvtool.runtime.kernels.normalization.layer import Reals, check_shape


def rotary_embedding_23(
    X: Array,
    cos_cache: Array,
    sin_cache: Array,
    position_ids: Array | None = None,
    *,
    interleaved: int,
    num_heads: int | None,
    rotary_embedding_dim: int,
) -> tuple[Array]:
    """Rotate the first R elements of each head by the angle of its position; the others stay.

    Pairs (x1, x2) become (cos * x1 - sin * x2, sin * x1 + cos * x2): elements i and i + R / 2, or
    2 i and 2 i + 1 if interleaved. 16-bit types are computed in float32 and rounded once.

    Args:
        X: (B, H, L, D), or (B, L, H * D); D is even.
        cos_cache: (M, R / 2) with `position_ids`, else (B, L, R / 2).
        sin_cache: As `cos_cache`.
        position_ids: (B, L), int64, 0 to M - 1, never counted from the back.
        interleaved: Whether neighbours are rotated, not halves.
        num_heads: H; needed for three dimensions. For four, 0 and None are as good as H.
        rotary_embedding_dim: R, even, up to D; 0 for D.

    Returns:
        One array of the shape and type of `X`.

    Raises:
        KernelError: If ranks or shapes are others; if H is missing, or does not divide the last
            dimension; if D or R is odd, or R outside 0 to D; if a position is out of range.
    """
    heads_axis, shape = _split(X.shape, num_heads)
    size = shape[3]
    if size % 2:
        raise KernelError(f"head_size of `X` is {size}, expected an even number")
    if not 0 <= rotary_embedding_dim <= size or rotary_embedding_dim % 2:
        raise KernelError(
            f"`rotary_embedding_dim` is {rotary_embedding_dim}, expected an even number from 0 to "
            f"{size}, the head_size of `X`"
        )
    rotated = rotary_embedding_dim or size
    half = rotated // 2
    rows = (shape[0], shape[3 - heads_axis], half)
    spread = (slice(None), None) if heads_axis == 1 else (slice(None), slice(None), None)
    cos, sin = (each[spread] for each in _rows(cos_cache, sin_cache, position_ids, rows))

    first, second = (
        (slice(0, rotated, 2), slice(1, rotated, 2))
        if interleaved
        else (slice(0, half), slice(half, rotated))
    )
    split = X.reshape(shape)
    x1, x2 = widened(split[..., first]), widened(split[..., second])
    result = np.empty(shape, X.dtype)
    result[..., first] = cos * x1 - sin * x2
    result[..., second] = sin * x1 + cos * x2
    if rotated < size:
        result[..., rotated:] = split[..., rotated:]
    return (result.reshape(X.shape),)


def _split(shape: tuple[int, ...], heads: int | None) -> tuple[int, tuple[int, ...]]:
    """Return the axis of the heads and the shape of X as (B, L, H, D), or its own of four."""
    if len(shape) == 4:
        if heads and heads != shape[1]:
            raise KernelError(
                f"`num_heads` is {heads}, but `X` with shape {shape} has "
                f"{counted(shape[1], 'head')}"
            )
        return 1, shape
    if len(shape) != 3:
        raise KernelError(f"`X` has rank {len(shape)} (shape {shape}), expected 3 or 4")
    if heads is None:
        raise KernelError("`num_heads` is missing, which three dimensions need")
    if heads < 1 or shape[2] % heads:
        raise KernelError(
            f"`num_heads` is {heads}, expected a divisor of {shape[2]}, the last dimension of `X`"
        )
    return 2, (*shape[:2], heads, shape[2] // heads)


def _rows(
    cos: Array, sin: Array, positions: Array | None, rows: tuple[int, int, int]
) -> tuple[Reals, Reals]:
    """Return the row of each cache for each token: (B, L, R / 2)."""
    if positions is None:
        why = "one row for each token, without `position_ids`"
        check_shape("cos_cache", cos.shape, rows, why)
        check_shape("sin_cache", sin.shape, rows, why)
        return widened(cos), widened(sin)
    why = "one row for each position, half of the rotated elements wide"
    check_shape("cos_cache", cos.shape, (*cos.shape[:1], rows[2]), why)
    check_shape("sin_cache", sin.shape, (*sin.shape[:1], rows[2]), why)
    check_shape("position_ids", positions.shape, rows[:2], "batch and sequence length of `X`")
    indices = positions.astype(np.int64, copy=False)
    # A negative position is huge when read as unsigned.
    greatest = int(indices.view(np.uint64).max(initial=0))
    for name, cache in (("cos_cache", cos), ("sin_cache", sin)):
        if greatest >= len(cache) and indices.size:
            raise _out_of_range(indices, name, cache.shape)
    return widened(cos.take(indices, axis=0)), widened(sin.take(indices, axis=0))


def _out_of_range(indices: npt.NDArray[np.int64], name: str, shape: tuple[int, ...]) -> KernelError:
    """Return the error for the first position that a cache has no row for."""
    batch, token = np.argwhere((indices < 0) | (indices >= shape[0]))[0].tolist()
    return KernelError(
        f"`position_ids`[{batch}, {token}] is {indices[batch, token]}, expected 0 to "
        f"{shape[0] - 1}: axis 0 of `{name}` with shape {shape}"
    )


LINES: Lines = {
    "RotaryEmbedding": {23: rotary_embedding_23},
}
"""Operators of this module with their kernels, oldest first."""
