"""The values that an evaluation is given and asked for, by their names in the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.words import unknown_name
from onnx_kvtool.evaluation.literal import literal_array, natural_dtype
from onnx_kvtool.evaluation.part import main_values
from onnx_kvtool.evaluation.spec import Given
from onnx_kvtool.evaluation.updates import find_node
from onnx_kvtool.runtime.engine.declared import declared_mismatch
from onnx_kvtool.runtime.engine.type_check import element_type
from onnx_kvtool.runtime.kernels.kernel import Value

__all__ = [
    "check_inputs",
    "declared_dtype",
    "feed_of",
    "input_values",
    "value_named",
    "wanted_values",
]


def value_named(known: Mapping[str, ir.Value], name: str) -> ir.Value:
    """Return one of the values of a main graph by its name.

    Raises:
        UsageError: If there is none of this name.
    """
    if name not in known:
        raise unknown_name(f"the main graph has no value `{name}`", name, known)
    return known[name]


def input_values(model: ir.Model, given: Mapping[str, Given]) -> dict[str, Value]:
    """Return what is given for values of the main graph as arrays of their element types.

    `null` becomes None, an input that is not there.

    Raises:
        UsageError: If the main graph has no such value, or what is given is none for its type.
    """
    known = main_values(model.graph)
    values: dict[str, Value] = {}
    for name, content in given.items():
        declared = value_named(known, name)
        try:
            absent = content.is_absent
            values[name] = None if absent else content.value(declared_dtype(declared))
        except UsageError as error:
            raise UsageError(f"input `{name}`: {error.message}", help=error.help) from error
    return values


def feed_of(name: str, value: Any, declared: ir.Value | None) -> Value:
    """Return a value given from Python as the runtimes take it.

    Args:
        name: Its name, for messages.
        value: An array or a scalar of numpy as it is; nested lists and Python numbers become an
            array of the declared type; for what is declared as no tensor, anything as it is.
        declared: What it is given for; None when there is no such value.
    """
    if isinstance(value, np.generic):
        value = np.asarray(value)
    is_tensor = declared is None or declared.type is None
    is_tensor |= declared is not None and isinstance(declared.type, ir.TensorType)
    if value is None or not is_tensor:
        return value
    try:
        if not isinstance(value, np.ndarray):
            dtype = None if declared is None else declared_dtype(declared)
            return literal_array(value, natural_dtype(value) if dtype is None else dtype)
        if value.dtype.kind in "US":
            return value.astype(np.str_).astype(object)
        if element_type(value.dtype) is None:
            raise UsageError(f"it is of dtype {value.dtype}, which ONNX has no element type for")
    except UsageError as error:
        raise UsageError(f"input `{name}`: {error.message}", help=error.help) from error
    return value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))


def declared_dtype(value: ir.Value) -> ir.DataType | None:
    """Return the element type of a value, of its data where none is declared; None if unknown."""
    if not isinstance(value.type, ir.TensorType) or value.dtype == ir.DataType.UNDEFINED:
        return None if value.const_value is None else value.const_value.dtype
    return value.dtype


def check_inputs(model: ir.Model, given: Mapping[str, Value]) -> None:
    """Refuse values that the main graph does not have, or that contradict their declaration."""
    known = main_values(model.graph)
    for name, value in given.items():
        if (problem := declared_mismatch(value_named(known, name), value)) is not None:
            raise UsageError(f"input {problem}")


def wanted_values(model: ir.Model, node: str | None, fetch: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the values to fetch, each once.

    Raises:
        UsageError: If there is no such node or value, or several nodes have the name.
    """
    if node is not None:
        _, found = find_node(model, node)
        return tuple(value.name for value in found.outputs if value.name)
    if not fetch:
        return tuple(dict.fromkeys(value.name or "" for value in model.graph.outputs))
    known = main_values(model.graph)
    for name in fetch:
        value_named(known, name)
    return tuple(dict.fromkeys(fetch))
