"""The attributes of a node as its kernel takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx_ir as ir

from onnx_kvtool.ops.schema import OpFacts
from onnx_kvtool.runtime.engine.weights import constant, dense
from onnx_kvtool.runtime.errors import RuntimeUnavailable
from onnx_kvtool.runtime.kernels.kernel import Value

__all__ = ["bound_attributes", "resolve"]


def resolve(
    attributes: Mapping[str, ir.Attr], parameters: Mapping[str, ir.Attr]
) -> dict[str, ir.Attr]:
    """Return attributes with references to function parameters replaced by their values.

    Args:
        attributes: Those of a node.
        parameters: What the function around the node was called with; one that is not there was
            left out by the caller, and so is the attribute that refers to it.
    """
    resolved = {}
    for name, attribute in attributes.items():
        if not attribute.is_ref():
            resolved[name] = attribute
        elif (given := parameters.get(attribute.ref_attr_name or "")) is not None:
            resolved[name] = ir.Attr(name, given.type, given.value)
    return resolved


def bound_attributes(
    facts: OpFacts,
    attributes: Mapping[str, ir.Attr],
    body: Callable[[str, ir.Graph], Value],
) -> dict[str, Value]:
    """Return a value for each attribute of an operator.

    Args:
        facts: The operator.
        attributes: What the node carries, without references.
        body: Called with the name and the graph of each attribute that is a graph; what it returns
            is the value.

    Returns:
        Integers, floats, strings and tuples of them; arrays for tensors; None for an attribute
        that has no default and was not given.

    Raises:
        RuntimeUnavailable: If an attribute is unknown to the operator, of another type than the
            schema's, or required and missing.
    """
    if unknown := sorted(attributes.keys() - facts.attributes.keys()):
        raise RuntimeUnavailable(
            f"version {facts.since_version} of `{facts.op_type}` has no attribute `{unknown[0]}`"
        )
    values: dict[str, Value] = {}
    for name, declared in facts.attributes.items():
        given = attributes.get(name)
        if given is None:
            if declared.required:
                raise RuntimeUnavailable(f"the attribute `{name}` is required and missing")
            values[name] = declared.default
        elif given.type.value != declared.type:
            raise RuntimeUnavailable(
                f"the attribute `{name}` is of type {given.type.name}, "
                f"expected {ir.AttributeType(declared.type).name}"
            )
        else:
            values[name] = _value(name, given, body)
    return values


def _value(name: str, attribute: ir.Attr, body: Callable[[str, ir.Graph], Value]) -> Value:
    kind, value = attribute.type, attribute.value
    if kind is ir.AttributeType.GRAPH:
        return body(name, attribute.as_graph())
    if kind is ir.AttributeType.TENSOR:
        return constant(value)  # `as_tensor()` asks for its size, which not every type has
    if kind is ir.AttributeType.SPARSE_TENSOR:
        return dense(value)
    if isinstance(value, (list, tuple)):
        return tuple(value)
    return value
