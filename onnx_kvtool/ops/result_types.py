"""Types of the outputs of a node from those of its inputs, by its schema."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

import onnx_ir as ir

from onnx_kvtool.ops.schema import op_facts
from onnx_kvtool.ops.traits import given_type, traits
from onnx_kvtool.ops.view import given_input

_Types = Callable[[ir.Value], "ir.TypeProtocol | None"]


def output_types(node: ir.Node, opset: int, type_of: _Types) -> list[ir.TypeProtocol | None]:
    """Return the type of each output of a node of a domain of ONNX; None for unknown ones."""
    if traits(node).element_type is not None:
        return [_given(node, type_of)]
    plan = _plan(node.domain, node.op_type, opset, len(node.inputs), len(node.outputs))
    return planned_types(node, plan, type_of)


def planned_types(
    node: ir.Node, plan: Iterable[tuple[int, ...] | ir.DataType | None], type_of: _Types
) -> list[ir.TypeProtocol | None]:
    """Return the type of each output: that of the first of some inputs that is known, or its own.

    For each output, `plan` has the positions of inputs, a type, or None where nothing is known.
    """
    found: list[ir.TypeProtocol | None] = []
    for how in plan:
        if how is None or isinstance(how, ir.DataType):
            found.append(None if how is None else ir.TensorType(how))
            continue
        given = (given_input(node, i) for i in how)
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


def _given(node: ir.Node, type_of: _Types) -> ir.TypeProtocol | None:
    """Return the type of an output that an attribute tells, or what it says of an input."""
    found = given_type(node)
    if found is None or isinstance(found, ir.DataType):
        return None if found is None else ir.TensorType(found)
    value = given_input(node, found)
    return None if value is None else type_of(value)
