"""RotaryEmbedding of `com.microsoft`, from which that of onnx came, and its relatives."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.attention.rotary_embedding import rotary_embedding_23
from onnx_kvtool.runtime.kernels.contrib.refusal import refuse_value
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.layer import check_shape

__all__ = ["gemma_rotary_embedding", "m_rotary_embedding", "rotary_embedding"]


def rotary_embedding(
    input: Array,
    position_ids: Array,
    cos_cache: Array,
    sin_cache: Array,
    *,
    interleaved: int | None,
    is_packed_batching: int | None,
    num_heads: int | None,
    rotary_embedding_dim: int | None,
    scale: float | None,
) -> tuple[Array]:
    """Rotate the first R elements of each head by the angle of its position, as onnx's does.

    Args:
        input: (B, L, H * D), or (B, H, L, D); D is even.
        position_ids: (B, L), 0 to M - 1; or one element, the position of the first row.
        cos_cache: (M, R / 2).
        sin_cache: (M, R / 2).
        interleaved: Whether neighbours are rotated, not halves; None for no.
        is_packed_batching: None or 0.
        num_heads: H; None and 0 for as many heads of R elements as there are.
        rotary_embedding_dim: R, for which `num_heads` is needed; None and 0 for D.
        scale: None or 1: onnxruntime 1.31.1 documents another and does not apply it on a CPU.

    Returns:
        One array of the shape and type of `input`.

    Raises:
        KernelError: As for `rotary_embedding_23`; if the heads do not divide the last dimension;
            for a packed batch or a scale.
    """
    refuse_value("is_packed_batching", is_packed_batching, None, 0)
    refuse_value("scale", scale, None, 1.0)
    if rotary_embedding_dim and not num_heads:
        raise KernelError(
            f"`rotary_embedding_dim` is {rotary_embedding_dim}, but `num_heads` is missing"
        )
    if cos_cache.ndim != 2:
        raise KernelError(f"`cos_cache` has shape {cos_cache.shape}, expected two dimensions")
    if input.ndim == 3 and not num_heads:
        size = 2 * cos_cache.shape[1]
        if size == 0 or input.shape[2] % size:
            raise KernelError(
                f"`cos_cache` has shape {cos_cache.shape}, for heads of {size} elements, which do "
                f"not divide {input.shape[2]}, the last dimension of `input`"
            )
        num_heads = input.shape[2] // size
    return rotary_embedding_23(
        input,
        cos_cache,
        sin_cache,
        _positions(input, position_ids),
        interleaved=int(interleaved == 1),
        num_heads=num_heads,
        rotary_embedding_dim=rotary_embedding_dim or 0,
    )


def m_rotary_embedding(
    input: Array,
    position_ids: Array,
    cos_cache: Array,
    sin_cache: Array,
    *,
    interleaved: int | None,
    is_packed_batching: int | None,
    mrope_layout: int | None,
    mrope_section: tuple[int, ...],
    num_heads: int | None,
    rotary_embedding_dim: int | None,
    scale: float | None,
) -> tuple[Array]:
    """Rotate each head by angles of three positions, each of which has its columns of the caches.

    Semantics are those of docs/ContribOperators.md and of onnxruntime 1.32.0 on a CPU.

    Args:
        input: (B, L, H * D), or (B, H, L, D); D is even.
        position_ids: (3, B, L), 0 to M - 1: in time, height and width.
        cos_cache: (M, R / 2).
        sin_cache: (M, R / 2).
        interleaved: Whether neighbours are rotated, not halves; None for no.
        is_packed_batching: Not looked at: every token has its positions.
        mrope_layout: How columns are given out: 0 and None one section behind the other, 1 in
            turns, what is left over to the first position.
        mrope_section: How many columns each position has.
        num_heads: H; needed for three dimensions.
        rotary_embedding_dim: R, for which `num_heads` is needed; None and 0 for D.
        scale: Factor of the sines and cosines; None for 1.

    Returns:
        One array of the shape and type of `input`.

    Raises:
        KernelError: As for `rotary_embedding_23`; if the sections do not add up, a position is out
            of range, or `num_heads` is missing.
    """
    refuse_value("mrope_layout", mrope_layout, None, 0, 1)
    if not num_heads and (rotary_embedding_dim or input.ndim == 3):
        raise KernelError("`num_heads` is missing")
    half = cos_cache.shape[-1]
    if cos_cache.ndim != 2 or len(mrope_section) != 3 or sum(mrope_section) != half:
        raise KernelError(
            f"`mrope_section` is {mrope_section}, expected three sizes that add up to the last "
            f"dimension of `cos_cache` with shape {cos_cache.shape}"
        )
    length = input.shape[1 if input.ndim == 3 else 2]
    check_shape("position_ids", position_ids.shape, (3, len(input), length), "(3, B, L)")
    if position_ids.size and not 0 <= position_ids.min() <= position_ids.max() < len(cos_cache):
        raise KernelError(f"a position is outside of the {len(cos_cache)} rows of `cos_cache`")
    if mrope_layout == 1:
        turns = [at % 3 if at // 3 < mrope_section[at % 3] else 0 for at in range(half)]
    else:
        turns = [at for at, size in enumerate(mrope_section) for _ in range(size)]
    rows = np.moveaxis(position_ids[turns], 0, -1)  # (B, L, R / 2)
    factor = np.float32(1.0 if scale is None else scale)
    cos, sin = (
        narrowed(np.asarray(widened(cache[rows, np.arange(half)]) * factor), cache.dtype)
        for cache in (cos_cache, sin_cache)
    )
    return rotary_embedding_23(
        input,
        cos,
        sin,
        interleaved=int(interleaved == 1),
        num_heads=num_heads if input.ndim == 3 else None,
        rotary_embedding_dim=rotary_embedding_dim or 0,
    )


def gemma_rotary_embedding(
    emb: Array, q: Array, q_rot: Array, k: Array, k_rot: Array
) -> tuple[Array, Array]:
    """Return q * cos(emb) + q_rot * sin(emb), and the same of k.

    Sines and cosines are rounded to float16 before they are multiplied, as documented.

    Args:
        emb: (B, L, D), float32.
        q: (B, H, L, D), float16.
        q_rot: Of the shape of `q`: what `q` is rotated with.
        k: (B, KV, L, D), float16.
        k_rot: Of the shape of `k`.

    Raises:
        KernelError: If a shape does not fit.
    """
    for name, turned, rows in (("q", q_rot, q), ("k", k_rot, k)):
        if rows.ndim != 4 or (rows.shape[0], *rows.shape[2:]) != emb.shape:
            raise KernelError(f"`{name}` has shape {rows.shape}, which does not fit {emb.shape}")
        check_shape(f"{name}_rot", turned.shape, rows.shape, f"that of `{name}`")
    angle = np.exp(1j * emb.astype(np.float64))[:, None]
    cos, sin = (widened(part.astype(q.dtype)) for part in (angle.real, angle.imag))
    with np.errstate(all="ignore"):
        query, key = (
            narrowed(np.asarray(widened(rows) * cos + widened(turned) * sin), rows.dtype)
            for rows, turned in ((q, q_rot), (k, k_rot))
        )
    return query, key


def _positions(input: Array, position_ids: Array) -> Array:
    """Return a position for each row; one alone counts on from the first row."""
    if position_ids.ndim > 1 or position_ids.size != 1 or input.ndim not in (3, 4):
        return position_ids
    length = input.shape[1 if input.ndim == 3 else 2]
    rows = position_ids.reshape(()).astype(np.int64) + np.arange(length)
    return np.broadcast_to(rows, (input.shape[0], length))
