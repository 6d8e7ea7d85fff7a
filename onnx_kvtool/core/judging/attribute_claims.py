"""Whether the value of an attribute message stands where its type says."""

from __future__ import annotations

import onnx

__all__ = ["is_utf8", "misplaced_value"]

_A = onnx.AttributeProto

# The fields of an attribute that hold a value, and the type that each is for.
_VALUE_FIELDS: dict[str, int] = {
    "f": _A.FLOAT,
    "i": _A.INT,
    "s": _A.STRING,
    "t": _A.TENSOR,
    "g": _A.GRAPH,
    "sparse_tensor": _A.SPARSE_TENSOR,
    "tp": _A.TYPE_PROTO,
    "floats": _A.FLOATS,
    "ints": _A.INTS,
    "strings": _A.STRINGS,
    "tensors": _A.TENSORS,
    "graphs": _A.GRAPHS,
    "sparse_tensors": _A.SPARSE_TENSORS,
    "type_protos": _A.TYPE_PROTOS,
}


def misplaced_value(attribute: onnx.AttributeProto) -> str | None:
    """Return what is wrong with the fields in which a value stands; None when nothing is.

    onnx_ir takes the field that the type says; a number that is absent there becomes 0.
    """
    filled = [f.name for f, _ in attribute.ListFields() if f.name in _VALUE_FIELDS]
    if attribute.ref_attr_name:
        if not filled:
            return None
        return (
            f"attribute `{attribute.name}` refers to a parameter and has a value in `{filled[0]}`"
        )
    if len(filled) > 1:
        return f"attribute `{attribute.name}` has values in `{filled[0]}` and in `{filled[1]}`"
    if filled and _VALUE_FIELDS[filled[0]] != attribute.type:
        kind = _A.AttributeType.Name(attribute.type)
        return f"attribute `{attribute.name}` of type {kind} has its value in `{filled[0]}`"
    return None


def is_utf8(text: bytes) -> bool:
    """Return whether bytes are text."""
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
