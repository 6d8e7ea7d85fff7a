"""Inlining the model-local functions that the target cannot keep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.analysis.constants import const_tensor
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.walk import graph_path, nodes, step_path, subgraphs
from onnx_kvtool.emit.emitter import Emitter, Names, Refusal, ScopedValues
from onnx_kvtool.guard.nested_calls import MOST_RUN, expanded_nodes
from onnx_kvtool.ops.schema import is_standard, op_facts, same_version, tensor_type
from onnx_kvtool.rewrite.engine.edits import put_in_place
from onnx_kvtool.rewrite.engine.instantiate import instantiate

__all__ = [
    "cannot_stay",
    "inline_functions",
    "without_initializers",
]

FunctionId = tuple[str, str, str]

_SOME, _MOST_GROWTH = 20_000, 1_000
"""Nodes that are inlined however few are stored, and times those stored that are inlined at most.

Only functions that call each other several times each, and serve nothing else, grow more.
"""


def inline_functions(
    model: ir.Model, wanted: Callable[[ir.Function], bool], names: Names
) -> tuple[list[Location], list[FunctionId]]:
    """Replace every call of a wanted function by its body, in place, in all graphs.

    A function that calls a wanted one is inlined too, because types are known at calls only. The
    nodes of a body keep the opset of their function as a tag. Functions that were inlined are
    removed; others stay, also those that nobody calls.

    Args:
        model: The model; its functions do not call themselves, directly or not.
        wanted: Which functions to inline.
        names: Fresh names of the model.

    Returns:
        The place of every call that was replaced (calls inside functions count with the call that
        brought them), and the identifiers (domain, name, overload) of the functions that nobody
        calls and that were removed all the same.

    Raises:
        Refusal: If a function is built on another version of a custom domain than the model, or
            has a graph as attribute parameter; or if the result would be too large.
    """
    chosen = _with_callers(model, {key for key, f in model.functions.items() if wanted(f)})
    if not chosen:
        return [], []
    stored = sum(map(len, (model.graph, *model.functions.values())))
    most = min(MOST_RUN, max(_SOME, _MOST_GROWTH * stored))
    if (size := expanded_nodes(model)) > most:
        raise Refusal(
            "too-many-calls",
            f"the functions of the model expand to {size} nodes, at most {most} are inlined",
            help="export the model without functions",
        )
    for key in chosen:
        _check_imports(model, model.functions[key])
    called = {node.op_identifier() for _, _, node in nodes(model)}
    inlining = _Inlining(model, chosen, [])
    inlining.graph(
        model.graph, graph_path(model.graph.name), ScopedValues(model.graph, None, names)
    )
    for key in chosen:
        del model.functions[key]
    return inlining.places, sorted(chosen - called)


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


@dataclass(frozen=True, slots=True)
class _Inlining:
    """One run of `inline_functions`: the functions to inline, and the calls that were replaced."""

    model: ir.Model
    chosen: set[FunctionId]
    places: list[Location]

    def graph(self, graph: ir.Graph, path: str, scope: ScopedValues) -> None:
        for index, node in enumerate(tuple(graph)):
            if node.op_identifier() in self.chosen:
                self.places.append(Location.of(path, node, index))
            self._node(node, path, index, scope)

    def _node(self, node: ir.Node, path: str, index: int, scope: ScopedValues) -> None:
        """Inline one call and the calls that its body brings, or look into a node's bodies."""
        waiting = [node]  # a list, because calls may be nested more deeply than Python's own
        while waiting:
            current = waiting.pop()
            if current.op_identifier() in self.chosen:
                waiting += reversed(self._replace(current, scope))
                continue
            for name, inner in subgraphs(current):
                inner_path = step_path(path, current.name, index, name)
                self.graph(inner, inner_path, ScopedValues(inner, scope, scope.names))

    def _replace(self, node: ir.Node, scope: ScopedValues) -> list[ir.Node]:
        function = self.model.functions[node.op_identifier()]
        em = Emitter(scope, function.opset_imports.get("", 1), node.name or node.op_type)
        outputs = _body(node, function, em)
        old = list(node.outputs)
        new_nodes = em.commit()
        put_in_place(node, new_nodes, old, outputs[: len(old)])
        return new_nodes


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


def without_initializers(graph: ir.Graph, opset: int) -> None:
    """Turn each initializer into a Constant at the start of the graph, in place.

    Args:
        graph: Graph of a function, to which rewrites added initializers.
        opset: Version of the default domain for which the new nodes are tagged.
    """
    constants = []
    for name, value in tuple(graph.initializers.items()):
        tensor = value.const_value
        if tensor is None:
            continue
        node = ir.Node(
            "", "Constant", [], [ir.AttrTensor("value", tensor)], version=opset, name=name
        )
        output = node.outputs[0]
        output.type, output.shape = value.type, value.shape
        del graph.initializers[name]
        value.replace_all_uses_with(output)
        output.name = name
        constants.append(node)
    first = next(iter(graph), None)
    if constants and first is not None:
        graph.insert_before(first, constants)


def cannot_stay(function: ir.Function, target: int, ir_version: int) -> bool:
    """Return whether a function as it is cannot stand in a model of these versions."""
    # IR 8 brought functions, IR 9 default values of their attributes, IR 10 overloads.
    if ir_version < 8 or (ir_version < 10 and function.overload):
        return True
    if ir_version < 9 and any(a.value is not None for a in function.attributes.values()):
        return True
    source = function.opset_imports.get("", target)
    for node in function.all_nodes():
        if not is_standard(node):
            continue
        same = same_version(node.op_type, source, target)
        if not same and not _legal_constant(node, target):
            return True
    return False


def _legal_constant(node: ir.Node, opset: int) -> bool:
    """Return whether a node is a Constant that is legal at `opset`: its type is known."""
    facts = op_facts(node.op_type, opset)
    if (
        facts is None
        or node.op_type != "Constant"
        or any(a.is_ref() for a in node.attributes.values())
    ):
        return False
    tensor = const_tensor(node.outputs[0])
    if tensor is None or not set(node.attributes) <= set(facts.attributes):
        return False
    return tensor_type(tensor.dtype) in facts.outputs[0].types
