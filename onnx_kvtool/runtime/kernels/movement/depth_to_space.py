"""DepthToSpace and SpaceToDepth, all versions."""

from __future__ import annotations

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.kernel import Array

__all__ = ["depth_to_space", "space_to_depth"]


def depth_to_space(input: Array, *, blocksize: int, mode: str = "DCR") -> tuple[Array]:
    """Move blocks of channels into the plane.

    Args:
        input: (N, C, H, W), any dtype; C a multiple of `blocksize` squared.
        blocksize: Height and width of a block, in elements, 1 or more.
        mode: Order of the channels: `DCR`, row and column of the block before the channels of the
            result, as in version 1; `CRD`, the channels of the result first.

    Returns:
        (N, C / blocksize**2, H * blocksize, W * blocksize).

    Raises:
        KernelError: If `input` is not of rank 4; if C is no such multiple; if `blocksize` is below
            1; if `mode` is another string.
    """
    _check(input, blocksize, mode)
    batch, channels, height, width = input.shape
    if channels % blocksize**2:
        raise KernelError(
            f"`input` has {channels} channels, expected a multiple of {blocksize**2}: shape "
            f"{input.shape}, `blocksize` {blocksize}"
        )
    inner = channels // blocksize**2
    if mode == "DCR":
        blocks = input.reshape(batch, blocksize, blocksize, inner, height, width)
        blocks = blocks.transpose(0, 3, 4, 1, 5, 2)
    else:
        blocks = input.reshape(batch, inner, blocksize, blocksize, height, width)
        blocks = blocks.transpose(0, 1, 4, 2, 5, 3)
    return (blocks.reshape(batch, inner, height * blocksize, width * blocksize),)


def space_to_depth(input: Array, *, blocksize: int, mode: str = "DCR") -> tuple[Array]:
    """Move blocks of the plane into channels: the reverse of `depth_to_space`.

    Args:
        input: (N, C, H, W), any dtype; H and W multiples of `blocksize`.
        blocksize: Height and width of a block, in elements, 1 or more.
        mode: As of `depth_to_space`; `DCR` before version 28.

    Returns:
        (N, C * blocksize**2, H / blocksize, W / blocksize).

    Raises:
        KernelError: If `input` is not of rank 4; if H or W is no multiple; if `blocksize` is below
            1; if `mode` is another string.
    """
    _check(input, blocksize, mode)
    batch, channels, height, width = input.shape
    if height % blocksize or width % blocksize:
        raise KernelError(
            f"`input` has a plane of {height} by {width}, expected multiples of {blocksize}: shape "
            f"{input.shape}"
        )
    rows, columns = height // blocksize, width // blocksize
    blocks = input.reshape(batch, channels, rows, blocksize, columns, blocksize)
    blocks = blocks.transpose((0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4))
    return (blocks.reshape(batch, channels * blocksize**2, rows, columns),)


def _check(value: Array, blocksize: int, mode: str) -> None:
    if value.ndim != 4:
        raise KernelError(f"`input` has shape {value.shape}, expected four dimensions")
    if blocksize < 1:
        raise KernelError(f"`blocksize` is {blocksize}, expected 1 or more")
    if mode not in ("DCR", "CRD"):
        raise KernelError(f"`mode` is `{mode}`, expected `DCR` or `CRD`")
