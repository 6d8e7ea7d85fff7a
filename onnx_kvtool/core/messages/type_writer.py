"""From types and shapes of onnx_ir to protobuf messages."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import onnx
import onnx_ir as ir

from onnx_kvtool.core.messages.forms import VerbatimType

__all__ = ["TypeWriter", "write_type"]


class TypeWriter:
    """Writes the types of many values.

    The tens of thousands of values of a large model have a few dozen different types, each of which
    is built once and copied from then on.

    Args:
        finish: What is done to each type that is built; None for nothing.
    """

    def __init__(self, finish: Callable[[onnx.TypeProto], None] | None = None) -> None:
        self._finish = finish
        self._built: dict[Hashable, onnx.TypeProto] = {}

    def write(
        self, out: onnx.TypeProto, type_: ir.TypeProtocol | None, shape: ir.Shape | None
    ) -> None:
        """Write the type and the shape of one value."""
        key = _key(type_, shape)
        built = None if key is None else self._built.get(key)
        if built is not None:
            out.CopyFrom(built)
            return
        write_type(out, type_, shape)
        if self._finish is not None:
            self._finish(out)
        if key is not None:
            self._built[key] = onnx.TypeProto()
            self._built[key].CopyFrom(out)


def _key(type_: ir.TypeProtocol | None, shape: ir.Shape | None) -> Hashable:
    """Return what tells the type of a tensor without denotations from others; None for others."""
    if type_.__class__ is not ir.TensorType or type_.denotation:
        return None
    if shape is None:
        return type_.dtype
    for axis in range(len(shape)):
        if shape.get_denotation(axis):
            return None
    return type_.dtype, tuple([dim if isinstance(dim, int) else dim.value for dim in shape])


def write_type(out: onnx.TypeProto, type_: ir.TypeProtocol | None, shape: ir.Shape | None) -> None:
    """Write a type, and a shape where there is one."""
    if isinstance(type_, VerbatimType):
        out.CopyFrom(type_.message)
        return
    if type_ is not None:
        ir.serde.serialize_type_into(out, type_)
    else:
        # A shape without an element type: only a tensor comes out of a file like this.
        out.tensor_type.SetInParent()
    if shape is not None:
        ir.serde.serialize_shape_into(out, shape)
