"""Forms for what onnx_ir has none for: kept verbatim, and opaque to whoever looks at them."""

from __future__ import annotations

import math
from collections.abc import MutableMapping
from typing import Any, NoReturn

import numpy as np
import onnx
import onnx_ir as ir

from onnx_kvtool.core.errors import KvtoolError

__all__ = ["SparseInitializer", "VerbatimType"]


class VerbatimType:
    """A type that onnx_ir has no form for, such as a map.

    Attributes:
        message: The type as it stood in the file.
        denotation: What the whole type stands for, or None.
        elem_type: `UNDEFINED`: there is none that onnx_ir could name.
        dtype: `UNDEFINED`, too.
    """

    def __init__(self, message: onnx.TypeProto) -> None:
        self.message = message
        self.denotation: str | None = message.denotation or None
        self.elem_type: ir.TypeProtocol | ir.DataType = ir.DataType.UNDEFINED
        self.dtype = ir.DataType.UNDEFINED

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VerbatimType) and bool(self.message == other.message)

    def __hash__(self) -> int:
        return hash(self.message.SerializeToString(deterministic=True))

    def __repr__(self) -> str:
        return f"VerbatimType({self.message.WhichOneof('value') or 'nothing'})"


class SparseInitializer:
    """A sparse initializer: a constant of a known shape whose values are not read.

    onnxruntime turns it into a dense tensor when it loads the model; for whoever asks kvtool for
    the values they are unknown, and asking is an error.

    Attributes:
        raw: The `SparseTensorProto` as it stood in the file.
        name: Name of the initializer.
        dtype: Type of the elements.
        shape: Shape of the dense tensor that is meant.
        doc_string: Always None; the message keeps what its tensors say of themselves.
        metadata_props: Always empty, for the same reason.
        meta: Remarks that are not written to a file.
    """

    def __init__(self, raw: onnx.SparseTensorProto) -> None:
        self.raw: Any = raw
        self.name: str | None = raw.values.name
        self.dtype = ir.DataType(raw.values.data_type)
        self.shape: ir.ShapeProtocol = ir.Shape(raw.dims, frozen=True)
        self.doc_string: str | None = None
        self.metadata_props: MutableMapping[str, str] = {}
        self.meta: MutableMapping[str, Any] = {}

    @property
    def size(self) -> int:
        """Number of elements of the dense tensor."""
        return int(math.prod(self.raw.dims))

    @property
    def nbytes(self) -> int:
        """Bytes that the values other than zero take."""
        if self.dtype is ir.DataType.STRING:
            return sum(len(text) for text in self.raw.values.string_data)
        return int(math.prod(self.raw.values.dims)) * self.dtype.bitwidth // 8

    def _refuse(self) -> NoReturn:
        raise KvtoolError(
            f"the values of the sparse initializer `{self.name}` cannot be read",
            help="make it dense in the exporter",
        )

    def numpy(self) -> np.ndarray[Any, Any]:
        """Refuse.

        Raises:
            KvtoolError: Always.
        """
        self._refuse()

    def tobytes(self) -> bytes:
        """Refuse.

        Raises:
            KvtoolError: Always.
        """
        self._refuse()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        self._refuse()

    def __dlpack__(self, *, stream: Any = None) -> Any:
        self._refuse()

    def __dlpack_device__(self) -> tuple[int, int]:
        self._refuse()

    def __repr__(self) -> str:
        return f"SparseInitializer({self.name!r}, {self.dtype}, {list(self.raw.dims)})"
