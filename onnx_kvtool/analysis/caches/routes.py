"""Where a value comes from, and as which output of the model it leaves."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_kvtool.analysis.caches.frames import Frame, Program
from onnx_kvtool.analysis.caches.links import AxisMap, Link, compose, inverted, link
from onnx_kvtool.analysis.constants import Folder
from onnx_kvtool.core.walk import subgraphs
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.ops.view import given_integer
from onnx_kvtool.symbolic.dims import contradict, dims_of

__all__ = ["Route", "Routes"]

_CHANGES = ("same", "view", "cast", "updated", "moved")
_MOST_TARGETS = 4
"""Most outputs as which one value is taken to leave: a cache, and copies of it."""


@dataclass(frozen=True, slots=True)
class Route:
    """The other end of what a value holds, and how it differs from the value.

    Attributes:
        end: The value at the other end.
        frame: Where `end` is.
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
        """Return the route of a value from which `nearer` leads to the start of this route."""
        if nearer is None:
            return self
        farther = self.link
        if nearer.how == "same":
            most = farther
        elif farther is None or _CHANGES.index(nearer.how) >= _CHANGES.index(farther.how):
            most = nearer
        else:
            most = farther
        moves = self.moves or nearer.how == "moved"
        return Route(self.end, self.frame, compose(axes, self.axes), most, moves)

    @property
    def change(self) -> int:
        """How much the way changes; 0 where it hands on the very same tensor."""
        return 0 if self.link is None else _CHANGES.index(self.link.how)


@dataclass(frozen=True, slots=True)
class _Step:
    value: ir.Value
    frame: Frame
    link: Link | None = None


@dataclass(order=True, slots=True)
class _Entry:
    """A way back from an output that is to be followed; those that change least come first."""

    change: int
    order: int
    step: _Step = field(compare=False)
    route: Route = field(compare=False)


class Routes:
    """The routes through the graphs of one program; every answer is remembered."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.folder = Folder()
        self._sources: dict[tuple[int, int], Route] = {}
        self._targets: dict[tuple[int, int], list[Route]] = {}
        self._mark()

    def source(self, value: ir.Value, frame: Frame) -> Route:
        """Return where `value` comes from: a graph input, an initializer, or a computed value.

        The way is followed as long as there is only one: not into the branches of an If, nor
        into what a Loop returns.
        """
        path: list[tuple[tuple[int, int], Link | None]] = []
        step = _Step(value, frame)
        seen: set[tuple[int, int]] = set()
        while True:
            key = id(step.value), id(step.frame)
            if (route := self._sources.get(key)) is not None:
                break
            steps = list(self._steps(step.value, step.frame))
            if len(steps) != 1 or key in seen or _is_choice(step.value):
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
        """Return the output of the model as which `value` leaves; None when it does not.

        Of several, one that may be declared as `past` is: the others are copies, such as one that
        is quantized. Of equal ones, the one that changes least on the way, then the first.
        """
        found = self._targets.get((id(value), id(frame)), ())
        alike = (route for route in found if past is not None and _may_be_alike(route.end, past))
        return next(alike, found[0] if found else None)

    def _mark(self) -> None:
        """Follow each output of the model back as far as it is only handed on."""
        heap: list[_Entry] = []
        main = self.program.main
        for output in self.program.model.graph.outputs:
            heap.append(_Entry(0, len(heap), _Step(output, main), Route(output, main)))
        order = len(heap)
        while heap:
            entry = heapq.heappop(heap)
            step, route = entry.step, entry.route
            known = self._targets.setdefault((id(step.value), id(step.frame)), [])
            # A second output of one type and shape tells no more than the first.
            if len(known) == _MOST_TARGETS or any(_alike(route.end, r.end) for r in known):
                continue
            known.append(route)
            for former in self._steps(step.value, step.frame):
                axes = None if former.link is None else inverted(former.link.axes)
                behind = route.behind(former.link, axes)
                heapq.heappush(heap, _Entry(behind.change, order, former, behind))
                order += 1

    def _steps(self, value: ir.Value, frame: Frame) -> Iterator[_Step]:
        node = value.producer()
        if node is None:
            yield from self._into_caller(value, frame)
            return
        if (inner := self.program.enter(frame, node)) is not None:
            assert inner.function is not None
            index = value.index()
            if index is not None and index < len(inner.function.outputs):
                yield _Step(inner.function.outputs[index], inner)
        elif (found := link(value, self.folder)) is not None:
            yield _Step(found.source, frame, found)
        elif traits(node).any(Trait.BRANCHES, Trait.LOOPS):
            yield from (_Step(inside, frame) for inside in _handed_out(node, value))

    def _into_caller(self, value: ir.Value, frame: Frame) -> Iterator[_Step]:
        """Yield what a call or a loop gives to the input `value` of its body."""
        argument = self.program.argument(value, frame)
        if argument is not None:
            given, outer = argument
            if given is not None:
                yield _Step(given, outer)
            return
        owned = self.program.body_owner(value)
        if owned is None or Trait.LOOPS not in traits(owned[0]):
            return
        node, index = owned
        states = range(2, len(node.inputs)) if node.op_type == "Loop" else range(_states(node))
        if index in states and (state := node.inputs[index]) is not None:
            yield _Step(state, frame)


def _alike(a: ir.Value, b: ir.Value) -> bool:
    return a.dtype == b.dtype and dims_of(a) == dims_of(b)


def _may_be_alike(value: ir.Value, past: ir.Value) -> bool:
    """Return whether nothing that is declared of the two tells them apart, but for lengths."""
    if value.dtype is not None and past.dtype is not None and value.dtype != past.dtype:
        return False
    here, there = dims_of(value), dims_of(past)
    if here is None or there is None:
        return True
    # A present that grows differs along one axis.
    differing = sum(contradict(a, b) for a, b in zip(here, there, strict=False))
    return len(here) == len(there) and differing <= 1


def _handed_out(node: ir.Node, value: ir.Value) -> Iterator[ir.Value]:
    """Yield the outputs of the bodies of `node` that its output `value` is, as it is."""
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
    """Return how many inputs of a Scan are states."""
    scanned = given_integer(node, "num_scan_inputs")
    return 0 if scanned is None else max(0, len(node.inputs) - scanned)


def _is_choice(value: ir.Value) -> bool:
    """Return whether `value` is what a body hands out, of which there may be several forms."""
    node = value.producer()
    return node is not None and traits(node).any(Trait.BRANCHES, Trait.LOOPS)
