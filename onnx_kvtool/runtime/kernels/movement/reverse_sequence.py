"""ReverseSequence-10 and -28."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["reverse_sequence"]


def reverse_sequence(
    input: Array,
    sequence_lens: Array,
    *,
    batch_axis: int,
    time_axis: int,
) -> tuple[Array]:
    """Reverse the first elements of each sequence, a number of its own.

    Args:
        input: Rank 2 or more, any dtype; (T, B, ...) or (B, T, ...) as the axes say.
        sequence_lens: (B,), int64, 0 to T.
        batch_axis: 0 or 1.
        time_axis: The other one.

    Returns:
        One array with the shape and dtype of `input`.

    Raises:
        KernelError: If `input` has rank below 2; if the axes are not 0 and 1; if `sequence_lens` is
            of another dtype or shape, or a length is out of range.
    """
    if input.ndim < 2:
        raise KernelError(f"`input` has shape {input.shape}, expected at least two dimensions")
    if {batch_axis, time_axis} != {0, 1}:
        raise KernelError(
            f"`batch_axis` is {batch_axis} and `time_axis` is {time_axis}, expected 0 and 1 or 1 "
            "and 0"
        )
    batch, time = input.shape[batch_axis], input.shape[time_axis]
    if sequence_lens.dtype != np.int64 or sequence_lens.shape != (batch,):
        raise KernelError(
            f"`sequence_lens` is {sequence_lens.dtype} of shape {sequence_lens.shape}, expected "
            f"int64 of shape ({batch},)"
        )
    for row, length in enumerate(sequence_lens.tolist()):
        if not 0 <= length <= time:
            raise KernelError(f"`sequence_lens`[{row}] is {length}, expected 0 to {time}")
    lengths = sequence_lens.astype(np.int64).reshape(-1, 1)
    steps = np.arange(time)
    taken = np.where(steps < lengths, lengths - 1 - steps, steps)  # (B, T)
    sequences = np.moveaxis(input, batch_axis, 0)  # (B, T, ...)
    result = sequences[np.arange(batch)[:, None], taken]
    return (np.moveaxis(result, 0, batch_axis),)
