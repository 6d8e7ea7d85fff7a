"""The graphs of a model as they are run: a function body once for each of its calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_kvtool.core import walk
from onnx_kvtool.core.domains import default_version
from onnx_kvtool.core.errors import KvtoolError

__all__ = ["Frame", "Program"]

_MOST_NODES = 500_000
"""Nodes that are looked at, a function body counted once for each call: beyond it lies nothing that
an exporter writes, but functions that call each other to make the number explode."""


@dataclass(eq=False, slots=True)
class Frame:
    """The main graph, or a function body for one call.

    Attributes:
        function: The function; None for the main graph.
        call: The call; None for the main graph.
        outer: The frame of the call; None for the main graph.
        opset: Version of the default domain there; 0 when none is imported.
        inner: The frames of the calls made here, by the identity of the call.
    """

    function: ir.Function | None
    call: ir.Node | None
    outer: Frame | None
    opset: int
    inner: dict[int, Frame] = field(default_factory=dict, repr=False)

    @property
    def calls(self) -> tuple[ir.Node, ...]:
        """The calls that lead here, outermost first."""
        calls: list[ir.Node] = []
        frame: Frame | None = self
        while frame is not None and frame.call is not None:
            calls.append(frame.call)
            frame = frame.outer
        return tuple(reversed(calls))


class Program:
    """The graphs of `model`, which is read and not changed, and how they are nested.

    Attributes:
        model: The model.
        main: The frame of the main graph.
    """

    def __init__(self, model: ir.Model, wanted: frozenset[str]) -> None:
        """Walk the model once.

        Args:
            model: The model.
            wanted: Operators whose nodes `nodes` yields.
        """
        self.model = model
        self.main = Frame(None, None, None, default_version(model.opset_imports))
        self._wanted = wanted
        self._owners: dict[int, tuple[ir.Node, int]] = {}
        self._found: dict[int, list[tuple[str, int, ir.Node]]] = {}
        self._inputs: dict[int, int] = {}
        self._outputs: dict[int, list[tuple[ir.Function, int]]] = {}
        self._walk()
        self._leave_out_the_rest()

    def _walk(self) -> None:
        roots = {id(self.model.graph), *(id(f.graph) for f in self.model.functions.values())}
        found: list[tuple[str, int, ir.Node]] = []
        for path, graph, nodes in walk.contents(self.model):
            if id(graph) in roots:
                found = self._found.setdefault(id(graph), [])
            for index, node in enumerate(nodes):
                if self._function(node) is not None or node.op_type in self._wanted:
                    found.append((path, index, node))
                if node.attributes.data:
                    for position, (_, body) in enumerate(walk.subgraphs(node)):
                        self._owners[id(body)] = (node, position)
        for function in self.model.functions.values():
            self._inputs.update((id(v), i) for i, v in enumerate(function.inputs))
            for index, value in enumerate(function.outputs):
                self._outputs.setdefault(id(value), []).append((function, index))

    def _leave_out_the_rest(self) -> None:
        """Forget the calls of functions that neither hold a wanted node nor call one that does."""
        callers: dict[int, list[int]] = {}
        useful: list[int] = []
        for root, found in self._found.items():
            for _, _, node in found:
                function = self._function(node)
                if function is None:
                    useful.append(root)
                else:
                    callers.setdefault(id(function.graph), []).append(root)
        kept: set[int] = set()
        while useful:
            root = useful.pop()
            if root not in kept:
                kept.add(root)
                useful.extend(callers.get(root, ()))
        for root, found in self._found.items():
            self._found[root] = [place for place in found if self._is_kept(place[2], kept)]

    def _is_kept(self, node: ir.Node, kept: set[int]) -> bool:
        function = self._function(node)
        return function is None or id(function.graph) in kept

    def _function(self, node: ir.Node) -> ir.Function | None:
        return self.model.functions.get(node.op_identifier()) if self.model.functions else None

    def nodes(self) -> Iterator[tuple[Frame, str, int, ir.Node]]:
        """Yield the wanted nodes in the order of the graph, those of a function at each call.

        Raises:
            KvtoolError: If there are too many of them.
        """
        stack = [(self.main, iter(self._found[id(self.model.graph)]))]
        visited = 0
        while stack:
            frame, rest = stack[-1]
            found = next(rest, None)
            if found is None:
                stack.pop()
                continue
            visited += 1
            if visited > _MOST_NODES:
                raise KvtoolError(
                    f"the calls of model-local functions unfold to more than {_MOST_NODES:,} nodes"
                )
            path, index, node = found
            inner = self.enter(frame, node)
            if inner is not None and inner.function is not None:
                stack.append((inner, iter(self._found[id(inner.function.graph)])))
            elif node.op_type in self._wanted:
                yield frame, path, index, node

    def enter(self, frame: Frame, call: ir.Node) -> Frame | None:
        """Return the frame of a call; None for a node that calls no function of the model.

        A function that calls itself, which ONNX forbids, is not entered again.
        """
        function = self._function(call)
        if function is None:
            return None
        if (known := frame.inner.get(id(call))) is not None:
            return known
        outer: Frame | None = frame
        while outer is not None:
            if outer.function is function:
                return None
            outer = outer.outer
        inner = Frame(function, call, frame, default_version(function.opset_imports))
        frame.inner[id(call)] = inner
        return inner

    def owner(self, node: ir.Node) -> tuple[ir.Node, int] | None:
        """Return the node in whose body `node` stands, and which body; None outside of bodies."""
        return None if node.graph is None else self._owners.get(id(node.graph))

    def body_owner(self, value: ir.Value) -> tuple[ir.Node, int] | None:
        """Return the node whose body takes `value` as an input, and which input it is."""
        graph = value.graph
        owner = None if graph is None else self._owners.get(id(graph))
        if owner is None or graph is None:
            return None
        index = next((i for i, v in enumerate(graph.inputs) if v is value), None)
        return None if index is None else (owner[0], index)

    def argument(self, value: ir.Value, frame: Frame) -> tuple[ir.Value | None, Frame] | None:
        """Return what a call gives to the function input `value`; None for any other value."""
        index = self._inputs.get(id(value))
        if index is None or frame.call is None or frame.outer is None:
            return None
        given = frame.call.inputs[index] if index < len(frame.call.inputs) else None
        return given, frame.outer

    def returned(self, value: ir.Value, frame: Frame) -> Iterator[tuple[ir.Value, Frame]]:
        """Yield the outputs of the call of `frame` as which `value` is handed out."""
        if frame.call is None or frame.outer is None:
            return
        for function, index in self._outputs.get(id(value), ()):
            if function is frame.function and index < len(frame.call.outputs):
                yield frame.call.outputs[index], frame.outer
