"""Whether onnx_ir has a form for the type of a value, and whether anyone knows it."""

from __future__ import annotations

import onnx

from onnx_kvtool.core.judging.tensor_claims import unknown_type
from onnx_kvtool.core.location import Location
from onnx_kvtool.core.storage import ELEMENT_TYPES

__all__ = ["has_form", "is_nameless_opaque", "is_plain_tensor"]

_KNOWN = ELEMENT_TYPES - {onnx.TensorProto.UNDEFINED}


def is_plain_tensor(type_: onnx.TypeProto) -> bool:
    """Return whether `type_` is a tensor of a known element type: nearly every type there is."""
    return type_.HasField("tensor_type") and type_.tensor_type.elem_type in _KNOWN


def is_nameless_opaque(type_: onnx.TypeProto) -> bool:
    """Return whether a type, or what it holds, is an opaque one without a name."""
    kind = type_.WhichOneof("value")
    if kind in ("sequence_type", "optional_type"):
        return is_nameless_opaque(getattr(type_, str(kind)).elem_type)
    if kind == "map_type":
        return is_nameless_opaque(type_.map_type.value_type)
    return kind == "opaque_type" and not type_.opaque_type.name


def has_form(type_: onnx.TypeProto, location: Location) -> bool:
    """Return whether onnx_ir keeps `type_` as it is.

    It keeps tensors, sparse tensors, and sequences and optionals of those. It refuses maps, and
    sequences and optionals of something that is not said; it drops opaque types and a denotation
    without a type. A tensor without an element type loses nothing: its shape is kept apart.

    Args:
        type_: Type of a value, or of what a sequence or an optional holds.
        location: The value, for the message.

    Raises:
        MalformedModel: If the element type is unknown.
    """
    return _has_form(type_, location, nested=False)


def _has_form(type_: onnx.TypeProto, location: Location, *, nested: bool) -> bool:
    if type_.HasField("tensor_type"):
        tensor: onnx.TypeProto.Tensor | onnx.TypeProto.SparseTensor = type_.tensor_type
    elif type_.HasField("sparse_tensor_type"):
        tensor = type_.sparse_tensor_type
        nested = True  # onnx_ir knows a sparse tensor by its element type alone
    elif type_.HasField("sequence_type"):
        return _has_form(type_.sequence_type.elem_type, location, nested=True)
    elif type_.HasField("optional_type"):
        return _has_form(type_.optional_type.elem_type, location, nested=True)
    else:
        # No type at all is what onnx_ir has a form for: None.
        return not nested and type_.WhichOneof("value") is None and not type_.denotation
    if tensor.elem_type not in ELEMENT_TYPES:
        raise unknown_type(tensor.elem_type, location)
    return tensor.HasField("elem_type") or not (nested or type_.denotation)
