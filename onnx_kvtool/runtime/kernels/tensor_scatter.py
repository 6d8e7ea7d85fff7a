"""TensorScatter-24 in numpy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from onnx_kvtool.runtime.errors import KernelError

__all__ = ["tensor_scatter"]

Array = npt.NDArray[np.generic]


def tensor_scatter(
    past_cache: Array,
    update: Array,
    write_indices: Array | None = None,
    *,
    axis: int,
    mode: str,
) -> tuple[Array]:
    """Write `update` into a copy of `past_cache`, one start per batch row.

    `present_cache[b, ..., write_indices[b] + s, ...] = update[b, ..., s, ...]`, where the row is
    taken modulo S in circular mode. Elements are moved, never computed, so every dtype is served,
    the extended ones of ml_dtypes and strings (as objects) included, and NaN payloads survive.

    The semantics are the prose of TensorScatter-24. The pseudo-code that stood beside it before
    onnx 1.23.1 wraps the batch and the other indices too; only the sequence index is meant. What
    the text leaves open is settled so: a negative start in circular mode is taken by the true
    modulus (-1 is S - 1), as onnx.reference does; onnxruntime refuses negative starts there too.

    Args:
        past_cache: (B, D1, ..., S, ..., Dn), rank 2 or more; S is max_sequence_length.
        update: (B, D1, ..., L, ..., Dn), L <= S in both modes, of the dtype of `past_cache`. With
            B or L of 0 nothing is written.
        write_indices: (B,), int64, in rows of the cache; None means 0 for every batch row. Checked
            for every batch row, also when nothing is written.
        axis: Position of S and L, counted from the back if negative; not the batch axis.
        mode: `linear` or `circular`.

    Returns:
        One array, `present_cache`: a new array with the shape and dtype of `past_cache`.

    Raises:
        KernelError: If dtypes or ranks differ; if the rank is below 2; if `axis` is the batch axis
            or outside the rank; if another dimension than the sequence differs; if L > S; if
            `write_indices` is not int64 or not of shape (B,); if `mode` is another string; in
            linear mode also if a start is negative or start + L > S.
    """
    sequence_axis = _check_shapes(past_cache, update, axis)
    batch, capacity = past_cache.shape[0], past_cache.shape[sequence_axis]
    length = update.shape[sequence_axis]
    starts = np.zeros(batch, np.int64) if write_indices is None else write_indices
    _check_starts(starts, batch)
    if mode == "linear":
        _check_range(starts, length, capacity)
    elif mode != "circular":
        raise KernelError(f"`mode` is `{mode}`, expected `linear` or `circular`")

    present = np.array(past_cache, copy=True)
    if batch == 0 or length == 0:
        return (present,)
    # Starts are reduced before the addition, which could overflow int64 otherwise.
    rows = starts[:, None] % capacity + np.arange(length, dtype=np.int64)  # (B, L)
    rows %= capacity
    moved = np.moveaxis(present, sequence_axis, 1)  # a view: (B, S, ...)
    moved[np.arange(batch)[:, None], rows] = np.moveaxis(update, sequence_axis, 1)
    return (present,)


def _check_shapes(past_cache: Array, update: Array, axis: int) -> int:
    """Return the sequence axis counted from the front, if the operands fit each other."""
    past, new = past_cache.shape, update.shape
    rank = len(past)
    if past_cache.dtype != update.dtype:
        raise KernelError(
            f"`update` is of dtype {update.dtype}, expected {past_cache.dtype} as `past_cache`"
        )
    if len(new) != rank:
        raise KernelError(f"`update` has rank {len(new)}, expected {rank} as `past_cache`")
    if rank < 2:
        raise KernelError(f"`past_cache` has rank {rank}, expected at least 2")
    if not -rank <= axis < rank:
        raise KernelError(f"`axis` is {axis}, expected {-rank} to {rank - 1}")
    sequence_axis = axis % rank
    if sequence_axis == 0:
        raise KernelError(f"`axis` is {axis}, which is the batch dimension of rank {rank}")
    for dim, (got, expected) in enumerate(zip(new, past, strict=True)):
        if dim != sequence_axis and got != expected:
            raise KernelError(
                f"`update` has size {got} in dimension {dim}, expected {expected} as `past_cache`: "
                f"shapes {new} and {past}"
            )
    if new[sequence_axis] > past[sequence_axis]:
        raise KernelError(
            f"`update` has sequence_length {new[sequence_axis]}, "
            f"expected at most max_sequence_length {past[sequence_axis]}"
        )
    return sequence_axis


def _check_starts(starts: Array, batch: int) -> None:
    if starts.dtype != np.int64:
        raise KernelError(f"`write_indices` is of dtype {starts.dtype}, expected int64")
    if starts.shape != (batch,):
        raise KernelError(f"`write_indices` has shape {starts.shape}, expected ({batch},)")


def _check_range(starts: Array, length: int, capacity: int) -> None:
    last = capacity - length
    for row, start in enumerate(starts.tolist()):
        if start < 0:
            raise KernelError(f"write_indices[{row}] is {start}, expected 0 or more in linear mode")
        if start > last:
            raise KernelError(
                f"write_indices[{row}] is {start}, expected at most {last}: {length} rows "
                f"from there exceed max_sequence_length {capacity}"
            )
