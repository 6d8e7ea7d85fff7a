"""Split-2, -11, -13 and -18."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_kvtool.core.quantity import counted
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axis, read_integers
from onnx_kvtool.runtime.kernels.kernel import Array, Context

__all__ = ["split_2", "split_13", "split_18"]


def split_2(
    input: Array,
    *,
    split: tuple[int, ...] | None,
    axis: int,
    context: Context,
) -> tuple[Array, ...]:
    """Cut `input` into parts; versions whose sizes are an attribute. See `split_13`."""
    axis = count_axis(axis, input.ndim, of="input")
    return _cut(input, _equal(input, axis, context) if split is None else split, axis, context)


def split_13(
    input: Array,
    split: Array | None = None,
    *,
    axis: int,
    context: Context,
) -> tuple[Array, ...]:
    """Cut `input` into parts along an axis.

    Args:
        input: Rank 1 or more, any dtype.
        split: (N,), int64, the sizes of the parts, 0 or more; None for parts of equal size.
        axis: Counted from the back if negative.
        context: Tells how many outputs the node has.

    Returns:
        As many arrays as the node has outputs, views of `input`.

    Raises:
        KernelError: If `axis` is out of range; if `split` is of another dtype or rank, has another
            length than there are outputs, holds negative sizes or does not sum up to the size of
            the axis; without `split`, if the axis cannot be cut into equal parts.
    """
    axis = count_axis(axis, input.ndim, of="input")
    sizes = _equal(input, axis, context) if split is None else read_integers(split, "split")
    return _cut(input, sizes, axis, context)


def split_18(
    input: Array,
    split: Array | None = None,
    *,
    axis: int,
    num_outputs: int | None,
    context: Context,
) -> tuple[Array, ...]:
    """Cut `input` into parts along an axis.

    As `split_13`, but the node has either `split` or `num_outputs`. Parts are of the size of the
    axis divided by `num_outputs`, rounded up, and the last one is what remains; where nothing
    remains for more than the last one the text gives no sizes, and it is refused, as by
    onnxruntime.

    Args:
        input: Rank 1 or more, any dtype.
        split: (N,), int64, the sizes of the parts, 0 or more.
        axis: Counted from the back if negative.
        num_outputs: Number of parts, that of the node's outputs.
        context: Tells how many outputs the node has.

    Returns:
        As many arrays as the node has outputs, views of `input`.

    Raises:
        KernelError: As `split_13`; if both or neither of `split` and `num_outputs` are given; if
            `num_outputs` is not the number of outputs, or leaves a negative last part.
    """
    axis = count_axis(axis, input.ndim, of="input")
    if (split is None) == (num_outputs is None):
        number = "neither" if split is None else "both"
        raise KernelError(f"{number} of `split` and `num_outputs` are given, expected one")
    if split is not None:
        return _cut(input, read_integers(split, "split"), axis, context)
    if num_outputs is None or num_outputs != context.outputs:
        raise KernelError(
            f"`num_outputs` is {num_outputs}, expected {context.outputs}, the number of outputs"
        )
    size = input.shape[axis]
    part = -(-size // num_outputs)
    last = size - part * (num_outputs - 1)
    if last < 0:
        raise KernelError(
            f"`num_outputs` is {num_outputs}: axis {axis} of size {size} is used up by fewer parts "
            f"of {part}"
        )
    return _cut(input, [part] * (num_outputs - 1) + [last], axis, context)


def _equal(value: Array, axis: int, context: Context) -> list[int]:
    size = value.shape[axis]
    if size % context.outputs:
        raise KernelError(
            f"axis {axis} of `input` has size {size}, expected a multiple of {context.outputs}, "
            f"the number of outputs: shape {value.shape}"
        )
    return [size // context.outputs] * context.outputs


def _cut(value: Array, sizes: Sequence[int], axis: int, context: Context) -> tuple[Array, ...]:
    if len(sizes) != context.outputs:
        raise KernelError(
            f"`split` has {counted(len(sizes), 'element')}, expected {context.outputs}, the number "
            "of outputs"
        )
    if any(size < 0 for size in sizes):
        raise KernelError(f"`split` {list(sizes)} holds a negative size")
    if sum(sizes) != value.shape[axis]:
        raise KernelError(
            f"`split` {list(sizes)} sums up to {sum(sizes)}, expected {value.shape[axis]}, the "
            f"size of axis {axis} of `input` with shape {value.shape}"
        )
    before = (slice(None),) * axis
    ends = [sum(sizes[: n + 1]) for n in range(len(sizes))]
    return tuple(
        value[(*before, slice(end - size, end))] for size, end in zip(sizes, ends, strict=True)
    )
