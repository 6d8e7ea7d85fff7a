"""The two forms in which reductions take their axes: an attribute, later an input."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from onnx_kvtool.runtime.kernels.axes import count_axes, read_integers
from onnx_kvtool.runtime.kernels.kernel import Array, Context, KernelFunction

__all__ = ["Reduction", "axes_by_attribute", "axes_by_input"]

Reduction = Callable[[Array, tuple[int, ...], bool, Context], Array]
"""Reduces (data, axes from the front, keepdims, context); the result has the dtype of the data. No
axes reduce nothing, but steps that are no reduction (squares, logarithms) are still done."""


def axes_by_attribute(reduction: Reduction) -> KernelFunction:
    """Return a kernel of the versions whose axes are an attribute.

    Axes that are absent or an empty list are all axes. Negative axes, which version 1 does not
    mention, count from the back.
    """

    def kernel(
        data: Array, *, axes: tuple[int, ...] | None = None, keepdims: int = 1, context: Context
    ) -> tuple[Array]:
        chosen = count_axes(axes, data.ndim) if axes else tuple(range(data.ndim))
        return (_reduce(reduction, data, chosen, keepdims, context),)

    return kernel


def axes_by_input(reduction: Reduction) -> KernelFunction:
    """Return a kernel of the versions whose axes are an input.

    Axes that are absent or empty are all axes, or none where `noop_with_empty_axes` says so.
    """

    def kernel(
        data: Array,
        axes: Array | None = None,
        *,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
        context: Context,
    ) -> tuple[Array]:
        given = [] if axes is None else read_integers(axes, "axes")
        if given or noop_with_empty_axes:
            chosen = count_axes(given, data.ndim)
        else:
            chosen = tuple(range(data.ndim))
        return (_reduce(reduction, data, chosen, keepdims, context),)

    return kernel


def _reduce(
    reduction: Reduction, data: Array, axes: tuple[int, ...], keepdims: int, context: Context
) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(reduction(data, axes, keepdims != 0, context), data.dtype)
