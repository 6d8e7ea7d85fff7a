"""Operators and element types that a release does not support."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.domains import DEFAULT_DOMAINS, operator_label
from onnx_kvtool.core.walk import graphs
from onnx_kvtool.ops.contrib import DOMAIN, contrib_facts, default_of, is_contrib
from onnx_kvtool.ops.schema import is_standard
from onnx_kvtool.ops.traits import given_type
from onnx_kvtool.ops.view import NodeView, given_input
from onnx_kvtool.targets.conditions.sizes import Asked
from onnx_kvtool.targets.release import Release

# Operators that ONNX does not define.


LocalName = tuple[str, str]


def unknown_operator(
    node: ir.Node, opset: int, release: Release, local: Container[LocalName]
) -> str | None:
    """Return why a release cannot import a node whose operator ONNX does not define.

    Args:
        node: The node.
        opset: Version of the default domain that it was written for.
        release: The release.
        local: Domains and names of the functions of its model.

    Returns:
        A clause that follows the name of the release; None if it imports the node, or if ONNX
        defines the operator.
    """
    if (node.domain, node.op_type) in local:
        return None
    if is_standard(node) and not is_contrib(node, opset):
        return None
    name = operator_label(node)
    if not release.imports(node.domain, node.op_type):
        return f"imports no `{name}`"
    known = release.narrower.get(node.op_type) if node.domain == DOMAIN else None
    if known is None:
        return None
    count = max((i for i, value in enumerate(node.inputs, start=1) if value is not None), default=0)
    if count > known.inputs:
        return f"imports `{name}` with {known.inputs} inputs at most, here it has {count}"
    facts = contrib_facts(DOMAIN, node.op_type)
    formals = () if facts is None else facts.inputs
    for value, formal in zip(node.inputs, formals, strict=False):
        if value is not None and formal.name in known.errs:
            return f"computes some forms of `{name}` with `{formal.name}` wrongly"
    later = sorted(known.without & node.attributes.keys())
    if later:
        return f"imports `{name}` without its attribute `{later[0]}`"
    for attribute, values in known.values.items():
        given = default_of(node.op_type, attribute, opset, node.domain)
        if (own := node.attributes.get(attribute)) is not None and not own.is_ref():
            given = own.value
        if given not in values:
            listed = " or ".join(f"`{value}`" for value in values)
            return (
                f"has kernels for `{name}` with a `{attribute}` of {listed}, here it is `{given}`"
            )
    return None


# The element types of quantized products; runtimes have only some combinations.


_ZERO_POINT = "_zero_point"


@dataclass(frozen=True, slots=True)
class Quantized:
    """A quantized input or output of a node.

    Attributes:
        index: Index of the input; None for the first output.
        zero_point: Index of the input with its zero point.
        dtype: Element type of both; None if unknown.
    """

    index: int | None
    zero_point: int
    dtype: ir.DataType | None


def quantized_values(view: NodeView) -> Iterator[Quantized]:
    """Yield the inputs and outputs of a node that have a zero point in the schema."""
    node, names = view.node, [formal.name for formal in view.facts.inputs]
    places = {name.lower(): index for index, name in enumerate(names)}
    for at, name in enumerate(names):
        if not name.endswith(_ZERO_POINT):
            continue
        index = places.get(name.removesuffix(_ZERO_POINT).lower())
        zero_point = given_input(node, at)
        operand = node.outputs[0] if index is None else node.inputs[index]
        known = (value.dtype for value in (operand, zero_point) if value is not None)
        yield Quantized(index, at, next((dtype for dtype in known if dtype is not None), None))


def other_quantized_types(asked: Asked) -> bool:
    """Whether its quantized values have a combination of types that the limit does not spare."""
    dtypes = [value.dtype for value in quantized_values(asked.view)]
    names = " ".join("?" if dtype is None else dtype.name.lower() for dtype in dtypes)
    return names not in asked.limit.types


def foreign_types(model: ir.Model, release: Release) -> Iterator[tuple[Location, str]]:
    """Yield the first value of each element type that a release lacks, and what is wrong.

    Args:
        model: The model. A value of unknown type passes.
        release: The release; without known types, it lacks none.
    """
    known, seen = release.types, set[ir.DataType]()
    for path, graph in graphs(model) if known is not None else ():
        inner = [output for node in graph for output in node.outputs]
        values = (*graph.inputs, *graph.initializers.values(), *inner)
        made = ((_cast_to(output), output) for output in inner)
        for dtype, value in (*((value.dtype, value) for value in values), *made):
            if dtype is None or dtype == ir.DataType.UNDEFINED or dtype in seen:
                continue
            if known is not None and dtype.name.lower() not in known:
                seen.add(dtype)
                place = Location(path, value=value.name)
                yield place, f"has no {dtype.name}, the type of `{value.name}`"


def _cast_to(output: ir.Value) -> ir.DataType | None:
    """Return the type that a Cast says it gives; None for any other node."""
    node = output.producer()
    if node is None or node.op_type != "Cast" or node.domain not in DEFAULT_DOMAINS:
        return None
    to = given_type(node)
    return to if isinstance(to, ir.DataType) else None
