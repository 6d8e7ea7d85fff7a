"""MatMulNBits of `com.microsoft`: a product with a matrix of 2, 4 or 8 bits an element."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.contrib.packed_bits import unpacked
from onnx_kvtool.runtime.kernels.contrib.refusal import refuse_input, refuse_value
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.layer import Reals, check_shape

__all__ = ["mat_mul_n_bits"]


def mat_mul_n_bits(
    A: Array,
    B: Array,
    scales: Array,
    zero_points: Array | None = None,
    g_idx: Array | None = None,
    bias: Array | None = None,
    *,
    K: int,
    N: int,
    accuracy_level: int,
    bits: int,
    block_size: int,
    weight_prepacked: int,
) -> tuple[Array]:
    """Multiply by the transpose of (B - zero_points) * scales, and add a bias.

    Semantics are those of docs/ContribOperators.md, and onnxruntime 1.31.1 on a CPU. Everything is
    computed in float32 and rounded once, at every `accuracy_level`, which is a least one:
    onnxruntime rounds `A` to eight bits at 4.

    Args:
        A: (..., K), rank 1 or more.
        B: (N, blocks, block_size * bits / 8), uint8, the first elements in the low bits; blocks is
            K / block_size rounded up, and what lies behind K is not looked at.
        scales: (N, blocks), or flat.
        zero_points: (N, blocks * bits / 8 rounded up), uint8, packed as `B`, or flat; or (N,
            blocks) of the type of `A`. None for 2^(bits - 1).
        g_idx: (K,), the block whose scale and zero point each column of the weight has; None for
            its own. With 4 bits, and zero points of the type of `A`: onnxruntime 1.32 refuses
            others, or forgets them.
        bias: (N,); None for zero.
        K: Columns of `A`.
        N: Columns of the result.
        accuracy_level: 0 to 4.
        bits: 2, 4 or 8.
        block_size: A power of two from 16 on.
        weight_prepacked: 0.

    Returns:
        (..., N), of the type of `A`.

    Raises:
        KernelError: For another shape, size of an element or of a block, and what is refused.
    """
    if g_idx is not None:
        refuse_value("bits", bits, 4)
        if zero_points is not None and zero_points.dtype == np.uint8:
            refuse_input("g_idx", g_idx)
    refuse_value("weight_prepacked", weight_prepacked, 0)
    refuse_value("bits", bits, 2, 4, 8)
    refuse_value("accuracy_level", accuracy_level, 0, 1, 2, 3, 4)
    if block_size < 16 or block_size & (block_size - 1):
        raise KernelError(f"`block_size` is {block_size}, expected a power of two from 16 on")
    if K < 1 or N < 1:
        raise KernelError(f"`K` is {K} and `N` is {N}, expected 1 or more")
    if A.ndim == 0 or A.shape[-1] != K:
        raise KernelError(f"`A` has shape {A.shape}, expected {K} as the last dimension: `K`")
    blocks = -(-K // block_size)
    check_shape("B", B.shape, (N, blocks, block_size * bits // 8), "(`N`, blocks, bytes of one)")
    if bias is not None:
        check_shape("bias", bias.shape, (N,), "`N`")
    factors = widened(_flat_or("scales", scales, (N, blocks)))
    weights: Reals = unpacked(B, bits).astype(np.float32)
    zeros = _zero_points(zero_points, bits, (N, blocks))
    block_of: Array = np.arange(K) // block_size
    if g_idx is not None:
        check_shape("g_idx", g_idx.shape, (K,), "one block for each column")
        block_of = g_idx.astype(np.int64)
        if block_of.min() < 0 or block_of.max() >= blocks:
            raise KernelError(f"`g_idx` has {block_of.max()}, expected 0 to {blocks - 1}")
    with np.errstate(all="ignore"):
        weights = weights.reshape(N, -1)[:, :K] - zeros[:, block_of]
        weights *= factors[:, block_of]
        product = np.asarray(np.matmul(widened(A), weights.T))
        if bias is not None:
            product = product + widened(bias)
        return (narrowed(product, A.dtype),)


def _zero_points(given: Array | None, bits: int, shape: tuple[int, int]) -> Reals:
    """Return the zero point of each block, in float32: (N, blocks)."""
    if given is None:
        return np.full(shape, 2 ** (bits - 1), np.float32)
    if given.dtype != np.uint8:
        return widened(_flat_or("zero_points", given, shape)).astype(np.float32, copy=False)
    columns, blocks = shape
    packed = _flat_or("zero_points", given, (columns, -(-blocks * bits // 8)))
    return unpacked(packed, bits)[:, :blocks].astype(np.float32)


def _flat_or(name: str, values: Array, shape: tuple[int, int]) -> Array:
    """Return values in two dimensions that may be given in one, as older exporters write them."""
    if values.shape == (shape[0] * shape[1],):
        return values.reshape(shape)
    check_shape(name, values.shape, shape, "one row for each of `N`")
    return values
