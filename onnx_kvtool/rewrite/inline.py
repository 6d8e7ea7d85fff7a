"""Inlining the model-local functions that the target cannot keep."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from onnx_kvtool.core.walk import subgraphs
from onnx_kvtool.rewrite.emit import Emitter, Scope
from onnx_kvtool.rewrite.instantiate import instantiate
from onnx_kvtool.rewrite.names import Names
from onnx_kvtool.rewrite.refusal import Refusal

__all__ = ["inline_functions"]

FunctionId = tuple[str, str, str]


def inline_functions(
    model: ir.Model, wanted: Callable[[ir.Function], bool], names: Names
) -> list[FunctionId]:
    """Replace every call of a wanted function by its body, in place, in all graphs.

    A function that calls a wanted one is inlined too, because types are known at calls only. The
    nodes of a body keep the opset of their function as a tag. Functions that were inlined are
    removed; others stay, also those that nobody calls.

    Args:
        model: The model; its functions do not call themselves, directly or not.
        wanted: Which functions to inline.
        names: Fresh names of the model.

    Returns:
        The identifiers (domain, name, overload) of the functions that were inlined.

    Raises:
        Refusal: If a function is built on another version of a custom domain than the model, or
            has a graph as attribute parameter.
    """
    chosen = _with_callers(model, {key for key, f in model.functions.items() if wanted(f)})
    if not chosen:
        return []
    for key in chosen:
        _check_imports(model, model.functions[key])
    _inline_calls(model.graph, Scope(model.graph, None, names), model, chosen)
    for key in chosen:
        del model.functions[key]
    return sorted(chosen)


def _with_callers(model: ir.Model, chosen: set[FunctionId]) -> set[FunctionId]:
    callers: dict[FunctionId, set[FunctionId]] = {}
    for key, function in model.functions.items():
        for node in function.all_nodes():
            if node.op_identifier() in model.functions:
                callers.setdefault(node.op_identifier(), set()).add(key)
    pending = list(chosen)
    while pending:
        for caller in callers.get(pending.pop(), ()):
            if caller not in chosen:
                chosen.add(caller)
                pending.append(caller)
    return chosen


def _check_imports(model: ir.Model, function: ir.Function) -> None:
    for domain, version in function.opset_imports.items():
        if domain == "":
            continue
        if model.opset_imports.setdefault(domain, version) != version:
            raise Refusal(
                "domain-version",
                f"function `{function.domain}::{function.name}` uses domain `{domain}` at version "
                f"{version}, the model at {model.opset_imports[domain]}",
                help="give both the same version",
            )


def _inline_calls(graph: ir.Graph, scope: Scope, model: ir.Model, chosen: set[FunctionId]) -> None:
    pending = list(graph)[::-1]
    while pending:
        node = pending.pop()
        key = node.op_identifier()
        if key not in chosen:
            for _, inner in subgraphs(node):
                _inline_calls(inner, Scope(inner, scope, scope.names), model, chosen)
            continue
        function = model.functions[key]
        em = Emitter(scope, function.opset_imports.get("", 1), node.name or node.op_type)
        outputs = _body(node, function, em)
        used = [(o, v) for o, v in zip(node.outputs, outputs, strict=False)]
        new_nodes = em.commit()
        ir.convenience.replace_nodes_and_values(
            graph,
            insertion_point=node,
            old_nodes=[node],
            new_nodes=new_nodes,
            old_values=[old for old, _ in used],
            new_values=[new for _, new in used],
        )
        pending.extend(reversed(new_nodes))


def _body(node: ir.Node, function: ir.Function, em: Emitter) -> tuple[ir.Value, ...]:
    attributes = {name: a for name, a in function.attributes.items() if a.value is not None}
    attributes.update(node.attributes)
    graphs = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    if any(a.type in graphs for a in attributes.values()):
        raise Refusal(
            "graph-parameter",
            f"function `{function.domain}::{function.name}` takes a graph as attribute",
            help="inline the function in the exporter",
        )
    version = function.opset_imports.get("")
    return instantiate(function.graph, node.inputs, em, attributes=attributes, version=version)
