"""The scales and zero points of QuantizeLinear and DequantizeLinear, spread over the input."""

from __future__ import annotations

import numpy as np

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
        scale: A scalar, or one element in 1-D as exporters write it: per tensor; 1-D of the size of
            `axis`: per axis; the shape of `x` with ceil(size / `block_size`) along `axis`: blocked.
        zero_point: None, or of the shape of `scale`; one element may be a scalar here and 1-D
            there, as in the backend cases.
        axis: Counted from the back if negative; not read per tensor.
        block_size: 0 unless blocked.
        prefix: `x` or `y`: how the inputs are called.

    Raises:
        KernelError: If a shape is none of these, or if `axis` is outside the rank.
    """
    name = f"`{prefix}_scale`"
    single = scale.size == 1 and scale.ndim <= 1
    both_single = single and zero_point is not None and zero_point.shape in ((), (1,))
    if zero_point is not None and zero_point.shape != scale.shape and not both_single:
        raise KernelError(
            f"`{prefix}_zero_point` has shape {zero_point.shape}, expected {scale.shape} as {name}"
        )
    if block_size < 0:
        raise KernelError(f"`block_size` is {block_size}, expected a positive number")
    if single:
        return Spread(None, None, x.shape)
    axis = count_axis(axis, x.ndim, of="x")
    size = x.shape[axis]
    if block_size:
        blocks = -(-size // block_size)
        expected = (*x.shape[:axis], blocks, *x.shape[axis + 1 :])
        if scale.shape != expected:
            raise KernelError(
                f"{name} has shape {scale.shape}, expected {expected}: "
                f"blocks of {block_size} along axis {axis} of `x` with shape {x.shape}"
            )
        return Spread(axis, block_size, x.shape)
    if scale.shape != (size,):
        raise KernelError(
            f"{name} has shape {scale.shape}, expected () or ({size},): "
            f"axis {axis} of `x` with shape {x.shape}",
            help="give `block_size` if the scale has the rank of `x`"
            if scale.ndim == x.ndim > 1
            else None,
        )
    return Spread(axis, None, x.shape)
