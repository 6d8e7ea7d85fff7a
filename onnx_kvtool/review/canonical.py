"""A model as one message in which everything that readers do not tell apart is the same.

Tensors are told by their values or by a digest of these, whatever field or file holds them.
"""

from __future__ import annotations

import onnx
import onnx_ir as ir

from onnx_kvtool.core.errors import UnreadableModel
from onnx_kvtool.core.messages.forms import SparseInitializer
from onnx_kvtool.core.messages.message import MessageWriter
from onnx_kvtool.core.model import reason
from onnx_kvtool.core.origin import origin
from onnx_kvtool.review.digests import Digests

__all__ = ["CONTENT", "REMARK", "CanonicalWriter", "canonical"]

CONTENT, REMARK = "kvtool.content", "kvtool.remark"
"""Entries of `external_data` that say what a tensor holds, and what people read beside it."""


class CanonicalWriter(MessageWriter):
    """Writes tensors as what they hold; see `Digests.content`.

    Args:
        digests: Says what tensors hold.
    """

    def __init__(self, digests: Digests) -> None:
        super().__init__()  # without `value_info` that only repeats an initializer
        self._digests = digests

    def tensor(self, out: onnx.TensorProto, tensor: ir.TensorProtocol) -> None:
        """Write type, shape and content of one tensor, and what is said about it."""
        out.data_type = int(tensor.dtype)
        out.dims.extend(tensor.shape.numpy())
        if tensor.name:
            out.name = tensor.name
        if tensor.doc_string:
            out.doc_string = tensor.doc_string
        self.metadata(out, tensor.metadata_props)
        content, remark = self._digests.content(tensor)
        out.external_data.add(key=CONTENT, value=content)
        if remark:
            out.external_data.add(key=REMARK, value=remark)

    def initializer(self, out: onnx.GraphProto, name: str, tensor: ir.TensorProtocol) -> None:
        """Write one initializer; a sparse one is told as the others."""
        written = out.initializer.add()
        self.tensor(written, tensor)
        written.name = name
        if isinstance(tensor, SparseInitializer):
            written.external_data.add(key=REMARK, value="sparse")


def canonical(model: ir.Model, digests: Digests) -> onnx.ModelProto:
    """Return the message of a model, with opset imports, functions and metadata sorted.

    Nodes, values and attributes stand in the order of the file.

    Raises:
        UnreadableModel: If the model holds what has no written form, such as text that is not UTF-8
            where onnx has text.
    """
    try:
        message = CanonicalWriter(digests).model(model)
    except (ir.serde.SerdeError, TypeError, ValueError) as error:
        raise UnreadableModel(f"it cannot be written as text: {reason(error)}") from error
    message.training_info.extend(origin(model).training)
    message.opset_import.sort(key=lambda entry: entry.domain)
    message.functions.sort(key=lambda f: (f.domain, f.name, f.overload))
    return message
