"""Checks of shapes that several kernels share."""

from __future__ import annotations

from onnx_kvtool.runtime.errors import KernelError

__all__ = ["check_broadcasts", "check_rank", "check_shape"]

Shape = tuple[int, ...]


def check_broadcasts(name: str, shape: Shape, target_name: str, target: Shape) -> None:
    """Check that a shape is unidirectionally broadcastable to another.

    Raises:
        KernelError: If its rank is greater, or a dimension, aligned at the end, is neither 1 nor
            that of the target.
    """
    aligned = target[len(target) - len(shape) :] if len(shape) <= len(target) else None
    if aligned is None or any(a not in (1, b) for a, b in zip(shape, aligned, strict=True)):
        raise KernelError(
            f"`{name}` has shape {shape}, which does not broadcast to {target} of `{target_name}`"
        )


def check_rank(name: str, shape: Shape, least: int, layout: str) -> None:
    """Check that a shape has a least rank.

    Raises:
        KernelError: If it has fewer dimensions; the message gives `layout`.
    """
    if len(shape) < least:
        raise KernelError(
            f"`{name}` has rank {len(shape)} (shape {shape}), expected at least {least}: {layout}"
        )


def check_shape(name: str, shape: Shape, expected: Shape, why: str) -> None:
    """Check that a shape is what it has to be.

    Raises:
        KernelError: If it is another; the message ends in `why`.
    """
    if shape != expected:
        raise KernelError(f"`{name}` has shape {shape}, expected {expected}: {why}")
