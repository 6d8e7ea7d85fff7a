"""The file of external data: tensors are drawn and written piece by piece."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, numpy_helper

__all__ = ["NUMPY", "ONNX", "DataFile"]

ONNX = {"fp32": TensorProto.FLOAT, "fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
NUMPY: dict[str, Any] = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}

_DRAWN = 4_194_301
"""Values drawn for a tensor; a larger one repeats them. A prime, so that no two rows are alike."""
_ALIGNMENT = 4096
_INLINE = 1024
"""Bytes from which on a tensor goes to the file."""

Draw = Callable[[np.random.Generator, int], npt.NDArray[Any]]
"""Returns so many values in the type that is stored."""


class DataFile:
    """Initializers of a model, the larger ones in a file.

    Attributes:
        tensors: What was put so far, in that order.
    """

    def __init__(self, path: Path, *, sparse: bool, seed: int) -> None:
        """Open the file anew; with `sparse` what is drawn is not written: holes read as zeros."""
        self.tensors: list[TensorProto] = []
        self._path, self._sparse = path, sparse
        self._file = path.open("wb")
        self._rng = np.random.default_rng(seed)

    def close(self) -> None:
        """Give the file its full size."""
        self._file.truncate(max(self._file.tell(), self._end()))
        self._file.close()

    def put(self, name: str, array: npt.NDArray[Any]) -> str:
        """Store an array; return its name."""
        if array.nbytes < _INLINE:
            self.tensors.append(numpy_helper.from_array(array, name))
        else:
            element = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
            self._begin(name, element, array.shape, array.nbytes)
            self._file.write(np.ascontiguousarray(array).tobytes())
        return name

    def draw(self, name: str, element: int, dims: tuple[int, ...], count: int, draw: Draw) -> str:
        """Store a tensor of random values; return its name.

        Args:
            name: Of the tensor.
            element: Its TensorProto.DataType.
            dims: Its shape.
            count: Values to store, which are bytes where elements are packed.
            draw: Draws them.
        """
        if count <= _INLINE // 4 or not self._sparse:
            values = draw(self._rng, min(count, _DRAWN))
            self._begin(name, element, dims, count * values.itemsize)
            while count:
                written = values[: min(count, _DRAWN)]
                self._file.write(written.tobytes())
                count -= len(written)
        else:
            self._begin(name, element, dims, count * draw(self._rng, 1).itemsize)
        return name

    def _begin(self, name: str, element: int, dims: tuple[int, ...], length: int) -> None:
        offset = -(-self._end() // _ALIGNMENT) * _ALIGNMENT
        self._file.seek(offset)
        tensor = TensorProto(name=name, data_type=element, dims=dims)
        tensor.data_location = TensorProto.EXTERNAL
        entries = {"location": self._path.name, "offset": offset, "length": length}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=str(value))
        self.tensors.append(tensor)

    def _end(self) -> int:
        for tensor in reversed(self.tensors):
            if tensor.data_location == TensorProto.EXTERNAL:
                entries = {entry.key: int(entry.value) for entry in tensor.external_data[1:]}
                return entries["offset"] + entries["length"]
        return 0
