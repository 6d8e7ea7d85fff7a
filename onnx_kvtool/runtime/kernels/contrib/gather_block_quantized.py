"""GatherBlockQuantized of onnxruntime."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axis
from onnx_kvtool.runtime.kernels.contrib.refusal import ELSEWHERE, refuse_value
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.layer import Reals, check_shape

# Elements of 2, 4 or 8 bits that lie in bytes, the first in the low bits.


def unpacked(packed: Array, bits: int) -> Array:
    """Return the elements of uint8 along the last axis, 8 / bits times as long."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    spread = packed.astype(np.uint8, copy=False)[..., None] >> shifts
    elements = spread & np.uint8(2**bits - 1)
    return elements.reshape(*packed.shape[:-1], packed.shape[-1] * shifts.size)


# GatherBlockQuantized of `com.microsoft`: a lookup in a quantized table.


_PACKED = np.dtype(np.uint8)


def gather_block_quantized(
    data: Array,
    indices: Array,
    scales: Array,
    zero_points: Array | None = None,
    *,
    bits: int,
    block_size: int,
    gather_axis: int,
    quantize_axis: int,
) -> tuple[Array]:
    """Gather slices of a table, then (data - zero_points) * scales, block by block.

    Semantics are those of docs/ContribOperators.md, and onnxruntime 1.31.1 on a CPU. The result is
    computed in float32 and rounded once.

    Args:
        data: int4 or uint4; or uint8 with elements of `bits` bits, packed along the last axis.
        indices: Any shape; counted from the back if negative. What is out of range gives zeros.
        scales: Of the shape of the table, one for each block of `quantize_axis`.
        zero_points: Of the shape of `scales`, of the dtype of `data` and packed as it; None for 0,
            and for 2^(bits - 1) where `data` is uint8.
        bits: 2, 4 or 8; has no meaning unless `data` is uint8.
        block_size: A power of two from 16 on.
        gather_axis: The axis of the slices; 0 where `data` is uint8.
        quantize_axis: The axis of the blocks, another one; the last where `data` is uint8.

    Returns:
        The table with `gather_axis` replaced by the dimensions of `indices`, of the dtype of
        `scales`.

    Raises:
        KernelError: For axes, shapes and types that do not fit, and tables of 8-bit and 4-bit
            floats, which are refused.
    """
    if data.dtype.name not in ("uint8", "int4", "uint4"):
        raise KernelError(f"`data` of dtype {data.dtype} is not implemented", help=ELSEWHERE)
    if block_size < 16 or block_size & (block_size - 1):
        raise KernelError(f"`block_size` is {block_size}, expected a power of two from 16 on")
    along = count_axis(gather_axis, data.ndim, name="gather_axis")
    blocks = count_axis(quantize_axis, data.ndim, name="quantize_axis")
    is_packed = data.dtype == _PACKED
    if is_packed:
        refuse_value("bits", bits, 2, 4, 8)
    if along == blocks or (is_packed and (along, blocks) != (0, data.ndim - 1)):
        wanted = "0 and the last axis" if is_packed else "two axes"
        raise KernelError(
            f"`gather_axis` is {gather_axis} and `quantize_axis` is {quantize_axis}, expected "
            f"{wanted} of `data` with shape {data.shape} and dtype {data.dtype}"
        )
    packed_bits = bits if is_packed else None
    sizes = list(data.shape)
    if is_packed:
        sizes[-1] *= 8 // bits
    counts = list(sizes)
    counts[blocks] = -(-sizes[blocks] // block_size)
    check_shape("scales", scales.shape, tuple(counts), "one for each block of `data`")
    if zero_points is not None:
        expected = list(counts)
        if is_packed:
            expected[-1] = -(-counts[-1] * bits // 8)
        check_shape("zero_points", zero_points.shape, tuple(expected), "one for each block")

    places = indices.astype(np.int64)
    places = np.where(places < 0, places + sizes[along], places)
    is_there = (places >= 0) & (places < sizes[along])
    if not is_there.any():
        shape = (*sizes[:along], *indices.shape, *sizes[along + 1 :])
        return (np.zeros(shape, scales.dtype),)
    places = np.where(is_there, places, 0)

    # The dimensions of the indices stand where one axis was.
    axis = blocks + (places.ndim - 1 if blocks > along else 0)

    def spread(slices: Reals) -> Reals:
        """Return the number of each block for each of its elements."""
        kept = (slice(None),) * axis + (slice(sizes[blocks]),)
        return np.asarray(np.repeat(slices, block_size, axis=axis)[kept])

    result = _numbers(np.take(data, places, axis=along), packed_bits)
    if zero_points is not None:
        zeros = _numbers(np.take(zero_points, places, axis=along), packed_bits)
        result -= spread(zeros)
    elif is_packed:
        result -= np.float32(2 ** (bits - 1))
    result *= spread(widened(np.take(scales, places, axis=along)))
    there = is_there.reshape(is_there.shape + (1,) * (data.ndim - along - 1))
    return (narrowed(np.where(there, result, np.float32(0)), scales.dtype),)


def _numbers(quantized: Array, packed_bits: int | None) -> Reals:
    """Return integers as float32, after unpacking those of `packed_bits` bits."""
    return (quantized if packed_bits is None else unpacked(quantized, packed_bits)).astype(
        np.float32
    )
