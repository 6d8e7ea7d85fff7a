"""Between tensors and sequences: SplitToSequence and ConcatFromSequence, opsets 11 to 24."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axis
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["concat_from_sequence", "split_to_sequence"]


def split_to_sequence(
    input: Array, split: Array | None = None, *, axis: int, keepdims: int
) -> tuple[list[Array]]:
    """Split a tensor along an axis.

    Args:
        input: Any tensor with an axis; size N along it.
        split: int32 or int64: a scalar is the size of all parts but the last, which may be smaller;
            (K,) are the sizes of K parts, with the sum N; None gives parts of size 1.
        axis: The axis; negative counts from the back.
        keepdims: Whether parts of size 1 keep the axis; looked at only without `split`.

    Returns:
        The parts, views of `input`.

    Raises:
        KernelError: If `axis` is out of range, a size is negative (a scalar: below 1), or the sizes
            do not add up to N.
    """
    where = count_axis(axis, input.ndim)
    size = input.shape[where]
    if split is None:
        parts = [np.take(input, [k], axis=where) for k in range(size)]
        return (parts if keepdims else [np.squeeze(p, axis=where) for p in parts],)
    if split.ndim == 0:
        step = int(split)
        if step < 1:
            raise KernelError(f"`split` is {step}, expected 1 or more")
        bounds = list(range(step, size, step))
    elif split.ndim == 1:
        sizes = [int(part) for part in split.tolist()]
        if min(sizes, default=0) < 0 or sum(sizes) != size:
            raise KernelError(
                f"`split` is {sizes}, expected sizes with the sum {size}: axis {where} of "
                f"`input` with shape {input.shape}"
            )
        bounds = np.cumsum(sizes)[:-1].tolist()
    else:
        raise KernelError(f"`split` has rank {split.ndim}, expected 0 or 1")
    return (list(np.split(input, bounds, axis=where)),)


def concat_from_sequence(input_sequence: list[Array], *, axis: int, new_axis: int) -> tuple[Array]:
    """Join the tensors of a sequence.

    Args:
        input_sequence: One tensor or more, equal in shape (but for `axis`, if `new_axis` is 0).
        axis: The axis along which they are joined; negative counts from the back of the result.
        new_axis: 1 joins them along a new axis.

    Raises:
        KernelError: If the sequence is empty, `axis` is out of range, or shapes differ.
    """
    if not input_sequence:
        raise KernelError("`input_sequence` is empty, expected one tensor or more")
    if new_axis not in (0, 1):
        raise KernelError(f"`new_axis` is {new_axis}, expected 0 or 1")
    first = input_sequence[0]
    where = count_axis(axis, first.ndim + new_axis)
    for index, array in enumerate(input_sequence):
        fits = array.ndim == first.ndim and all(
            a == b or (d == where and not new_axis)
            for d, (a, b) in enumerate(zip(array.shape, first.shape, strict=True))
        )
        if not fits:
            raise KernelError(
                f"`input_sequence`[{index}] has shape {array.shape}, which cannot be joined with "
                f"{first.shape} along axis {where}"
            )
    join = np.stack if new_axis else np.concatenate
    return (join(input_sequence, axis=where),)
