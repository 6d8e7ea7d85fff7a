"""Bodies and functions: names that onnx's inference mixes up in them, and tables that it copies."""

from __future__ import annotations

import graphlib
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping

import onnx
import onnx.checker
import onnx.defs
import onnx.shape_inference

from onnx_kvtool.guard.exhaustion import HANDED_ON
from onnx_kvtool.guard.fault import HOLDERS, INFERENCE_ERRORS, Contents, Fault, Infer
from onnx_kvtool.model_io.verbatim import Holder, bodies, every_holder, every_node

DISTINCT_NAMES = Fault(
    what="keeps the elements of integer values by name alone while it infers, so that those of one"
    " branch are taken for those of another, or the second is said to exist already",
    instead="gives each value in a body its own name while inference runs",
)


def infer_with_distinct_names(contents: Contents, infer: Infer) -> onnx.ModelProto:
    """Return `infer(contents)`; while it runs, each name in bodies stands for one value.

    Branches of an If, and other bodies, may use the same names. Inference of onnx 1.23.2 keeps the
    elements of integer values by name alone: it complains that the second value "already exists",
    or takes the elements of the first one for those of the second.
    """
    originals = _make_distinct(contents.message)
    if not originals:
        return infer(contents)
    try:
        result = infer(contents)
    finally:
        _rename_everywhere(contents.message, originals)
    _rename_everywhere(result, originals)
    return result


def _make_distinct(message: onnx.ModelProto) -> dict[str, str]:
    """Rename values of bodies whose name is not unique; return the old names by the new ones."""
    roots = [message.graph, *message.functions]
    taken = {name for holder in every_holder(message, HOLDERS) for name in _defined(holder)}
    seen = {name for root in roots for name in _defined(root)}
    originals: dict[str, str] = {}

    def fresh(name: str) -> str:
        number = len(originals)
        while (new := f"{name}~{number}") in taken:
            number += 1
        taken.add(new)
        originals[new] = name
        return new

    def visit(holder: Holder, names: ChainMap[str, str]) -> None:
        """Rename in bodies; `names` has what they can read, all of it seen."""
        for body in _inner(holder):
            defined = _defined(body)
            inner = names.new_child({name: fresh(name) for name in defined if name in seen})
            seen.update(defined)
            _rename(body, inner)
            visit(body, inner)

    for root in roots:
        visit(root, ChainMap())
    return originals


def _defined(holder: Holder) -> dict[str, None]:
    """Return the names of the values that a graph or a function itself defines, in order."""
    if isinstance(holder, onnx.FunctionProto):
        given = list(holder.input)
    else:
        given = [value.name for value in (*holder.input, *holder.initializer)]
        given += [tensor.values.name for tensor in holder.sparse_initializer]
    made = (name for node in holder.node for name in node.output)
    return {name: None for name in (*given, *made) if name}


def _rename_everywhere(message: onnx.ModelProto, names: Mapping[str, str]) -> None:
    inner = every_holder(message, HOLDERS)[1 + len(message.functions) :]
    for graph in inner:
        assert isinstance(graph, onnx.GraphProto)
        _rename(graph, names)


def _inner(holder: Holder) -> Iterator[onnx.GraphProto]:
    return (body for node in holder.node for body in _bodies(node))


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename the values that a graph itself defines and reads, in place."""
    if not names:
        return
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        if value.name in names:
            value.name = names[value.name]
    for tensor in graph.sparse_initializer:
        if tensor.values.name in names:
            tensor.values.name = names[tensor.values.name]
    for node in graph.node:
        for slots in (node.input, node.output):
            for index, name in enumerate(slots):
                if name in names:
                    slots[index] = names[name]


COPIED_SCOPES = Fault(
    what="copies a table of all functions for each call and each body, and for a body one of all"
    " outer values as well, so that 8,000 calls of as many functions take 4 s",
    instead="infers a graph in pieces if much would be copied",
)

_MOST_COPIED = 4_000_000
"""Entries of tables, which take about 0.2 s to copy."""

_PIECE = 128
"""Nodes of a piece."""

_INVENTED = "unk__"
_MARK = "kvtool.hidden"

_Call = tuple[str, str, str]


def infer_past_copied_scopes(
    contents: Contents, infer: Callable[[onnx.ModelProto], onnx.ModelProto]
) -> onnx.ModelProto:
    """Return `infer` of a message, in pieces if it would copy too much.

    Pieces may number invented names differently; no two sizes get one name. If a piece is refused,
    the whole message is inferred, so that the error is the usual one.
    """
    message, graph = contents.message, contents.message.graph
    functions = len(message.functions)
    scopes = len(contents.of(*{function.name for function in message.functions}))
    scopes += len(contents.holders) - 1 - functions
    if scopes * (functions + len(graph.node) + len(graph.input)) <= _MOST_COPIED:
        return infer(message)
    try:
        return _Pieces(message, infer).inferred()
    except INFERENCE_ERRORS:  # a circle is a ValueError
        return infer(message)


class _Pieces:
    """Infers the nodes of a main graph in pieces.

    A piece has some nodes, the known types of what they read, the constants that they read, the
    functions that they call, and again the nodes that give elements of their inputs.
    """

    def __init__(
        self, message: onnx.ModelProto, infer: Callable[[onnx.ModelProto], onnx.ModelProto]
    ) -> None:
        self._infer = infer
        self._model = onnx.ModelProto()
        self._model.CopyFrom(message)
        graph = self._graph = self._model.graph
        self._nodes = list(graph.node)
        self._known: dict[str, onnx.ValueInfoProto] = {}
        self._untyped: dict[str, onnx.ValueInfoProto] = {}
        for info in (*graph.value_info, *graph.input, *graph.output):
            (self._known if info.HasField("type") else self._untyped)[info.name] = info
            info.type.SetInParent()  # as inference does
        self._functions = {(f.domain, f.name, f.overload): f for f in self._model.functions}
        self._calls = {
            key: {_call(node) for node in every_node(function)} & self._functions.keys()
            for key, function in self._functions.items()
        }
        graphlib.TopologicalSorter(self._calls).prepare()  # onnx refuses functions in a circle
        self._initializers = {tensor.name: tensor for tensor in graph.initializer}
        self._sparse = {tensor.values.name: tensor for tensor in graph.sparse_initializer}
        self._makers = {n: i for i, node in enumerate(self._nodes) for n in node.output if n}
        self._loaders: dict[str, list[int]] = {}
        made = {n for n, i in self._makers.items() if self._nodes[i].op_type == "Constant"}
        constants = self._initializers.keys() | made
        for index, node in enumerate(self._nodes):
            for name in constants.intersection(node.input if node.op_type in HANDED_ON else ()):
                self._loaders.setdefault(name, []).append(index)
        self._versions = {entry.domain: entry.version for entry in self._model.opset_import}
        self._is_unsure = False
        self._invented: set[str] = set()
        if _INVENTED.encode() in message.SerializeToString():
            self._note_invented(
                info for holder in Contents(message).holders for info in _declared(holder)
            )

    def inferred(self) -> onnx.ModelProto:
        """Return the model with inferred types."""
        for start in range(0, len(self._nodes), _PIECE):
            end = min(start + _PIECE, len(self._nodes))
            chosen = self._with_makers(start, end)
            piece = self._piece([self._nodes[index] for index in chosen])
            self._take(self._infer(piece).graph, start, end, len(piece.graph.value_info))
        return self._model

    def _with_makers(self, start: int, end: int) -> list[int]:
        """Return the nodes of a piece, and those before it whose elements it needs."""
        chosen = dict.fromkeys(range(start, end))
        waiting = list(chosen)
        for index in waiting:  # which grows
            node = self._nodes[index]
            opens = node.op_type in HOLDERS or _call(node) in self._functions
            for name in _reads(node):
                wanted = [self._makers[name]] if self._may_be_told(name, start) else []
                # A body knows the elements of an outer constant once another node has read them.
                wanted += self._loaders.get(name, ()) if opens else ()
                new = [maker for maker in wanted if maker < start and maker not in chosen]
                chosen.update(dict.fromkeys(new))
                waiting += new
        return sorted(chosen)

    def _may_be_told(self, name: str, start: int) -> bool:
        """Return whether inference may know elements of a value from a node before a piece."""
        index = self._makers.get(name, start)
        if index >= start:
            return False
        node = self._nodes[index]
        if node.op_type == "Constant":
            return True
        if node.op_type not in HANDED_ON and _call(node) not in self._functions:
            return False
        type_ = self._known[name].type.tensor_type if name in self._known else None
        return type_ is None or len(type_.shape.dim) < 2

    def _piece(self, nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
        names = dict.fromkeys(n for node in nodes for n in (*_reads(node), *node.output) if n)
        inner = (n for node in nodes for body in _bodies(node) for n in every_node(body))
        called = list({_call(node) for node in (*nodes, *inner)} & self._functions.keys())
        for key in called:  # which grows
            called += self._calls[key].difference(called)
        piece = onnx.ModelProto(ir_version=self._model.ir_version)
        piece.opset_import.extend(self._model.opset_import)
        piece.functions.extend(self._functions[key] for key in called)
        graph = piece.graph
        graph.value_info.extend(self._known[name] for name in names if name in self._known)
        graph.initializer.extend(self._initializers[n] for n in names if n in self._initializers)
        graph.sparse_initializer.extend(self._sparse[n] for n in names if n in self._sparse)
        taken = graph.value_info.add(name=_MARK).type.tensor_type.shape
        for name in self._invented:
            taken.dim.add(dim_param=name)
        if self._is_unsure:
            piece.opset_import.add(domain=_MARK, version=1)
            graph.node.add(op_type=_MARK, domain=_MARK)
        graph.node.extend(nodes)
        return piece

    def _take(self, inferred: onnx.GraphProto, start: int, end: int, given: int) -> None:
        """Take over the types that were inferred for a piece, whose own nodes are its last ones.

        Args:
            inferred: The graph of the piece.
            start: Where the nodes begin in the main graph.
            end: Where they end there.
            given: Number of declarations that the piece had; the others are new.
        """
        made = {name for node in self._nodes[start:end] for name in node.output}
        for place, info in enumerate(inferred.value_info):
            if info.name not in made:
                continue
            if place >= given:
                self._known[info.name] = self._graph.value_info.add()
                if info.name in self._untyped:
                    self._untyped[info.name].type.CopyFrom(info.type)
            self._known[info.name].CopyFrom(info)
            self._note_invented([info])
        for node, other in zip(self._nodes[start:end], inferred.node[start - end :], strict=True):
            if inner := _bodies(other):
                node.CopyFrom(other)
            holders = (holder for body in inner for holder in every_holder(body, HOLDERS))
            self._note_invented(info for holder in holders for info in _declared(holder))
            version = self._versions.get(node.domain, self._versions.get("ai.onnx", 1))
            if not self._is_unsure and _call(node) not in self._functions:
                self._is_unsure = not onnx.defs.has(node.op_type, version, node.domain)

    def _note_invented(self, infos: Iterable[onnx.ValueInfoProto]) -> None:
        dims = (dim.dim_param for info in infos for dim in info.type.tensor_type.shape.dim)
        self._invented.update(name for name in dims if name.startswith(_INVENTED))


def _call(node: onnx.NodeProto) -> _Call:
    return node.domain, node.op_type, node.overload


def _bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return bodies(node) if node.op_type in HOLDERS else []


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yield what a node reads, and all that its bodies read."""
    yield from node.input
    for body in _bodies(node):
        for inner in every_node(body, HOLDERS):
            yield from inner.input


def _declared(holder: Holder) -> Iterator[onnx.ValueInfoProto]:
    if isinstance(holder, onnx.GraphProto):
        yield from holder.input
        yield from holder.output
    yield from holder.value_info
