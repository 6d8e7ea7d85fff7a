"""The bias that every attention of `com.microsoft` takes."""

from __future__ import annotations

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["check_attention_bias"]


def check_attention_bias(bias: Array, shape: tuple[int, int, int, int]) -> None:
    """Check the shape of a bias, of which only batch and heads are broadcast.

    Args:
        bias: The bias.
        shape: Batch, heads, query rows and key rows of the scores.

    Raises:
        KernelError: If it has another shape, the first two dimensions being 1 or not.
    """
    if bias.ndim != 4 or any(
        got != want and not (axis < 2 and got == 1)
        for axis, (got, want) in enumerate(zip(bias.shape, shape, strict=True))
    ):
        raise KernelError(
            f"`attention_bias` has shape {bias.shape}, expected {shape}, the first two perhaps 1: "
            "(batch, heads, query rows, all key rows)"
        )
