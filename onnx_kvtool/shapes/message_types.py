"""Types as messages hold them."""

from __future__ import annotations

import onnx
import onnx_ir as ir

__all__ = ["read_type"]


def read_type(message: onnx.TypeProto) -> ir.TypeProtocol | None:
    """Return the type that a message holds; None for one that does not say of what it is."""
    try:
        return ir.serde.deserialize_type_proto_for_type(message)
    except ir.serde.SerdeError:
        return None
