"""GatherElements-11 and -13."""

from __future__ import annotations

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.axes import count_axis
from onnx_kvtool.runtime.kernels.indices import check_index_dtype
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.places import element_places

__all__ = ["gather_elements"]


def gather_elements(data: Array, indices: Array, *, axis: int) -> tuple[Array]:
    """Take one element of `data` per index, whose other coordinates are those of the index.

    For a matrix and axis 0: `output[i, j] = data[indices[i, j], j]`.

    Args:
        data: (D0, ..., Dn), rank 1 or more, any dtype.
        indices: (I0, ..., In), int32 or int64; -s to s - 1 where s is the size of `axis`. Other
            dimensions are at most those of `data`. May be empty.
        axis: Axis of `data`, counted from the back if negative.

    Returns:
        One array with the shape of `indices` and the dtype of `data`.

    Raises:
        KernelError: If ranks or dimensions do not fit; if `indices` is of another dtype; if `axis`
            or an index is out of range.
    """
    check_index_dtype(indices)
    shapes = f"shapes {indices.shape} and {data.shape}"
    if data.ndim == 0:
        raise KernelError("`data` has rank 0, expected at least 1")
    if indices.ndim != data.ndim:
        raise KernelError(
            f"`indices` has rank {indices.ndim}, expected {data.ndim} as `data`: {shapes}"
        )
    axis = count_axis(axis, data.ndim)
    for dim, (got, limit) in enumerate(zip(indices.shape, data.shape, strict=True)):
        if dim != axis and got > limit and indices.size:
            raise KernelError(
                f"`indices` has size {got} in dimension {dim}, expected at most {limit} as `data`: "
                f"{shapes}, axis {axis}"
            )
    places = element_places(indices, data.shape, axis)
    return (data.reshape(-1)[places].reshape(indices.shape),)
