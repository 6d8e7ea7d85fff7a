"""Calls of model-local functions, each with the types of its own inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_kvtool.core.walk import function_path, subgraphs
from onnx_kvtool.guard.nested_calls import MOST_RUN
from onnx_kvtool.ops.element_type import WHOLE_TYPES
from onnx_kvtool.shapes.outcome import Outcome
from onnx_kvtool.symbolic.rules.site import Unknown

if TYPE_CHECKING:
    from onnx_kvtool.shapes.forward import Forward, GraphContext

__all__ = ["call"]


def call(
    run: Forward, node: ir.Node, function: ir.Function, context: GraphContext
) -> Sequence[Outcome]:
    """Return what a function makes of the inputs of a call; its body is gone through for it."""
    if function in run.calls:
        circle = f"`{function.domain}::{function.name}` calls itself"
        return [Outcome(None, Unknown("recursive-function", circle))] * len(node.outputs)
    if run.is_too_large:
        size = f"the functions of the model expand to more than {MOST_RUN} nodes"
        return [Outcome(None, Unknown("too-many-calls", size))] * len(node.outputs)
    try:
        body = function.graph.clone(allow_outer_scope_values=True)
    except (RuntimeError, KeyError, ValueError):  # what onnx_ir 1.1.0 raises depends on the depth
        name = f"the body of `{function.domain}::{function.name}` reads what nothing produces"
        return [Outcome(None, Unknown("malformed", name))] * len(node.outputs)
    attributes = {**function.attributes, **node.attributes}
    for inner in body:
        _bind(inner, attributes)
    imports = {**context.imports, **function.opset_imports}
    inside = replace(
        context,
        path=function_path(function.domain, function.name, function.overload),
        imports=imports,
        contents=run.contents(imports.get("", 1)),
        is_main=False,
        in_function=True,
    )
    for index, formal in enumerate(body.inputs):
        actual = node.inputs[index] if index < len(node.inputs) else None
        if actual is None:
            for use in tuple(formal.uses()):
                use.node.replace_input_with(use.idx, None)
        else:
            _pass(run, actual, formal, context, inside)
    run.calls.append(function)
    run.graph(body, inside)
    run.calls.pop()
    outcomes = []
    for result, output in zip(body.outputs, node.outputs, strict=False):
        type_ = run.knowledge.types.get(result)
        shape = run.knowledge.shapes.get(result)
        unknown = Unknown("unknown-input", "", result)
        outcomes.append(Outcome(type_, unknown if shape is None else shape))
        if isinstance(type_, ir.TensorType) and type_.dtype in WHOLE_TYPES:
            context.contents.put(output, inside.contents.of(result))
    return outcomes


def _pass(
    run: Forward, actual: ir.Value, formal: ir.Value, context: GraphContext, inside: GraphContext
) -> None:
    """Make a formal input what the call gives it."""
    knowledge = run.knowledge
    formal.type = knowledge.types.get(actual)
    if formal.type is not None:
        knowledge.types[formal] = formal.type
    if actual in knowledge.shapes:
        knowledge.shapes[formal] = knowledge.shapes[actual]
    if actual in knowledge.lost:
        knowledge.lost[formal] = knowledge.lost[actual]
    if formal.dtype in WHOLE_TYPES:
        inside.contents.put(formal, context.contents.of(actual))


def _bind(node: ir.Node, attributes: Mapping[str, ir.Attr]) -> None:
    """Replace references to parameters, also in bodies; one without a value is left out."""
    for name, attribute in tuple(node.attributes.items()):
        if not attribute.is_ref():
            continue
        actual = attributes.get(attribute.ref_attr_name or "")
        if actual is None or actual.value is None:
            del node.attributes[name]
        else:
            node.attributes[name] = ir.Attr(name, actual.type, actual.value)
    for output in node.outputs:
        output.type = output.shape = None
    for _, graph in subgraphs(node):
        for inner in graph:
            _bind(inner, attributes)
