"""Pad-2, -11, -13, -18, -19 and later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from onnx_kvtool.core.quantity import counted
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axes, read_integers
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.room import require_room

__all__ = ["pad_2", "pad_11", "pad_18", "pad_19"]

_MODES = ("constant", "reflect", "edge")


def pad_2(data: Array, *, pads: tuple[int, ...], mode: str, value: float) -> tuple[Array]:
    """Add or remove elements at the ends of all axes; see `pad_19`.

    `value` is rounded to the dtype of `data`.
    """
    return _pad(data, pads, mode, np.asarray(value).astype(data.dtype), None, _MODES)


def pad_11(
    data: Array, pads: Array, constant_value: Array | None = None, *, mode: str
) -> tuple[Array]:
    """Add or remove elements at the ends of all axes; see `pad_19`."""
    return _pad(data, read_integers(pads, "pads"), mode, constant_value, None, _MODES)


def pad_18(
    data: Array,
    pads: Array,
    constant_value: Array | None = None,
    axes: Array | None = None,
    *,
    mode: str,
) -> tuple[Array]:
    """Add or remove elements at the ends of axes; see `pad_19`."""
    return _pad(data, read_integers(pads, "pads"), mode, constant_value, axes, _MODES)


def pad_19(
    data: Array,
    pads: Array,
    constant_value: Array | None = None,
    axes: Array | None = None,
    *,
    mode: str,
) -> tuple[Array]:
    """Add or remove elements at the ends of axes.

    Negative pads remove elements. Where an axis has pads of both signs, elements are removed first
    and the modes but `constant` see what is left, as in onnxruntime (1.31.1). `reflect` does not
    repeat the first and last element and goes back and forth where it needs more elements than
    there are, one alone repeated, as numpy does; onnxruntime refuses that.

    Args:
        data: Any shape and dtype.
        pads: (2 * N,), int64, in elements: those before each of the N axes, then those after.
        constant_value: One element of the dtype of `data`, rank 0 or 1; None for 0, False or the
            empty string. Ignored by the other modes.
        axes: (N,), int32 or int64, from the back if negative; None for all axes.
        mode: `constant`, `reflect`, `edge` or (from version 19 on) `wrap`.

    Returns:
        One array.

    Raises:
        KernelError: If `mode` is none of the version's; if an input is of another dtype, rank or
            length; if an axis is out of range or named twice; if more elements are removed than
            there are, for `constant` after adding; if the other modes have no element to repeat.
    """
    modes = (*_MODES, "wrap")
    return _pad(data, read_integers(pads, "pads"), mode, constant_value, axes, modes)


def _pad(
    data: Array,
    pads: Sequence[int],
    mode: str,
    constant_value: Array | None,
    axes: Array | None,
    modes: tuple[str, ...],
) -> tuple[Array]:
    if mode not in modes:
        names = ", ".join(f"`{name}`" for name in modes)
        raise KernelError(f"`mode` is `{mode}`, expected one of {names}")
    chosen: Sequence[int] = range(data.ndim)
    if axes is not None:
        chosen = count_axes(read_integers(axes, "axes", (np.int32, np.int64)), data.ndim)
    count = len(chosen)
    if len(pads) != 2 * count:
        raise KernelError(
            f"`pads` has {counted(len(pads), 'element')}, expected {2 * count} for "
            f"{counted(count, 'axis', 'axes')} of `data` with shape {data.shape}"
        )
    before, after = [0] * data.ndim, [0] * data.ndim
    for n, axis in enumerate(chosen):
        before[axis], after[axis] = pads[n], pads[n + count]
    sizes = [max(n + b + a, 0) for n, b, a in zip(data.shape, before, after, strict=True)]
    require_room(sizes, data.dtype)
    if mode == "constant":
        return (_constant(data, before, after, _fill(data, constant_value)),)
    result = data
    for axis in range(data.ndim):
        if before[axis] or after[axis]:
            rows = _rows(data, axis, before[axis], after[axis], mode)
            result = np.take(result, rows, axis=axis)
    return (result if result is not data else data.copy(),)


def _fill(data: Array, constant_value: Array | None) -> Any:
    if constant_value is None:
        return "" if data.dtype.kind == "O" else np.zeros((), data.dtype)
    if constant_value.dtype != data.dtype:
        raise KernelError(
            f"`constant_value` is of dtype {constant_value.dtype}, expected {data.dtype} as `data`"
        )
    if constant_value.size != 1 or constant_value.ndim > 1:
        raise KernelError(
            f"`constant_value` has shape {constant_value.shape}, expected one element"
        )
    return constant_value.reshape(())[()]


def _constant(data: Array, before: list[int], after: list[int], fill: Any) -> Array:
    shape = [size + b + a for size, b, a in zip(data.shape, before, after, strict=True)]
    for axis, size in enumerate(shape):
        if size < 0:
            raise _removed_too_much(data, axis, before[axis], after[axis])
    result = np.full(shape, fill, data.dtype)
    source, target = [], []
    for axis, size in enumerate(shape):
        first = max(before[axis], 0)
        last = max(min(before[axis] + data.shape[axis], size), first)
        target.append(slice(first, last))
        source.append(slice(first - before[axis], last - before[axis]))
    result[tuple(target)] = data[tuple(source)]
    return result


def _rows(data: Array, axis: int, before: int, after: int, mode: str) -> npt.NDArray[np.int64]:
    """Return which element along an axis each element of the result is."""
    kept = np.arange(data.shape[axis], dtype=np.int64)
    first, last = max(-before, 0), len(kept) - max(-after, 0)
    if last < first:
        raise _removed_too_much(data, axis, before, after)
    kept = kept[first:last]
    size = len(kept)
    wanted = np.arange(-max(before, 0), size + max(after, 0), dtype=np.int64)
    if size == 0 and len(wanted):
        raise KernelError(
            f"`pads` adds to axis {axis} of `data` with shape {data.shape}, where mode `{mode}` "
            "has no element to repeat"
        )
    if mode == "edge":
        return kept[np.clip(wanted, 0, max(size - 1, 0))]
    if mode == "wrap":
        return kept[wanted % max(size, 1)]
    if mode != "reflect":
        raise KernelError(f"`mode` is `{mode}`, which has no kernel")
    period = max(2 * (size - 1), 1)
    wanted %= period
    return kept[np.minimum(wanted, period - wanted) if size > 1 else wanted * 0]


def _removed_too_much(data: Array, axis: int, before: int, after: int) -> KernelError:
    return KernelError(
        f"`pads` of {before} and {after} remove more than there is from axis {axis} of `data` with "
        f"shape {data.shape}"
    )
