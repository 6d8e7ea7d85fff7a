"""Types of the outputs of a node from those of its inputs, by its schema."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from onnx_kvtool.ops.schema import op_facts
from onnx_kvtool.shapes.rules.contrib import Contrib

__all__ = ["contrib_types", "output_types"]

_Types = Callable[[ir.Value], "ir.TypeProtocol | None"]


def output_types(node: ir.Node, opset: int, type_of: _Types) -> list[ir.TypeProtocol | None]:
    """Return the type of each output of a node of a domain of ONNX; None for unknown ones.

    Args:
        node: The node.
        opset: Version of the domain.
        type_of: The type of each input.
    """
    special = _BY_ATTRIBUTE.get(node.op_type)
    if special is not None and not node.domain:
        return [special(node, type_of)]
    found: list[ir.TypeProtocol | None] = []
    for how in _plan(node.domain, node.op_type, opset, len(node.inputs), len(node.outputs)):
        if how is None or isinstance(how, ir.DataType):
            found.append(None if how is None else ir.TensorType(how))
            continue
        given = (node.inputs[i] for i in how)
        known = (type_of(value) for value in given if value is not None)
        found.append(next((type_ for type_ in known if type_ is not None), None))
    return found


@functools.cache
def _plan(
    domain: str, op_type: str, opset: int, inputs: int, outputs: int
) -> tuple[tuple[int, ...] | ir.DataType | None, ...]:
    """Return for each output the inputs of the same type, or its only type, or None."""
    facts = op_facts(op_type, opset, domain)
    if facts is None:
        return (None,) * outputs
    plan: list[tuple[int, ...] | ir.DataType | None] = []
    for index in range(outputs):
        formal = facts.output(index)
        if formal is None or (formal.variadic and not formal.homogeneous):
            plan.append(None)
            continue
        alike = tuple(
            i
            for i in range(inputs)
            if (other := facts.input(i)) is not None
            and other.type_parameter == formal.type_parameter
            and not (other.variadic and not other.homogeneous)
        )
        if alike:
            plan.append(alike)
        elif len(formal.types) == 1:
            plan.append(_element_type(next(iter(formal.types))))
        else:
            plan.append(None)
    return tuple(plan)


def _element_type(name: str) -> ir.DataType | None:
    if not name.startswith("tensor("):
        return None
    return ir.DataType.__members__.get(name.removeprefix("tensor(").removesuffix(")").upper())


def _constant(node: ir.Node, type_of: _Types) -> ir.TypeProtocol | None:
    kinds: Mapping[str, ir.DataType] = {
        "value_float": ir.DataType.FLOAT,
        "value_floats": ir.DataType.FLOAT,
        "value_int": ir.DataType.INT64,
        "value_ints": ir.DataType.INT64,
        "value_string": ir.DataType.STRING,
        "value_strings": ir.DataType.STRING,
    }
    for name, attribute in node.attributes.items():
        if name in kinds:
            return ir.TensorType(kinds[name])
        if name == "value" and _is(attribute, ir.AttributeType.TENSOR):
            return ir.TensorType(attribute.value.dtype)
    return None


def _is(attribute: ir.Attr, kind: ir.AttributeType) -> bool:
    return attribute.type == kind and not attribute.is_ref()


def _of_attribute(
    name: str, otherwise: ir.DataType | int | None
) -> Callable[..., ir.TypeProtocol | None]:
    """Return a rule for operators whose attribute is the element type.

    Args:
        name: The attribute; a tensor, or a number of a type.
        otherwise: Without it: a type, the position of an input of the same type, or unknown.
    """

    def rule(node: ir.Node, type_of: _Types) -> ir.TypeProtocol | None:
        attribute = node.attributes.get(name)
        if attribute is not None and not attribute.is_ref():
            if attribute.type == ir.AttributeType.TENSOR:
                return ir.TensorType(attribute.value.dtype)
            if attribute.type != ir.AttributeType.INT:
                return None
            try:
                return ir.TensorType(ir.DataType(attribute.as_int()))
            except ValueError:
                return None
        if attribute is not None or otherwise is None:
            return None
        if isinstance(otherwise, ir.DataType):
            return ir.TensorType(otherwise)
        value = node.inputs[otherwise] if otherwise < len(node.inputs) else None
        return None if value is None else type_of(value)

    return rule


_BY_ATTRIBUTE: Mapping[str, Callable[..., ir.TypeProtocol | None]] = {
    "Bernoulli": _of_attribute("dtype", 0),
    "BitCast": _of_attribute("to", None),
    "Cast": _of_attribute("to", None),
    "Constant": _constant,
    "ConstantOfShape": _of_attribute("value", ir.DataType.FLOAT),
    "EyeLike": _of_attribute("dtype", 0),
    "Multinomial": _of_attribute("dtype", ir.DataType.INT32),
    "RandomNormal": _of_attribute("dtype", ir.DataType.FLOAT),
    "RandomNormalLike": _of_attribute("dtype", 0),
    "RandomUniform": _of_attribute("dtype", ir.DataType.FLOAT),
    "RandomUniformLike": _of_attribute("dtype", 0),
}


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
