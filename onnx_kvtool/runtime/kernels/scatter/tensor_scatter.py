"""TensorScatter-24 in numpy."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from onnx_kvtool.core.words import counted
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import KEPT_SHAPES, count_axis
from onnx_kvtool.runtime.kernels.kernel import Array, Ints, Lines
from onnx_kvtool.runtime.kernels.scatter.scatter import destination


def tensor_scatter(
    past_cache: Array,
    update: Array,
    write_indices: Array | None = None,
    *,
    axis: int,
    mode: str,
    in_place: bool = False,
) -> Array:
    """Write `update` into a copy of `past_cache`, one start per batch row.

    `present_cache[b, ..., write_indices[b] + s, ...] = update[b, ..., s, ...]`, where the row is
    taken modulo S in circular mode. Elements are moved, never computed, so every dtype is served,
    the extended ones of ml_dtypes and strings (as objects) included, and NaN payloads survive.

    The semantics are the prose of TensorScatter-24. The pseudo-code that stood beside it before
    onnx 1.23.1 wraps the batch and the other indices too; only the sequence index is meant. Of a
    negative start the text says nothing; it is an error in both modes, as in onnxruntime 1.31.1,
    where onnx.reference counts it from the end or takes its modulus.

    Args:
        past_cache: (B, D1, ..., S, ..., Dn), rank 2 or more; S is max_sequence_length.
        update: (B, D1, ..., L, ..., Dn), L <= S in both modes, of the dtype of `past_cache`. With
            B or L of 0 nothing is written.
        write_indices: (B,), int64, in rows of the cache; None means 0 for every batch row. Checked
            for every batch row, also when nothing is written.
        axis: Position of S and L, counted from the back if negative; not the batch axis.
        mode: `linear` or `circular`.
        in_place: Whether `past_cache` may be overwritten and returned, which costs no more than the
            rows written. It is not if it is read-only or may share memory with `update`.

    Returns:
        One array, `present_cache`, with the shape and dtype of `past_cache`: a new one, or
        `past_cache` itself if `in_place`.

    Raises:
        KernelError: If ranks differ; if the rank is below 2; if `axis` is the batch axis or outside
            the rank; if another dimension than the sequence differs; if L > S; if `write_indices`
            is not of shape (B,); if `mode` is another string; if a start is negative; in linear
            mode also if start + L > S.
    """
    sequence_axis = _sequence_axis(past_cache.shape, update.shape, axis)
    batch, capacity = past_cache.shape[0], past_cache.shape[sequence_axis]
    length = update.shape[sequence_axis]
    starts = [0] * batch
    if write_indices is not None:
        if write_indices.shape != (batch,):
            raise KernelError(
                f"`write_indices` has shape {write_indices.shape}, expected ({batch},)"
            )
        starts = write_indices.tolist()  # numbers of Python, which do not overflow
    if mode not in ("linear", "circular"):
        raise KernelError(f"`mode` is `{mode}`, expected `linear` or `circular`")
    _check_range(starts, capacity - length if mode == "linear" else None, length, capacity)

    present = destination(past_cache, in_place, update)
    if batch == 0 or length == 0:
        return present
    rows = [start % capacity for start in starts]
    if len(set(rows)) == 1:
        _write_rows(present, update, slice(None), rows[0], sequence_axis)
    else:
        for row, start in enumerate(rows):
            _write_rows(present, update, row, start, sequence_axis)
    return present


def _write_rows(
    present: Array, update: Array, batch: int | slice, start: int, sequence_axis: int
) -> None:
    """Write the rows of one batch row, or of all of them, from `start` on and then from 0 on."""
    capacity, length = present.shape[sequence_axis], update.shape[sequence_axis]
    before = (batch, *(slice(None),) * (sequence_axis - 1))
    fitting = min(length, capacity - start)
    present[(*before, slice(start, start + fitting))] = update[(*before, slice(0, fitting))]
    if fitting < length:
        wrapped = slice(fitting, length)
        present[(*before, slice(0, length - fitting))] = update[(*before, wrapped)]


@functools.lru_cache(KEPT_SHAPES)
def _sequence_axis(past: Ints, new: Ints, axis: int) -> int:
    """Return the sequence axis counted from the front, if the operands fit each other."""
    rank = len(past)
    if len(new) != rank:
        raise KernelError(f"`update` has rank {len(new)}, expected {rank} as `past_cache`")
    if rank < 2:
        raise KernelError(f"`past_cache` has rank {rank}, expected at least 2")
    sequence_axis = count_axis(axis, rank, of="past_cache")
    if sequence_axis == 0:
        default = "the default, -2, suits caches of rank 3 and more only" if rank == 2 else None
        raise KernelError(
            f"`axis` is {axis}, which is the batch dimension of rank {rank}", help=default
        )
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


def _check_range(starts: Sequence[int], last: int | None, length: int, capacity: int) -> None:
    """Check each start against 0 and, in linear mode, against the last one that leaves room."""
    for row, start in enumerate(starts):
        if start < 0:
            raise KernelError(
                f"write_indices[{row}] is {start}, expected 0 or more",
                help="count rows from the start of the cache; no index counts from its end",
            )
        if last is not None and start > last:
            raise KernelError(
                f"write_indices[{row}] is {start}, expected at most {last}: "
                f"{counted(length, 'row')} from there exceed max_sequence_length {capacity}",
                help="make the cache longer, or set `mode` to `circular` to wrap around",
            )


LINES: Lines = {
    "TensorScatter": {24: tensor_scatter},
}
"""Operators of this module with their kernels, oldest first."""
