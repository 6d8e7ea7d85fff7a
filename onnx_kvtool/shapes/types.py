"""Types of values as messages hold them, and written where they are missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from onnx_kvtool.symbolic.dimensions import is_invented
from onnx_kvtool.symbolic.rules.contrib import Contrib

# Types as messages hold them.


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


# Types of the outputs of an operator of onnxruntime.


_Types = Callable[[ir.Value], "ir.TypeProtocol | None"]


def contrib_types(
    node: ir.Node, contrib: Contrib, type_of: _Types
) -> Sequence[ir.TypeProtocol | None]:
    """Return the type of each output of an operator of the table of contrib operators."""
    found: list[ir.TypeProtocol | None] = []
    for index in range(len(node.outputs)):
        how = contrib.types.get(index, (0,))
        if isinstance(how, ir.DataType):
            found.append(ir.TensorType(how))
            continue
        given = (node.inputs[i] for i in how if i < len(node.inputs))
        known = (type_of(value) for value in given if value is not None)
        found.append(next((type_ for type_ in known if type_ is not None), None))
    return found


# Writing what onnx's inference found on the values that lack it.


Addition = tuple[ir.Value, ir.TypeProtocol | None, ir.Shape | None]
"""A value that inference changed, with its declared type and shape."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """What one type says.

    Attributes:
        type: The type; None for one that does not say of what it is.
        is_plain: Whether `type` is that of a tensor, and says no more than the element type.
        dims: The dimensions, invented names left out; None where there is no shape.
        shape: The same as a shape that can be shared.
        doubtful: Whether a size of 0 was left out.
    """

    type: ir.TypeProtocol | None
    is_plain: bool
    dims: list[int | str | None] | None
    shape: ir.Shape | None
    doubtful: bool


class Completion:
    """Writes inferred types on values.

    The thousands of values of a large model have few different types, each of which is read once.

    Args:
        frozen: Whether values may share types and shapes, which must not be edited then.

    Attributes:
        added: Each value that was written on.
        doubtful: Whether a size of 0 was left out. onnx's rules take a size without number for 0
            here and there (the scores of Attention, where the number of keys is a name).
    """

    def __init__(self, *, frozen: bool) -> None:
        self.added: list[Addition] = []
        self.doubtful = False
        self._frozen = frozen
        self._readings: dict[bytes, _Reading | None] = {}

    def write(self, value: ir.Value, inferred: onnx.TypeProto) -> None:
        """Complete the type and the shape of one value; what is declared of it stays."""
        key = inferred.SerializeToString()
        if key not in self._readings:
            self._readings[key] = _read(inferred)
        reading = self._readings[key]
        if reading is None:
            return
        self.doubtful = self.doubtful or reading.doubtful
        declared = value.shape
        self.added.append((value, value.type, declared))
        if value.type is None:
            value.type = self._type(reading, inferred)
        if reading.dims is None:
            return
        if declared is None:
            value.shape = reading.shape if self._frozen else ir.Shape(reading.dims)
        elif len(declared) == len(reading.dims):
            dims = [_known(d, i) for d, i in zip(declared, reading.dims, strict=True)]
            value.shape = ir.Shape(dims)

    def complete(self, value: ir.Value, annotate: Callable[[ir.Value], None]) -> None:
        """Let something else annotate a value; what is declared of it stays."""
        type_, shape = value.type, value.shape
        annotate(value)
        self.added.append((value, type_, shape))
        value.type = type_ or value.type
        found = value.shape
        if shape is None and found is not None and not self._frozen:
            value.shape = ir.Shape(list(found))
        elif shape is not None and found is not None and len(shape) == len(found):
            inferred = [dim if isinstance(dim, int) else dim.value for dim in found]
            dims = [_known(d, i) for d, i in zip(shape, inferred, strict=True)]
            value.shape = ir.Shape(dims)
        else:
            value.shape = shape or found

    def _type(self, reading: _Reading, inferred: onnx.TypeProto) -> ir.TypeProtocol | None:
        if self._frozen or reading.type is None:
            return reading.type
        return ir.TensorType(reading.type.dtype) if reading.is_plain else read_type(inferred)


def _read(inferred: onnx.TypeProto) -> _Reading | None:
    """Return the description of a type; None if it has no content."""
    if not inferred.WhichOneof("value"):
        return None
    type_ = read_type(inferred)
    is_plain = isinstance(type_, ir.TensorType) and not type_.denotation
    try:
        shape = ir.serde.deserialize_type_proto_for_shape(inferred)
    except ir.serde.SerdeError:  # onnx_ir has no form for maps
        shape = None
    dims = None if shape is None else [_named(dim) for dim in shape]
    frozen = None if dims is None else ir.Shape(dims, frozen=True)
    return _Reading(type_, is_plain, dims, frozen, shape is not None and 0 in list(shape))


def _named(dim: int | ir.SymbolicDim) -> int | str | None:
    if isinstance(dim, int):
        return dim or None
    return None if not dim.value or is_invented(dim.value) else dim.value


def _known(declared: int | ir.SymbolicDim, inferred: int | str | None) -> int | str | None:
    if isinstance(declared, int):
        return declared
    return declared.value if declared.value is not None else inferred
