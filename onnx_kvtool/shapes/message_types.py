"""Types as messages hold them."""

from __future__ import annotations

import onnx
import onnx_ir as ir

__all__ = ["innermost", "read_type"]


def innermost(message: onnx.TypeProto) -> onnx.TypeProto.Tensor | None:
    """Return the type of the tensors that a type holds; None where it holds none.

    That is a tensor itself, the elements of a sequence, or what an optional may hold.
    """
    while (kind := message.WhichOneof("value")) in ("sequence_type", "optional_type"):
        message = getattr(message, str(kind)).elem_type
    return message.tensor_type if kind == "tensor_type" else None


def read_type(message: onnx.TypeProto) -> ir.TypeProtocol | None:
    """Return the type that a message holds; None for one that does not say of what it is."""
    try:
        return ir.serde.deserialize_type_proto_for_type(message)
    except ir.serde.SerdeError:
        return None
