"""ONNX's own syntax for names, types and attributes, as `onnx.parser` reads it.

onnx's printer leaves out default values of function attributes and every metadata below the model,
writes all values on one line, and fails for text that is not UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import onnx

from onnx_kvtool.core.words import escape

__all__ = [
    "identifier",
    "number",
    "quoted",
    "reference_text",
    "scalar_attribute",
    "type_text",
    "word",
]

_A = onnx.AttributeProto
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD = re.compile(r"[A-Za-z0-9_.-]+")
_TYPE_WORDS = frozenset(
    {name.lower() for name in onnx.TensorProto.DataType.keys()}  # noqa: SIM118  no mapping
    | {"seq", "map", "optional", "sparse_tensor", "opaque"}
)


def quoted(text: str | bytes) -> str:
    r"""Return text between quotes; what is not printable is written as an escape (`\n`, `\xff`).

    Examples:
        >>> from onnx_kvtool.review.syntax import quoted
        >>> print(quoted('say "hi"'))
        "say \"hi\""
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    return escape('"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"')


def identifier(name: str) -> str:
    """Return the name of a value, node, graph or dimension, quoted where it has to be."""
    if _NAME.fullmatch(name) and name not in _TYPE_WORDS:
        return name
    return quoted(name)


def word(text: str) -> str:
    """Return a domain, or the name of an operator or attribute, which the syntax never quotes.

    What no operator is called stands in quotes nevertheless, so that it is no more than a word.
    """
    return text if _WORD.fullmatch(text) else quoted(text)


def number(value: float) -> str:
    """Return a float32 in the shortest form from which it can be read back."""
    return str(np.float32(value))


def reference_text(attribute: onnx.AttributeProto) -> str:
    """Return an attribute that is one of the enclosing function: `axis: int = @axis`."""
    return f"{_head(attribute)}@{word(attribute.ref_attr_name)}"


def _head(attribute: onnx.AttributeProto) -> str:
    kind = _A.AttributeType.Name(attribute.type).lower()
    return f"{word(attribute.name)}: {kind} = "


def scalar_attribute(attribute: onnx.AttributeProto) -> str | None:
    """Return an attribute in one line: `axis: int = 1`; None if it holds tensors or graphs."""
    kind = attribute.type
    if attribute.ref_attr_name:
        return reference_text(attribute)
    if kind == _A.INT:
        text = str(attribute.i)
    elif kind == _A.INTS:
        text = _list(map(str, attribute.ints))
    elif kind == _A.FLOAT:
        text = number(attribute.f)
    elif kind == _A.FLOATS:
        text = _list(map(number, attribute.floats))
    elif kind == _A.STRING:
        text = quoted(attribute.s)
    elif kind == _A.STRINGS:
        text = _list(map(quoted, attribute.strings))
    elif kind == _A.TYPE_PROTO:
        text = type_text(attribute.tp)
    elif kind == _A.TYPE_PROTOS:
        text = _list(map(type_text, attribute.type_protos))
    else:
        return None
    return _head(attribute) + text


def _list(texts: Iterable[str]) -> str:
    return f"[{', '.join(texts)}]"


def type_text(type_: onnx.TypeProto) -> str:
    """Return the type of a value: `float[N,3]`, `float[]` for an unknown rank, `seq(float[N])`."""
    kind = type_.WhichOneof("value")
    if kind == "tensor_type":
        return _tensor_type(type_.tensor_type)
    if kind == "sparse_tensor_type":
        return f"sparse_tensor({_tensor_type(type_.sparse_tensor_type)})"
    if kind == "sequence_type":
        return f"seq({type_text(type_.sequence_type.elem_type)})"
    if kind == "optional_type":
        return f"optional({type_text(type_.optional_type.elem_type)})"
    if kind == "map_type":
        key = onnx.TensorProto.DataType.Name(type_.map_type.key_type).lower()
        return f"map({key}, {type_text(type_.map_type.value_type)})"
    return f"opaque({escape(str(type_).strip())})" if kind else ""


def _tensor_type(type_: onnx.TypeProto.Tensor | onnx.TypeProto.SparseTensor) -> str:
    name = onnx.TensorProto.DataType.Name(type_.elem_type).lower()
    if not type_.HasField("shape"):
        return f"{name}[]"
    dims = [_dim(dim) for dim in type_.shape.dim]
    return f"{name}[{','.join(dims)}]" if dims else name


def _dim(dim: onnx.TensorShapeProto.Dimension) -> str:
    kind = dim.WhichOneof("value")
    if kind == "dim_value":
        return str(dim.dim_value)
    return identifier(dim.dim_param) if kind and dim.dim_param else "?"
