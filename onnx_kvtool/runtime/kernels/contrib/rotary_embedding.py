"""RotaryEmbedding of `com.microsoft`, from which that of onnx came."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.attention.rotary_embedding import rotary_embedding_23
from onnx_kvtool.runtime.kernels.contrib.refusal import refuse_value
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["rotary_embedding"]


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


def _positions(input: Array, position_ids: Array) -> Array:
    """Return a position for each row; one alone counts on from the first row."""
    if position_ids.ndim > 1 or position_ids.size != 1 or input.ndim not in (3, 4):
        return position_ids
    length = input.shape[1 if input.ndim == 3 else 2]
    rows = position_ids.reshape(()).astype(np.int64) + np.arange(length)
    return np.broadcast_to(rows, (input.shape[0], length))
