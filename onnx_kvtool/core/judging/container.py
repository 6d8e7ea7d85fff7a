"""Judging a model message before onnx_ir sees it, as onnx_ir repairs and drops in silence."""

from __future__ import annotations

import graphlib
from collections.abc import Iterable

import onnx

from onnx_kvtool.core.domains import DEFAULT_DOMAINS, canonical_domain
from onnx_kvtool.core.errors import MalformedModel
from onnx_kvtool.core.judging.graph_judge import Call, GraphJudge
from onnx_kvtool.core.judging.judgement import Judgement, require_text
from onnx_kvtool.core.judging.scopes import Scope
from onnx_kvtool.core.location import Location
from onnx_kvtool.core.walk import function_path, graph_path

__all__ = ["judge"]

_MODEL = Location()


def judge(message: onnx.ModelProto) -> Judgement:
    """Judge a model message; nothing in it is changed, and no external file is looked at.

    One walk over all graphs, linear in the size of the message. What is judged is whether the
    message can be held and edited without loss; whether its operators are used as their schemas
    say is not.

    Returns:
        The defects, and what has to be carried around onnx_ir.

    Raises:
        MalformedModel: For what no reader can make sense of and onnx_ir refuses: a value produced
            twice in one graph, a function output that nothing produces, an unknown element type,
            an attribute without a type, external data at a position that is no number.
    """
    found = Judgement()
    found.texts(message, "")
    found.fields(message, _MODEL)
    found.keys(message.metadata_props, _MODEL)
    if message.ir_version <= 0:
        found.add("missing-ir-version", _MODEL, "the model states no IR version")
    _imports(message.opset_import, found, _MODEL)
    _default_import(message, found)
    GraphJudge(found).graph(message.graph, graph_path(message.graph.name))
    _functions(message.functions, found)
    return found


def _imports(imports: Iterable[onnx.OperatorSetIdProto], found: Judgement, place: Location) -> None:
    versions: dict[str, int] = {}
    for entry in imports:
        domain = canonical_domain(entry.domain)
        known = versions.setdefault(domain, entry.version)
        if known != entry.version:
            found.add(
                "duplicate-opset-import",
                place,
                f"imports domain `{domain or 'ai.onnx'}` at versions {known} and {entry.version}",
                help="keep the version for which the nodes were written",
            )
        versions[domain] = entry.version


def _default_import(message: onnx.ModelProto, found: Judgement) -> None:
    if any(entry.domain in DEFAULT_DOMAINS for entry in message.opset_import):
        return
    if any(node.domain in DEFAULT_DOMAINS for node in message.graph.node):
        found.add(
            "missing-opset-import",
            _MODEL,
            "uses ONNX operators and does not import a version of them",
        )


def _functions(functions: Iterable[onnx.FunctionProto], found: Judgement) -> None:
    called: dict[Call, set[Call]] = {}
    for function in functions:
        key = (function.domain, function.name, function.overload)
        path = function_path(*key)
        require_text(key, "")
        found.texts(function, path)
        if key in called:
            found.add(
                "duplicate-function", Location(path), "is defined twice, and the last one is taken"
            )
        calls: set[Call] = set()
        _function(function, path, GraphJudge(found, calls))
        called[key] = calls
    try:
        graphlib.TopologicalSorter(
            {key: sorted(calls & called.keys()) for key, calls in called.items()}
        ).prepare()
    except graphlib.CycleError as error:
        names = " -> ".join(f"`{function_path(*key)}`" for key in reversed(error.args[1]))
        found.add(
            "recursive-function",
            Location(function_path(*error.args[1][0])),
            f"calls itself: {names}",
        )


def _function(function: onnx.FunctionProto, path: str, judge: GraphJudge) -> None:
    found, place = judge.found, Location(path)
    found.fields(function, place)
    found.keys(function.metadata_props, place)
    if not function.name:
        found.add(
            "unnamed-function", place, f"domain `{function.domain}` has a function without a name"
        )
    _imports(function.opset_import, found, place)
    parameters = [*function.attribute, *(entry.name for entry in function.attribute_proto)]
    for kind, names in (("inputs", list(function.input)), ("attributes", parameters)):
        if len(set(names)) < len(names):
            found.add("duplicate-parameter", place, f"has two {kind} of one name")
    judge.value_infos(function.value_info, path)
    scope = Scope(path, function.node, set(function.input))
    for attribute in function.attribute_proto:
        at = Location(path, value=attribute.name)
        judge.attribute(attribute, at, scope, f"{path}.{attribute.name}")
    judge.nodes(scope)
    for name in function.output:
        if name not in scope.names:
            raise MalformedModel(
                f"{place}: nothing produces the output `{name}` of the function",
                help="export the model again: a function has to produce each of its outputs",
            )
