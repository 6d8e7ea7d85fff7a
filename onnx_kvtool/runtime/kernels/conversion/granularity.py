"""The scales and zero points of QuantizeLinear and DequantizeLinear, spread over the input."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.ops.quantization import scale_misfit
from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axis
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["Spread", "plan_spread"]


class Spread:
    """How one value per tensor, per index of an axis or per block is laid over the input.

    Args:
        axis: The axis of per-axis and blocked quantization, from the front; None per tensor.
        block: Elements per block along it; None where there are no blocks.
        shape: The shape of the input.
    """

    def __init__(self, axis: int | None, block: int | None, shape: tuple[int, ...]) -> None:
        self.axis, self.block, self.shape = axis, block, shape

    def __call__(self, values: Array) -> Array:
        """Return the values in a shape that broadcasts to that of the input."""
        if self.axis is None:
            return values.reshape(())
        if self.block is None:
            return values.reshape([-1 if i == self.axis else 1 for i in range(len(self.shape))])
        block_of = np.arange(self.shape[self.axis]) // self.block
        return np.take(values, block_of, axis=self.axis)


def plan_spread(
    x: Array, scale: Array, zero_point: Array | None, axis: int, block_size: int, prefix: str
) -> Spread:
    """Return how the scale lies over `x`, by the shapes that the text allows.

    Args:
        x: The input.
        scale: Per tensor, per axis or blocked; see `ops.quantization`.
        zero_point: None, or of the shape of `scale`.
        axis: Counted from the back if negative; not read per tensor.
        block_size: 0 unless blocked.
        prefix: `x` or `y`: how the inputs are called.

    Raises:
        KernelError: If a shape is none of these, or if `axis` is outside the rank.
    """
    names = (f"{prefix}_scale", f"{prefix}_zero_point")
    zero_dims = None if zero_point is None else zero_point.shape
    problem = scale_misfit(x.shape, scale.shape, zero_dims, axis, block_size, names)
    if problem is not None:
        raise KernelError(problem.text, help=problem.help)
    if not block_size and scale.size == 1:
        return Spread(None, None, x.shape)
    return Spread(count_axis(axis, x.ndim, of="x"), block_size or None, x.shape)
