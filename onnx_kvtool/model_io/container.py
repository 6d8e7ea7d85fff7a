"""Judging a model message before onnx_ir sees it, graph by graph."""

from __future__ import annotations

import graphlib
from collections.abc import Iterable, Sequence

import onnx

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.domains import DEFAULT_DOMAINS, canonical_domain
from onnx_kvtool.core.errors import MalformedModel
from onnx_kvtool.core.storage import element_count
from onnx_kvtool.core.walk import function_path, graph_path, step_path
from onnx_kvtool.model_io.claims import (
    Judgement,
    Scope,
    has_form,
    is_nameless_opaque,
    is_plain_tensor,
    is_utf8,
    judge_tensor,
    misplaced_value,
    require_text,
)
from onnx_kvtool.model_io.protobuf import UnknownFieldSet
from onnx_kvtool.model_io.verbatim import LONG_LIST

# Judging graphs on their messages: names, order, tensors and types, in one walk.


#: Domain, name and overload: how a node names the function it calls.
Call = tuple[str, str, str]

_A = onnx.AttributeProto
# Attributes whose values onnx_ir holds whatever they are.
_PLAIN = frozenset({_A.INT, _A.INTS, _A.FLOAT, _A.FLOATS, _A.STRING})
_NUMBERS = frozenset({_A.INTS, _A.FLOATS})
_SPARSE = frozenset({_A.SPARSE_TENSOR, _A.SPARSE_TENSORS})


class GraphJudge:
    """Judges graphs and the graphs nested in them, each node once.

    A place is built only for a defect, so that 20,000 sound nodes cost about 0.1 s.

    Defects go to `found`, the functions that the nodes call (bodies included) to `calls`.
    """

    def __init__(self, found: Judgement, calls: set[Call] | None = None) -> None:
        self.found = found
        self.calls = calls

    def graph(self, graph: onnx.GraphProto, path: str, outer: Scope | None = None) -> None:
        """Judge one graph and its bodies.

        Raises:
            MalformedModel: For what onnx_ir refuses: a value produced twice, an unknown element
                type, an attribute without a type.
        """
        self.found.texts(graph, "")
        self.found.fields(graph, Location(path))
        self.found.keys(graph.metadata_props, Location(path))
        scope = Scope(path, graph.node, set(), outer)
        for info in graph.input:
            self._type(info, path)
            place = Location(path, value=info.name)
            if not info.name:
                self.found.add("unnamed-input", place, "has an input without a name")
            elif info.name in scope.names:
                text = f"has two inputs of the name `{info.name}`"
                self.found.add("duplicate-input", place, text)
            self._define(info.name, scope, place)
        described = self.value_infos(graph.value_info, path)
        self._initializers(graph, scope, described)
        self.nodes(scope)
        for info in graph.output:
            self._type(info, path)
            if info.name not in scope.names:
                self._undefined_output(info.name, scope)
        self._annotations(graph, scope)

    def nodes(self, scope: Scope) -> None:
        """Judge the nodes of one graph or function.

        Raises:
            MalformedModel: As `graph` does.
        """
        names, outer, calls = scope.names, scope.outer, self.calls
        for index, node in enumerate(scope.nodes):
            for name in node.input:
                if name and name not in names and (outer is None or not outer.sees(name)):
                    self._unseen_input(name, scope, index)
            if calls is not None:
                calls.add((node.domain, node.op_type, node.overload))
            if node.attribute:
                self._attributes(node.attribute, scope, index)
            name = "-"
            for name in node.output:
                if name in names:
                    raise MalformedModel(
                        f"{scope.place(index)} produces `{name}`, which the graph has already",
                        help="give each value of a graph its own name",
                    )
                if outer is not None:
                    self._define(name, scope, scope.place(index, name))
                elif name:
                    names.add(name)
            require_text((node.name, node.op_type, node.domain), scope.path)
            if not name or not node.op_type or node.metadata_props or len(UnknownFieldSet(node)):
                self._peculiar(node, scope.place(index))
        require_text(names, scope.path)

    def value_infos(self, infos: Iterable[onnx.ValueInfoProto], path: str) -> set[str]:
        """Judge the declared types of inner values, and return the names of the values.

        Raises:
            MalformedModel: If an element type is unknown, or a name is not UTF-8.
        """
        seen: dict[str, onnx.ValueInfoProto] = {}
        for info in infos:
            self._type(info, path)
            if (other := seen.setdefault(info.name, info)) is not info and other != info:
                self.found.add(
                    "duplicate-value-info",
                    Location(path, value=info.name),
                    "is declared twice, differently, and the last declaration is taken",
                    severity="warning",
                )
        require_text(seen, path)
        return set(seen)

    def attribute(
        self, attribute: onnx.AttributeProto, place: Location, scope: Scope, body: str
    ) -> None:
        """Judge one attribute; `body` is the path of the graph that it may hold.

        Raises:
            MalformedModel: If it has no type, or as `graph` does.
        """
        found, kind = self.found, attribute.type
        if kind in _PLAIN or attribute.ref_attr_name:
            return
        if kind == _A.TENSOR:
            self._tensors([attribute.t], place)
        elif kind == _A.TENSORS:
            self._tensors(attribute.tensors, place)
        elif kind == _A.GRAPH:
            self.graph(attribute.g, body, scope)
        elif kind == _A.GRAPHS:
            for position, graph in enumerate(attribute.graphs):
                self.graph(graph, f"{body}[{position}]", scope)
        elif kind == _A.STRINGS:
            if not all(is_utf8(text) for text in attribute.strings):
                found.attributes.append(attribute)
        elif kind in _SPARSE:
            found.attributes.append(attribute)
        elif kind in (_A.TYPE_PROTO, _A.TYPE_PROTOS):
            types = [attribute.tp] if kind == _A.TYPE_PROTO else attribute.type_protos
            if not all(has_form(type_, place) for type_ in types):
                found.attributes.append(attribute)
        else:
            raise MalformedModel(
                f"{place}: attribute `{attribute.name}` has no type that is known",
                help="export the model again: since IR version 2 each attribute names its type",
            )
        if len(UnknownFieldSet(attribute)):
            found.fields(attribute, place)

    def _attributes(
        self, attributes: Sequence[onnx.AttributeProto], scope: Scope, index: int
    ) -> None:
        names = [attribute.name for attribute in attributes]
        require_text(names, scope.path)
        if len(names) > 1 and len(set(names)) < len(names):
            self.found.add(
                "duplicate-attribute",
                scope.place(index),
                "has two attributes of one name, and the last is taken",
            )
        for attribute in attributes:
            if problem := misplaced_value(attribute):
                self.found.add("attribute-value-field", scope.place(index), problem)
            if attribute.type in _NUMBERS and not attribute.ref_attr_name:
                if max(2 * len(attribute.ints), len(attribute.floats)) > LONG_LIST:
                    self.found.attributes.append(attribute)
            elif attribute.type not in _PLAIN:
                body = step_path(scope.path, scope.nodes[index].name, index, attribute.name)
                self.attribute(attribute, scope.place(index), scope, body)

    def _tensors(self, tensors: Iterable[onnx.TensorProto], place: Location) -> None:
        for tensor in tensors:
            if judge_tensor(tensor, self.found, place):
                self.found.hidden_external = True

    def _initializers(self, graph: onnx.GraphProto, scope: Scope, described: set[str]) -> None:
        found = self.found
        seen: set[str] = set()
        for tensor in graph.initializer:
            name = tensor.name
            external = judge_tensor(tensor, found, Location(scope.path, value=name))
            found.hidden_external |= external and scope.outer is not None
            self._initializer(name, scope, seen)
        for sparse in graph.sparse_initializer:
            place = Location(scope.path, value=sparse.values.name)
            try:
                element_count(sparse.dims)
            except ValueError as flaw:
                found.add("bad-dims", place, f"has shape {list(sparse.dims)[:8]}, but {flaw}")
            self._initializer(sparse.values.name, scope, seen)
        if graph.sparse_initializer:
            found.sparse.append(graph)
        found.described |= described & seen

    def _initializer(self, name: str, scope: Scope, seen: set[str]) -> None:
        place = Location(scope.path, value=name)
        if not name:
            self.found.add(
                "unnamed-initializer", place, "is an initializer without a name, and is dropped"
            )
            return
        if name in seen:
            self.found.add(
                "duplicate-initializer", place, "is initialized twice, and the last value is taken"
            )
        elif name not in scope.names:  # an input may have an initializer as its default
            self._define(name, scope, place)
        seen.add(name)

    def _type(self, info: onnx.ValueInfoProto, path: str) -> None:
        is_plain = is_plain_tensor(info.type)
        if is_plain and not info.metadata_props and not len(UnknownFieldSet(info)):
            return
        place = Location(path, value=info.name)
        if not is_plain and not has_form(info.type, place):
            self.found.types.append(info)
            if is_nameless_opaque(info.type):
                self.found.add("unnamed-opaque-type", place, "is of an opaque type without a name")
        self.found.keys(info.metadata_props, place)
        self.found.fields(info, place)

    def _define(self, name: str, scope: Scope, place: Location) -> None:
        if scope.outer is not None and name and scope.outer.sees(name):
            self.found.add(
                "shadowed-value",
                place,
                f"`{name}` hides the value of that name in an enclosing graph",
                help="rename it: names have to be unique across nested graphs",
                severity="warning",
            )
        if name:
            scope.names.add(name)

    def _unseen_input(self, name: str, scope: Scope, index: int) -> None:
        require_text((name,), scope.path)
        place = scope.place(index, name)
        if scope.will_see(name):
            self.found.add(
                "unsorted-nodes",
                place,
                f"reads `{name}` before the node that produces it",
                help="sort the nodes so that each value is produced before it is read",
            )
        else:
            self.found.add("undefined-input", place, f"reads `{name}`, which nothing produces")

    def _undefined_output(self, name: str, scope: Scope) -> None:
        require_text((name,), scope.path)
        where = ""
        if scope.outer is not None and scope.outer.sees(name):
            where = " in this graph, only in an enclosing one"
        self.found.add(
            "undefined-output",
            Location(scope.path, value=name),
            f"has an output `{name}` that nothing produces{where}",
            help="return it through an Identity node" if where else None,
        )

    def _peculiar(self, node: onnx.NodeProto, place: Location) -> None:
        self.found.keys(node.metadata_props, place)
        self.found.fields(node, place)
        if not node.op_type:
            self.found.add("missing-op-type", place, "has no operator")
        if node.output and not node.output[-1]:
            self.found.add(
                "trailing-empty-output", place, "has no name for its last output", severity="info"
            )

    def _annotations(self, graph: onnx.GraphProto, scope: Scope) -> None:
        seen: set[str] = set()
        for annotation in graph.quantization_annotation:
            name = annotation.tensor_name
            require_text((name,), scope.path)
            if name in seen or name not in scope.names:
                what = "a second one for" if name in seen else "for a value that is not here,"
                self.found.add(
                    "lost-quantization-annotation",
                    Location(scope.path, value=name),
                    f"has a quantization annotation {what} `{name}`",
                )
            seen.add(name)


# Judging a model message before onnx_ir sees it, as onnx_ir repairs and drops in silence.


_MODEL = Location()


def judge(message: onnx.ModelProto) -> Judgement:
    """Judge a model message; nothing in it is changed, and no external file is looked at.

    One walk over all graphs, linear in the size of the message. It judges whether the message can
    be represented and edited without loss, not whether its operators follow their schemas.

    Returns:
        The defects, and the content that onnx_ir does not support.

    Raises:
        MalformedModel: For content that has no meaning and that onnx_ir refuses: a value produced
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
    imported = {entry.domain for entry in message.opset_import}
    if imported.isdisjoint(DEFAULT_DOMAINS) and any(
        node.domain in DEFAULT_DOMAINS for node in message.graph.node
    ):
        text = "uses ONNX operators and does not import a version of them"
        found.add("missing-opset-import", _MODEL, text)
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
                help="keep the version that the nodes were written for",
            )
        versions[domain] = entry.version


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
