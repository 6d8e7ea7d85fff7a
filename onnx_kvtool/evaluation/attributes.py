"""Attributes as text, typed by the schema."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.words import counted, unknown_name
from onnx_kvtool.evaluation.literal import literal_array, parse_json
from onnx_kvtool.evaluation.spec import read_spec
from onnx_kvtool.ops.schema import OpFacts
from onnx_kvtool.ops.traits import ELEMENT_TYPE_ATTRIBUTES, dtype_named

__all__ = ["attribute"]


_TYPES = ir.AttributeType

_ELEMENTS = {
    _TYPES.INT: ir.DataType.INT64,
    _TYPES.INTS: ir.DataType.INT64,
    _TYPES.FLOAT: ir.DataType.FLOAT,
    _TYPES.FLOATS: ir.DataType.FLOAT,
    _TYPES.STRINGS: ir.DataType.STRING,
}


def attribute(facts: OpFacts, name: str, text: str) -> ir.Attr:
    """Return an attribute of an operator from its value as text.

    Args:
        facts: The operator.
        name: The attribute.
        text: A number for an integer or a float (for an element type, its name too); the text
            itself for a string; a JSON list for lists; a SPEC, as for inputs, for a tensor.

    Raises:
        UsageError: If the operator has no such attribute, it is a graph or a type, or the text is
            no value of its type.
        UnreadableModel: If the file of a tensor cannot be read.
    """
    declared = facts.attributes.get(name)
    if declared is None:
        raise unknown_name(
            f"{facts.op_type} has no attribute `{name}`", name, sorted(facts.attributes)
        )
    kind = _TYPES(declared.type)
    try:
        return ir.Attr(name, kind, _value(name, kind, text))
    except UsageError as error:
        raise UsageError(f"attribute `{name}`: {error.message}", help=error.help) from error


def _value(name: str, kind: ir.AttributeType, text: str) -> Any:
    if kind is _TYPES.STRING:
        return text
    if kind is _TYPES.TENSOR:
        return ir.tensor(np.asarray(read_spec(text).value(None)), name=name)
    element = _ELEMENTS.get(kind)
    if element is None:
        raise UsageError(
            f"a {kind.name.lower().replace('_', ' ')} cannot be given on the command line",
            help="evaluate a model that holds the node",
        )
    if (
        kind is _TYPES.INT
        and name in ELEMENT_TYPE_ATTRIBUTES
        and (named := dtype_named(text)) is not None
    ):
        return int(named)
    values = literal_array(parse_json(text), element)
    expected = 0 if kind in (_TYPES.INT, _TYPES.FLOAT) else 1
    if values.ndim != expected:
        wanted = "a list" if expected else "a single value"
        raise UsageError(f"`{text}` has {counted(values.ndim, 'dimension')}, expected {wanted}")
    return values.tolist()
