"""Inputs that must be scalars."""

from __future__ import annotations

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Array, Context

__all__ = ["read_scalar"]


def read_scalar(value: Array, name: str, context: Context) -> Array:
    """Return an input as an array of rank 0.

    One element in one dimension, which exporters write and onnxruntime 1.31 takes, is accepted
    with a warning.

    Args:
        value: The input.
        name: Its formal name.
        context: Told about the dimension.

    Raises:
        KernelError: If `value` has another shape than () or (1,).
    """
    if value.ndim == 0:
        return value
    if value.shape != (1,):
        raise KernelError(f"`{name}` has shape {value.shape}, expected ()")
    context.warn(f"`{name}` has shape (1,), expected (): taken as a scalar")
    return value.reshape(())
