"""A drawable part of the graph around the update of a cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import onnx_ir as ir

from onnx_kvtool.analysis.caches.cache import Cache
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.walk import is_op, is_output_of
from onnx_kvtool.ops.traits import Trait, traits

SpotKind = Literal["input", "initializer", "output", "update", "node"]

_LEVELS_UP = 2
_LEVELS_DOWN = 2
_MOST_SPOTS = 24


class Spot(NamedTuple):
    """A node, or a value that comes from outside or leaves.

    Attributes:
        key: Identifier, the same in all neighbourhoods of one model.
        kind: What it is.
        label: Operator of a node, name of a value.
        name: Name of a node, or `#<index>`-like text of an unnamed one; "" for a value.
    """

    key: str
    kind: SpotKind
    label: str
    name: str = ""


class Edge(NamedTuple):
    """A value that flows from one spot to another.

    Attributes:
        source: Key of the spot that makes the value.
        target: Key of the spot that takes it.
        label: Name of the value; "" where the spot at one end has it.
        is_cache: Whether the cache itself travels here, not an operand.
    """

    source: str
    target: str
    label: str
    is_cache: bool = False


class Neighbourhood(NamedTuple):
    """The graph around one update.

    Attributes:
        spots: What is in it.
        edges: What goes from where to where.
    """

    spots: tuple[Spot, ...]
    edges: tuple[Edge, ...]


def neighbourhood(model: ir.Model, cache: Cache) -> Neighbourhood:
    """Return the nodes around the update of `cache`: two steps back, two steps on, at most 24.

    It stays in the graph where the update stands, a function body or the body of an If included,
    and follows the cache itself until it comes in and goes out there.
    """
    return _Drawing(model, cache).result()


class _Drawing:
    def __init__(self, model: ir.Model, cache: Cache) -> None:
        self._cache = cache
        self._graph = model.graph
        self._spots: dict[str, Spot] = {}
        self._edges: dict[tuple[str, str, str], Edge] = {}
        self._frame = "".join(f"{id(call)}/" for call in cache.calls)
        self._way = self._way_of_the_cache()

    def result(self) -> Neighbourhood:
        node = self._cache.node
        self._node(node)
        self._up(node)
        self._down(node)
        return Neighbourhood(tuple(self._spots.values()), tuple(self._edges.values()))

    def _way_of_the_cache(self) -> set[ir.Value]:
        """Return the values that contain the cache, from its input to its output."""
        cache = self._cache
        way: set[ir.Value] = set()
        for value in cache.node.inputs:
            passed = list(_back(value))
            if passed and (passed[-1] is cache.past_value or passed[-1].name == cache.past):
                way.update(passed)
        for value in cache.node.outputs:
            way.update(_on(value, cache.present))
        if not way and Trait.BROADCASTS not in traits(cache.node):
            # In a function body the ends have other names; the first input is the past there.
            way.update(_back(cache.node.inputs[0]))
            way.add(cache.node.outputs[0])
        return way

    @property
    def _is_full(self) -> bool:
        return len(self._spots) >= _MOST_SPOTS

    def _node(self, node: ir.Node) -> str:
        key = f"{self._frame}n{id(node)}"
        kind: SpotKind = "update" if node is self._cache.node else "node"
        label = Location.of("", node, None).op or ""
        self._spots.setdefault(key, Spot(key, kind, label, node.name or ""))
        return key

    def _up(self, start: ir.Node) -> None:
        """Add what `start` reads, level by level."""
        level, seen = [start], {start}
        for depth in range(_LEVELS_UP + 1):
            following: list[ir.Node] = []
            for node in level:
                target = self._node(node)
                for value in node.inputs:
                    if value is None:
                        continue
                    producer = value.producer()
                    if producer is None:
                        tensor = value.const_value
                        # A picture omits sizes and axes.
                        is_setting = (
                            tensor is not None and tensor.dtype.is_integer() and tensor.size <= 16
                        )
                        if node is start or not is_setting:
                            kind: SpotKind = "initializer" if value.is_initializer() else "input"
                            key = f"{self._frame}v{id(value)}"
                            self._spots.setdefault(key, Spot(key, kind, value.name or ""))
                            self._edge(key, target, "", value)
                        continue
                    is_new = producer not in seen
                    if is_new and (depth == _LEVELS_UP or self._is_full):
                        continue
                    if is_op(producer, "Constant"):
                        continue
                    self._edge(self._node(producer), target, value.name or "", value)
                    if is_new:
                        seen.add(producer)
                        following.append(producer)
            level = following

    def _down(self, start: ir.Node) -> None:
        """Add where the present goes, level by level."""
        level = [v for v in start.outputs if v.name == self._cache.present or v.name]
        if self._cache.kind in ("attention", "group_query_attention"):
            level = [v for v in level if v.name == self._cache.present] or level
        for depth in range(_LEVELS_DOWN):
            following: list[ir.Value] = []
            for value in level:
                producer = value.producer()
                assert producer is not None
                source = self._node(producer)
                if is_output_of(value, self._graph):
                    key = f"o{id(value)}"
                    self._spots.setdefault(key, Spot(key, "output", value.name or ""))
                    self._edge(source, key, "", value)
                for reader in value.consumers():
                    target_key = f"{self._frame}n{id(reader)}"
                    if self._is_full and target_key not in self._spots:
                        continue
                    self._edge(source, self._node(reader), value.name or "", value)
                    if traits(reader).any(*_ON) and depth + 1 < _LEVELS_DOWN:
                        following.extend(reader.outputs)
            level = following

    def _edge(self, source: str, target: str, label: str, value: ir.Value) -> None:
        is_cache = value in self._way
        key = source, target, value.name or ""
        self._edges.setdefault(key, Edge(source, target, label, is_cache))


_ON = (Trait.REARRANGES, Trait.CONVERTS)
"""Operators between the present and an output."""

_BACK = (*_ON, Trait.SHIFTS)
"""Operators that hand the past on to the update, its rows moved by some of them."""


def _back(value: ir.Value | None) -> Iterator[ir.Value]:
    """Yield `value` and what it was before, a few operators far."""
    for _ in range(_LEVELS_UP + 1):
        if value is None:
            return
        yield value
        node = value.producer()
        if node is None or not traits(node).any(*_BACK) or not node.inputs:
            return
        value = node.inputs[0]


def _on(value: ir.Value, present: str | None, steps: int = _LEVELS_DOWN) -> list[ir.Value]:
    """Return the values from `value` to the one called `present`; none when it is too far away."""
    if value.name == present:
        return [value]
    if steps == 0:
        return []
    for reader in value.consumers():
        if traits(reader).any(*_ON) and reader.outputs:
            rest = _on(reader.outputs[0], present, steps - 1)
            if rest:
                return [value, *rest]
    return []
