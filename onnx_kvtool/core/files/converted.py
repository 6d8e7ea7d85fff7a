"""Weights in another element type than the one in which the source holds them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.files.external_data import array

__all__ = ["ConvertedTensor"]

_CHUNK = 1 << 22
"""Elements that are converted at a time."""


class ConvertedTensor(ir.LazyTensor):
    """A tensor whose values are those of another one, converted when they are asked for.

    Nothing is kept: each reader reads the source again, and a file is written chunk by chunk.

    Args:
        source: Where the values come from; external ones stay in their file.
        dtype: The element type of this tensor.

    Attributes:
        source: As above.
    """

    def __init__(self, source: ir.TensorProtocol, dtype: ir.DataType) -> None:
        super().__init__(
            self._whole,
            dtype,
            ir.Shape(source.shape.numpy()),
            name=source.name,
            doc_string=source.doc_string,
            metadata_props=dict(source.metadata_props),
        )
        self.source = source

    def _whole(self) -> ir.TensorProtocol:
        return ir.Tensor(array(self.source).astype(self.dtype.numpy()), dtype=self.dtype)

    def chunks(self) -> Iterator[np.ndarray[Any, Any]]:
        """Yield the values in order, flat, some at a time.

        Raises:
            UnreadableModel: If those of the source cannot be read.
        """
        flat, dtype = array(self.source).reshape(-1), self.dtype.numpy()
        for start in range(0, flat.size, _CHUNK):
            yield flat[start : start + _CHUNK].astype(dtype)

    def tofile(self, file: BinaryIO) -> None:
        """Write the values as `raw_data` of a tensor holds them: little-endian, without gaps."""
        for chunk in self.chunks():
            little = chunk.astype(chunk.dtype.newbyteorder("<"), copy=False)
            file.write(little.tobytes())
