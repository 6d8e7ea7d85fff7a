"""Operators that cut values into parts or put parts together."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from onnx_kvtool.core.words import counted
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axes, count_axis, read_integers, require_room
from onnx_kvtool.runtime.kernels.kernel import Array, Context, Ints, Lines, Value

# Slice-1, -10, -11 and -13.


def slice_1(
    data: Array,
    starts: Array | Ints,
    ends: Array | Ints,
    axes: Array | Ints | None = None,
    steps: Array | None = None,
) -> Array:
    """Take elements from a start to an end, by a step, on some axes.

    Starts and ends below 0 count from the back. Then they are clamped; s is the size of the axis.
    For a positive step both are clamped to 0 to s. For a negative step, the start is clamped to 0
    to s - 1, and the end to -1 to s - 1. So a negative step from a start before the first element
    yields the first element, as in onnxruntime. onnx.reference follows numpy and yields none.

    Without `axes`, N starts apply to the first N axes. The text wants N to be the rank then, but
    onnx's shape inference and the runtimes accept fewer. The result is a view of `data`.

    Raises:
        KernelError: If an input is of another rank, or of another length than `starts`; if there
            are more starts than axes; if an axis is out of range or named twice; if a step is 0.
    """
    first, last = read_integers(starts, "starts"), read_integers(ends, "ends")
    count = len(first)
    chosen = range(count) if axes is None else read_integers(axes, "axes")
    by = [1] * count if steps is None else read_integers(steps, "steps")
    for name, given in (("ends", last), ("axes", chosen), ("steps", by)):
        if len(given) != count:
            raise KernelError(
                f"`{name}` has {counted(len(given), 'element')}, expected {count} as `starts`"
            )
    if count > data.ndim:
        raise KernelError(
            f"`starts` has {counted(count, 'element')}, expected at most {data.ndim}: `data` "
            f"has shape {data.shape}"
        )
    index: list[Any] = [slice(None)] * data.ndim
    along = count_axes(chosen, data.ndim)
    for axis, start, end, step in zip(along, first, last, by, strict=True):
        if step == 0:
            raise KernelError(f"`steps` {by} contains 0")
        # Python clamps as the text does, but for a start before the first element.
        is_before = step < 0 and start < -data.shape[axis]
        index[axis] = slice(0 if is_before else start, end, step)
    return data[(*index, ...)]  # the ellipsis makes it an array for rank 0 too


# Split-2, -11, -13 and -18.


def split_2(
    input: Array,
    split: Array | Ints | None = None,
    *,
    axis: int,
    context: Context,
) -> tuple[Array, ...]:
    """Cut `input` into parts, of equal size without `split`; as `split_18` otherwise.

    Raises:
        KernelError: As `split_18`; without `split`, if the axis cannot be cut into equal parts.
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

    The node has either `split` or `num_outputs`. The size of a part is that of the axis divided by
    `num_outputs`, rounded up, and the last part is the rest. If more parts than the last one get
    nothing, the text gives no sizes, and the kernel refuses, as onnxruntime does.

    Raises:
        KernelError: If `axis` is out of range; if `split` is of another rank, has another length
            than there are outputs, contains negative sizes or does not sum up to the size of the
            axis; if both or neither of `split` and `num_outputs` are given; if `num_outputs` is not
            the number of outputs, or leaves a negative last part.
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
        raise KernelError(f"`split` {list(sizes)} contains a negative size")
    if sum(sizes) != value.shape[axis]:
        raise KernelError(
            f"`split` {list(sizes)} sums up to {sum(sizes)}, expected {value.shape[axis]}, the "
            f"size of axis {axis} of `input` with shape {value.shape}"
        )
    before, pairs = (slice(None),) * axis, zip(sizes, accumulate(sizes), strict=True)
    return tuple(value[(*before, slice(end - size, end))] for size, end in pairs)


# Concat-4, -11 and -13.


def concat(*inputs: Array, axis: int) -> Array:
    """Join arrays along an axis.

    A negative axis counts from the back, before version 11 too, as in onnxruntime.

    Raises:
        KernelError: If ranks or other dimensions differ; if `axis` is out of range, as it always is
            for rank 0.
    """
    first = inputs[0]
    axis = count_axis(axis, first.ndim, of="inputs[0]")
    rest = (first.shape[:axis], first.shape[axis + 1 :], first.ndim)
    for position, value in enumerate(inputs):
        shape = value.shape
        if (shape[:axis], shape[axis + 1 :], len(shape)) != rest:
            raise KernelError(
                f"`inputs[{position}]` has shape {value.shape}, expected that of `inputs[0]`, "
                f"{first.shape}, but for axis {axis}"
            )
    return np.concatenate(inputs, axis=axis)


# Pad-2, -11, -13, -18, -19 and later.


def pad_2(data: Array, *, pads: Ints, mode: str, value: float) -> Value:
    """Add or remove elements at the ends of all axes; see `pad_11`.

    `value` is rounded to the dtype of `data`.
    """
    fill = np.asarray(value).astype(data.dtype)
    return pad_11(data, pads, fill, mode=mode, is_before_19=True)


def pad_11(
    data: Array,
    pads: Array | Ints,
    constant_value: Array | None = None,
    axes: Array | None = None,
    *,
    mode: str,
    is_before_19: bool = False,
) -> Value:
    """Add or remove elements at the ends of axes.

    Negative pads remove elements. Where an axis has pads of both signs, elements are removed first
    and the modes but `constant` see what is left, as in onnxruntime (1.31.1). `reflect` does not
    repeat the first and last element and goes back and forth where it needs more elements than
    there are, one alone repeated, as numpy does; onnxruntime refuses that.

    `pads` lists the pads before each of the N axes, then those after. An absent `constant_value` is
    0, False or the empty string; the modes but `constant` ignore it.

    Raises:
        KernelError: If `mode` is none of the version's; if an input is of another rank or length;
            if an axis is out of range or named twice; if more elements are removed than there are,
            for `constant` after adding; if the other modes have no element to repeat.
    """
    listed = read_integers(pads, "pads")
    modes = ("constant", "reflect", "edge", *(() if is_before_19 else ("wrap",)))
    if mode not in modes:
        names = ", ".join(f"`{name}`" for name in modes)
        raise KernelError(f"`mode` is `{mode}`, expected one of {names}")
    chosen: Sequence[int] = range(data.ndim)
    if axes is not None:
        chosen = count_axes(read_integers(axes, "axes"), data.ndim)
    count = len(chosen)
    if len(listed) != 2 * count:
        raise KernelError(
            f"`pads` has {counted(len(listed), 'element')}, expected {2 * count} for "
            f"{counted(count, 'axis', 'axes')} of `data` with shape {data.shape}"
        )
    before, after = [0] * data.ndim, [0] * data.ndim
    for n, axis in enumerate(chosen):
        before[axis], after[axis] = listed[n], listed[n + count]
    added = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
    padded = [n + sum(pair) for n, pair in zip(data.shape, added, strict=True)]
    is_constant = mode == "constant"
    kept = []
    for axis, size in enumerate(padded if is_constant else data.shape):
        first, last = max(-before[axis], 0), size - max(-after[axis], 0)
        if last < first:
            raise KernelError(
                f"`pads` of {before[axis]} and {after[axis]} remove more than there is from axis "
                f"{axis} of `data` with shape {data.shape}"
            )
        if first == last and any(added[axis]) and not is_constant:
            raise KernelError(
                f"`pads` adds to axis {axis} of `data` with shape {data.shape}, where mode "
                f"`{mode}` has no element to repeat"
            )
        kept.append(slice(first, last))
    require_room(padded, data.dtype)
    if not added:
        return data.copy()
    pad: Any = np.pad  # whose type does not take a mode by a variable
    if is_constant:
        fill = _fill(data, constant_value)
        return pad(data, added, constant_values=fill)[tuple(kept)]
    return pad(data[tuple(kept)], added, mode)


def _fill(data: Array, constant_value: Array | None) -> Any:
    if constant_value is None:
        return "" if data.dtype.kind == "O" else np.zeros((), data.dtype)
    if constant_value.size != 1 or constant_value.ndim > 1:
        raise KernelError(
            f"`constant_value` has shape {constant_value.shape}, expected one element"
        )
    return constant_value.reshape(())[()]


# Trilu-14.


def trilu(input: Array, k: Array | None = None, *, upper: int) -> Array:
    """Keep one triangle of each matrix and set the rest to zero.

    The diagonal `k`, 0 if absent and of rank 0 or 1, bounds the triangle and is kept.

    Raises:
        KernelError: If `input` has rank below 2 or holds strings, which have no zero; if `k` is not
            one element.
    """
    if input.ndim < 2:
        raise KernelError(f"`input` has shape {input.shape}, expected at least two dimensions")
    if input.dtype.kind == "O":
        raise KernelError("`input` contains strings, which have no zero")
    diagonal = 0
    if k is not None:
        if k.size != 1 or k.ndim > 1:
            raise KernelError(f"`k` is {k.dtype} of shape {k.shape}, expected one int64")
        diagonal = int(k.reshape(())[()])
    rows, columns = input.shape[-2:]
    # Beyond the corners nothing changes, and numpy's arithmetic could overflow.
    diagonal = min(max(diagonal, -rows - 1), columns + 1)
    return (np.triu if upper else np.tril)(input, diagonal)


LINES: Lines = {
    "Concat": {4: concat},
    "Pad": {2: pad_2, 11: functools.partial(pad_11, is_before_19=True), 19: pad_11},
    "Slice": {1: slice_1},
    "Split": {2: split_2, 18: split_18},
    "Trilu": {14: trilu},
}
"""Operators of this module with their kernels, oldest first."""
