"""The input and output of a cache, through calls and branches."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import onnx_ir as ir

from onnx_kvtool.analysis.caches.updates import AxisMap, Link, compose, inverted, link
from onnx_kvtool.analysis.constants import ConstantFolder
from onnx_kvtool.core import walk
from onnx_kvtool.core.domains import default_version
from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.walk import subgraphs
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.ops.view import given_input, given_integer
from onnx_kvtool.symbolic.dimensions import contradict, dims_of

# The graphs of a model as they are run: a function body once for each of its calls.


_MOST_NODES = 500_000
"""Nodes that are looked at, a function body counted once for each call: beyond it lies nothing that
an exporter writes, but functions that call each other to make the number explode."""


@dataclass(eq=False, slots=True)
class Frame:
    """The main graph, or a function body for one call, which `outer` makes.

    Attributes:
        opset: Version of the default domain there; 0 when none is imported.
        inner: The frames of the calls made here, by the call.
    """

    function: ir.Function | None
    call: ir.Node | None
    outer: Frame | None
    opset: int
    inner: dict[ir.Node, Frame] = field(default_factory=dict, repr=False)

    @property
    def calls(self) -> tuple[ir.Node, ...]:
        """The calls that lead here, outermost first."""
        calls: list[ir.Node] = []
        frame: Frame | None = self
        while frame is not None and frame.call is not None:
            calls.append(frame.call)
            frame = frame.outer
        return tuple(reversed(calls))


_Place = tuple[ir.Value, Frame]


class Program:
    """The graphs of `model` and their nesting; the model stays unchanged."""

    def __init__(self, model: ir.Model, wanted: frozenset[str]) -> None:
        """Walk the model once. `nodes` yields the nodes of `wanted` operators."""
        self.model = model
        self.main = Frame(None, None, None, default_version(model.opset_imports))
        self._wanted = wanted
        self._owners: dict[ir.Graph, ir.Node] = {}
        self._found: dict[ir.Graph, list[tuple[str, int, ir.Node]]] = {}
        self._inputs: dict[ir.Value, int] = {}
        self._outputs: dict[ir.Value, list[tuple[ir.Function, int]]] = {}
        self._walk()
        self._leave_out_the_rest()

    def _walk(self) -> None:
        roots = {self.model.graph, *(f.graph for f in self.model.functions.values())}
        found: list[tuple[str, int, ir.Node]] = []
        for path, graph, nodes in walk.contents(self.model):
            if graph in roots:
                found = self._found.setdefault(graph, [])
            for index, node in enumerate(nodes):
                if self._function(node) is not None or node.op_type in self._wanted:
                    found.append((path, index, node))
                if node.attributes.data:
                    self._owners.update((body, node) for _, body in walk.subgraphs(node))
        for function in self.model.functions.values():
            self._inputs.update((v, i) for i, v in enumerate(function.inputs))
            for index, value in enumerate(function.outputs):
                self._outputs.setdefault(value, []).append((function, index))

    def _leave_out_the_rest(self) -> None:
        """Drop calls of functions that lead to no wanted node."""
        callers: dict[ir.Graph, list[ir.Graph]] = {}
        useful: list[ir.Graph] = []
        for root, found in self._found.items():
            for _, _, node in found:
                function = self._function(node)
                if function is None:
                    useful.append(root)
                else:
                    callers.setdefault(function.graph, []).append(root)
        kept: set[ir.Graph] = set()
        while useful:
            root = useful.pop()
            if root not in kept:
                kept.add(root)
                useful.extend(callers.get(root, ()))
        for root, found in self._found.items():
            called = [(place, self._function(place[2])) for place in found]
            self._found[root] = [at for at, f in called if f is None or f.graph in kept]

    def _function(self, node: ir.Node) -> ir.Function | None:
        return self.model.functions.get(node.op_identifier()) if self.model.functions else None

    def nodes(self) -> Iterator[tuple[Frame, str, int, ir.Node]]:
        """Yield the wanted nodes in the order of the graph, those of a function at each call.

        Raises:
            KvtoolError: If there are too many of them.
        """
        stack = [(self.main, iter(self._found[self.model.graph]))]
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
                stack.append((inner, iter(self._found[inner.function.graph])))
            elif node.op_type in self._wanted:
                yield frame, path, index, node

    def enter(self, frame: Frame, call: ir.Node) -> Frame | None:
        """Return the frame of a call; None for a node that calls no function of the model.

        A function that calls itself, which ONNX forbids, is not entered again.
        """
        function = self._function(call)
        if function is None:
            return None
        if (known := frame.inner.get(call)) is not None:
            return known
        outer: Frame | None = frame
        while outer is not None:
            if outer.function is function:
                return None
            outer = outer.outer
        inner = Frame(function, call, frame, default_version(function.opset_imports))
        frame.inner[call] = inner
        return inner

    def owner(self, node: ir.Node) -> ir.Node | None:
        """Return the node in whose body `node` stands; None outside of bodies."""
        return None if node.graph is None else self._owners.get(node.graph)

    def given(self, value: ir.Value, frame: Frame) -> _Place | None:
        """Return what a call or a loop gives to an input of its body; None for other values."""
        index = self._inputs.get(value)
        if index is not None:
            given = None if frame.call is None else given_input(frame.call, index)
            return None if given is None or frame.outer is None else (given, frame.outer)
        graph = value.graph
        owner = None if graph is None else self._owners.get(graph)
        if graph is None or owner is None or Trait.LOOPS not in traits(owner):
            return None
        states = range(2, len(owner.inputs)) if owner.op_type == "Loop" else range(_states(owner))
        index = graph.inputs.index(value) if value in graph.inputs else -1
        state = owner.inputs[index] if index in states else None
        return None if state is None else (state, frame)

    def returned(self, value: ir.Value, frame: Frame) -> Iterator[tuple[ir.Value, Frame]]:
        """Yield the outputs of the call of `frame` as which `value` is handed out."""
        if frame.call is None or frame.outer is None:
            return
        for function, index in self._outputs.get(value, ()):
            if function is frame.function and index < len(frame.call.outputs):
                yield frame.call.outputs[index], frame.outer


# The source of a value, and the model output that it becomes.


_CHANGES = ("same", "view", "cast", "updated", "moved")
_MOST_TARGETS = 4
"""Most outputs as which one value is taken to leave: a cache, and copies of it."""


class Route(NamedTuple):
    """The other end of what a value holds, and how it differs from the value.

    Attributes:
        end: The value at the other end.
        axes: For each axis of the value, the axis of `end`.
        link: The link that changes most on the way, of equal ones the nearest to the value; None
            when all hand on the very same tensor.
        moves: Whether rows are moved or left out on the way.
    """

    end: ir.Value
    frame: Frame
    axes: AxisMap = "same"
    link: Link | None = None
    moves: bool = False

    def behind(self, nearer: Link | None, axes: AxisMap) -> Route:
        """Return the route of a value that `nearer` leads from, to the start of this route."""
        if nearer is None:
            return self
        change = _CHANGES.index(nearer.how)
        most = nearer if change and change >= self.change else self.link
        moves = self.moves or nearer.how == "moved"
        return Route(self.end, self.frame, compose(axes, self.axes), most, moves)

    @property
    def change(self) -> int:
        """Rank of the link that changes most, in `_CHANGES`; 0 for the identical tensor."""
        return 0 if self.link is None else _CHANGES.index(self.link.how)


class _Step(NamedTuple):
    value: ir.Value
    frame: Frame
    link: Link | None = None


class Routes:
    """The routes through the graphs of one program; every answer is remembered."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.folder = ConstantFolder()
        self._sources: dict[_Place, Route] = {}
        self._targets: dict[_Place, list[Route]] = {}
        self._mark()

    def source(self, value: ir.Value, frame: Frame) -> Route:
        """Return the source of `value`: a graph input, an initializer, or a computed value.

        The way is followed as long as there is only one: not into the branches of an If, nor
        into what a Loop returns.
        """
        path: list[tuple[_Place, Link | None]] = []
        step = _Step(value, frame)
        seen: set[_Place] = set()
        while True:
            key = step.value, step.frame
            if (route := self._sources.get(key)) is not None:
                break
            steps = list(self._steps(step.value, step.frame))
            node = step.value.producer()
            is_choice = node is not None and traits(node).any(Trait.BRANCHES, Trait.LOOPS)
            if len(steps) != 1 or key in seen or is_choice:
                route = self._sources[key] = Route(step.value, step.frame)
                break
            seen.add(key)
            path.append((key, steps[0].link))
            step = steps[0]
        for key, passed in reversed(path):
            route = route.behind(passed, None if passed is None else passed.axes)
            self._sources[key] = route
        return route

    def target(self, value: ir.Value, frame: Frame, past: ir.Value | None = None) -> Route | None:
        """Return the model output that `value` becomes; None if it becomes none.

        Of several, one that may be declared as `past` is: the others are copies, such as one that
        is quantized. Of equal ones, the one that changes least on the way, then the first.
        """
        found = self._targets.get((value, frame), ())
        alike = (route for route in found if past is not None and _may_be_alike(route.end, past))
        return next(alike, found[0] if found else None)

    def _mark(self) -> None:
        """Follow each output of the model back as far as it is only handed on."""
        main, count = self.program.main, itertools.count()
        # Those that change least come first.
        heap: list[tuple[int, int, _Step, Route]] = [
            (0, next(count), _Step(output, main), Route(output, main))
            for output in self.program.model.graph.outputs
        ]
        while heap:
            _, _, step, route = heapq.heappop(heap)
            known = self._targets.setdefault((step.value, step.frame), [])
            # A second output of one type and shape tells no more than the first.
            forms = [(r.end.dtype, dims_of(r.end)) for r in known]
            if len(known) == _MOST_TARGETS or (route.end.dtype, dims_of(route.end)) in forms:
                continue
            known.append(route)
            for former in self._steps(step.value, step.frame):
                axes = None if former.link is None else inverted(former.link.axes)
                behind = route.behind(former.link, axes)
                heapq.heappush(heap, (behind.change, next(count), former, behind))

    def _steps(self, value: ir.Value, frame: Frame) -> Iterator[_Step]:
        node = value.producer()
        if node is None:
            if (given := self.program.given(value, frame)) is not None:
                yield _Step(*given)
        elif (inner := self.program.enter(frame, node)) is not None:
            assert inner.function is not None
            index = value.index()
            if index is not None and index < len(inner.function.outputs):
                yield _Step(inner.function.outputs[index], inner)
        elif (found := link(value, self.folder)) is not None:
            yield _Step(found.source, frame, found)
        elif traits(node).any(Trait.BRANCHES, Trait.LOOPS):
            yield from (_Step(inside, frame) for inside in _handed_out(node, value))


def _may_be_alike(value: ir.Value, past: ir.Value) -> bool:
    """Return whether declared types and shapes differ at most in lengths."""
    if value.dtype is not None and past.dtype is not None and value.dtype != past.dtype:
        return False
    here, there = dims_of(value), dims_of(past)
    if here is None or there is None:
        return True
    # A present that grows differs along one axis.
    differing = sum(contradict(a, b) for a, b in zip(here, there, strict=False))
    return len(here) == len(there) and differing <= 1


def _handed_out(node: ir.Node, value: ir.Value) -> Iterator[ir.Value]:
    """Yield the outputs of bodies of `node` that become its output `value` unchanged."""
    index = value.index()
    if index is None:
        return
    if node.op_type == "Loop":
        if index >= len(node.inputs) - 2:
            return  # stacked from all iterations
        index += 1  # the first output of the body is the condition
    elif node.op_type == "Scan" and index >= _states(node):
        return
    for _, body in subgraphs(node):
        if index < len(body.outputs):
            yield body.outputs[index]


def _states(node: ir.Node) -> int:
    """Return the number of states of a Scan."""
    scanned = given_integer(node, "num_scan_inputs")
    return 0 if scanned is None else max(0, len(node.inputs) - scanned)
