"""Pairs of nodes and of weights in two models."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.walk import producer
from onnx_kvtool.review.digests import Digests, chunks, decoded, is_whole
from onnx_kvtool.review.report import WeightChange
from onnx_kvtool.review.side import Content, Scope, Side

_ELEMENTS = 1 << 19
"""Elements to compare at a time; a multiple of 8, so that packed elements fill whole bytes."""


_Distance = tuple[()] | tuple[float, float, int, int]


def distance(old: ir.TensorProtocol, new: ir.TensorProtocol) -> _Distance:
    """Return how much two tensors of one shape differ.

    Returns:
        The largest difference of two elements (infinite if only one of them is, NaN if only one is
        NaN); the largest ratio of a difference to an old element that is not 0; the number of
        elements that differ, NaN being equal to NaN; and the number of elements. Empty if the
        elements are no numbers, too few or too many.
    """
    types = {old.dtype, new.dtype}
    if types & {ir.DataType.STRING, ir.DataType.UNDEFINED} or not (is_whole(old) and is_whole(new)):
        return ()
    largest = relative = 0.0
    changed = elements = 0
    for a, b in zip(_parts(old), _parts(new), strict=True):
        with np.errstate(all="ignore"):
            gap = np.abs(b - a)
            gap[(a == b) | (np.isnan(a) & np.isnan(b))] = 0
            sizes = np.abs(a)
            ratios = gap[sizes > 0] / sizes[sizes > 0]
        changed += int(np.count_nonzero(gap))
        elements += a.size
        largest = float(np.max(gap, initial=largest))
        relative = float(np.max(ratios, initial=relative))
    return largest, relative, changed, elements


def _parts(tensor: ir.TensorProtocol) -> Iterator[np.ndarray[Any, Any]]:
    dtype, left = tensor.dtype, math.prod(tensor.shape.numpy())
    size = _ELEMENTS * int(dtype.bitwidth) // 8
    wide = np.complex128 if dtype in _COMPLEX else np.float64
    for data in chunks(tensor, size):
        count = min(left, _ELEMENTS)
        left -= count
        yield decoded(data, dtype, count).astype(wide)


_COMPLEX = frozenset({ir.DataType.COMPLEX64, ir.DataType.COMPLEX128})


# Pairs of nodes, in linear time. First come nodes with the same `up` and `down` hashes, then nodes
# with one of these: `up` finds the nodes before an edit, `down` those behind it. Between these,
# names decide if a neighbour agrees, then neighbours alone, then names alone.


_T = TypeVar("_T")
_Key = Callable[[ir.Node], Hashable | None]
_Alike = Callable[[ir.Node, ir.Node], bool]
_SameValue = Callable[[ir.Value | None, ir.Value | None], bool]


class Pairs(Generic[_T]):
    """Pairs of nodes, or of values, of two models, by the old one and by the new one."""

    def __init__(self) -> None:
        self.new: dict[_T, _T] = {}
        self.old: dict[_T, _T] = {}

    def add(self, old: _T, new: _T) -> None:
        """Add a pair, unless one of both is in a pair already."""
        if old not in self.new and new not in self.old:
            self.new[old] = new
            self.old[new] = old

    def free(self, things: Iterable[_T]) -> list[_T]:
        """Return those that are in no pair yet."""
        return [one for one in things if one not in self.new and one not in self.old]


class Matcher:
    """Pairs the nodes of two graphs that have been hashed.

    `pairs` gets the pairs, and has those of outer graphs. `same_value` tells whether an old and a
    new value are a pair by now.
    """

    def __init__(
        self, old: Scope, new: Scope, pairs: Pairs[ir.Node], same_value: _SameValue
    ) -> None:
        self._scopes = old, new
        self._pairs = pairs
        self._same_value = same_value
        self._added: list[tuple[ir.Node, ir.Node]] = []
        self._pending: list[tuple[ir.Node, ir.Node]] = []
        self._free = {*old.nodes, *new.nodes}

    def run(self) -> None:
        """Add the pairs."""
        old, new = self._scopes
        up, down = old.up | new.up, old.down | new.down
        # Only the name tells equal constants apart.
        self._alike(lambda n: (up[n], n.name or _outputs(n)) if n.op_type == "Constant" else None)
        self._alike(lambda n: (up[n], down[n]))
        for hashes in (up, down):
            self._unique(lambda n, h=hashes: (h[n], n.name or _outputs(n)))  # type: ignore[misc]
        self._unique(up.get)
        self._unique(down.get)
        self._unique((old.anchors | new.anchors).get)
        self._unique(_named, self._neighbours_agree)
        self._unique(_made, self._neighbours_agree)
        self._spread()
        self._unique(_named)
        self._unique(_made)
        self._spread()
        self._unique(lambda n: n.name or None, self._reads_the_same)
        self._unique(_outputs, self._reads_the_same)
        self._spread()
        # Nodes of different operators with the same inputs and the same reader.
        self._pending = list(self._added)
        while self._pending:
            self._pair_makers(*self._pending.pop(), self._reads_the_same)

    def _groups(self, key: _Key) -> Iterator[tuple[list[ir.Node], list[ir.Node]]]:
        """Yield the nodes of both graphs that share a key and have no pair yet."""
        olds, news = (
            _grouped((key(node), node) for node in scope.nodes if node in self._free)
            for scope in self._scopes
        )
        yield from ((olds[value], news[value]) for value in olds if value in news)

    def _add(self, old: ir.Node, new: ir.Node) -> None:
        self._pairs.add(old, new)
        self._free -= {old, new}
        self._added.append((old, new))
        self._pending.append((old, new))

    def _alike(self, key: _Key) -> None:
        """Pair nodes that only differ by name: by name first, then in order."""
        for group, others in self._groups(key):
            if len(group) > 1 or len(others) > 1:
                by_name = {n.name or _outputs(n): n for n in others}
                for node in group:
                    other = by_name.pop(node.name or _outputs(node), None)
                    if other is not None:
                        self._add(node, other)
            rest, came = ([n for n in nodes if n in self._free] for nodes in (group, others))
            for node, other in zip(rest, came, strict=False):
                self._add(node, other)

    def _unique(self, key: _Key, accept: _Alike | None = None) -> None:
        """Pair nodes if each graph has exactly one with this key and `accept` allows the pair."""
        for group, others in self._groups(key):
            if len(group) == len(others) == 1:
                old, new = group[0], others[0]
                if accept is None or accept(old, new):
                    self._add(old, new)

    def _neighbours_agree(self, old: ir.Node, new: ir.Node) -> bool:
        for a, b in zip(old.inputs, new.inputs, strict=False):
            # Many nodes read the same constants.
            if a is not None and b is not None and not _is_constant(a) and self._same_value(a, b):
                return True
        for a, b in zip(old.outputs, new.outputs, strict=False):
            readers = {self._pairs.new.get(use.node) for use in a.uses()}
            if any(use.node in readers for use in b.uses()):
                return True
        return False

    def _reads_the_same(self, old: ir.Node, new: ir.Node) -> bool:
        if len(old.inputs) != len(new.inputs) or len(old.outputs) != len(new.outputs):
            return False
        return all(map(self._same_value, old.inputs, new.inputs))

    def _spread(self) -> None:
        """Pair neighbours of pairs that have the same operator and position."""
        while self._pending:
            old, new = self._pending.pop()
            self._pair_makers(old, new, _same_operator)
            for a, b in zip(old.outputs, new.outputs, strict=False):
                olds = self._readers_by_place(a)
                news = self._readers_by_place(b) if olds else {}
                for key, group in olds.items():
                    others = news.get(key, ())
                    if len(group) == len(others) == 1 and self._are_free(group[0], others[0]):
                        self._add(group[0], others[0])

    def _readers_by_place(self, value: ir.Value) -> dict[Hashable, list[ir.Node]]:
        uses = (use for use in value.uses() if use.node in self._free)
        return _grouped(((use.node.op_identifier(), use.idx), use.node) for use in uses)

    def _pair_makers(self, old: ir.Node, new: ir.Node, are_alike: _Alike) -> None:
        """Pair the nodes that make the inputs of two nodes, if they are alike."""
        for a, b in zip(old.inputs, new.inputs, strict=False):
            one, other = producer(a), producer(b)
            if a is None or b is None or one is None or other is None:
                continue
            if self._are_free(one, other) and a.index() == b.index() and are_alike(one, other):
                self._add(one, other)

    def _are_free(self, old: ir.Node, new: ir.Node) -> bool:
        return old in self._free and new in self._free


def _is_constant(value: ir.Value) -> bool:
    node = value.producer()
    return value.is_initializer() if node is None else node.op_type == "Constant"


def _grouped(nodes: Iterable[tuple[Hashable | None, ir.Node]]) -> dict[Hashable, list[ir.Node]]:
    found: defaultdict[Hashable, list[ir.Node]] = defaultdict(list)
    for key, node in nodes:
        if key is not None:
            found[key].append(node)
    return found


def _same_operator(one: ir.Node, other: ir.Node) -> bool:
    return one.op_identifier() == other.op_identifier()


def _outputs(node: ir.Node) -> tuple[str, ...] | None:
    return tuple([value.name for value in node.outputs if value.name]) or None


def _named(node: ir.Node) -> Hashable | None:
    return (node.name, node.op_identifier()) if node.name else None


def _made(node: ir.Node) -> Hashable | None:
    return (names, node.op_identifier()) if (names := _outputs(node)) else None


def pair_initializers(
    old: Side, new: Side, graphs: tuple[ir.Graph, ir.Graph], nodes: Pairs[ir.Node]
) -> Pairs[ir.Value]:
    """Return the pairs of initializers of two graphs."""
    olds, news = (
        {v.name or "": v for v in graph.initializers.values() if not v.is_graph_input()}
        for graph in graphs
    )
    readers = _read_alike(olds, news, nodes)
    found = Pairs[ir.Value]()
    for name, value in olds.items():  # unchanged, as nearly all are
        other = news.get(name)
        if other is not None and old.content(value) == new.content(other):
            found.add(value, other)
    for value, other in readers:
        if old.content(value) == new.content(other):
            found.add(value, other)
    for value, other in readers:
        if value.name == other.name:
            found.add(value, other)
    # First came pairs with two common properties. One is enough now: the content, then the reader
    # and the shape, then the name.
    groups: defaultdict[Content | None, list[ir.Value]] = defaultdict(list)
    for value in found.free(news.values()):
        groups[new.content(value)].append(value)
    for value in found.free(olds.values()):
        if group := groups.get(old.content(value)):
            found.add(value, group.pop(0))
    for value, other in readers:
        if _shape(value) == _shape(other):
            found.add(value, other)
    for name, value in olds.items():
        if name in news:
            found.add(value, news[name])
    return found


def _read_alike(
    olds: dict[str, ir.Value], news: dict[str, ir.Value], nodes: Pairs[ir.Node]
) -> list[tuple[ir.Value, ir.Value]]:
    """Return pairs of initializers that the same node reads as the same input."""
    inside = set(news.values())
    pairs: dict[tuple[ir.Value, ir.Value], None] = {}
    for value in olds.values():
        for use in value.uses():
            node = nodes.new.get(use.node)
            if node is not None and use.idx < len(node.inputs):
                other = node.inputs[use.idx]
                if other is not None and other in inside:
                    pairs[value, other] = None
    return list(pairs)


def _shape(value: ir.Value) -> Hashable:
    tensor = value.const_value
    return None if tensor is None else (tensor.dtype, tuple(tensor.shape.numpy()))


def weight_changes(
    path: str, old: ir.Value, new: ir.Value, sides: tuple[Side, Side], digests: Digests | None
) -> list[WeightChange]:
    """Return the changes of an initializer; empty for the same content.

    With `digests`, differences of readable values are measured.
    """
    pairs = zip(sides, (old, new), strict=True)
    (type_a, content_a), (type_b, content_b) = (side.content(v) or ("", "") for side, v in pairs)
    if (type_a, content_a) == (type_b, content_b):
        return []
    a, b = old.const_value, new.const_value
    assert a is not None and b is not None
    numbers: _Distance = ()
    same_shape = tuple(a.shape.numpy()) == tuple(b.shape.numpy())
    if digests is not None and same_shape and _readable(content_a) and _readable(content_b):
        numbers = distance(a, b)
    found = []
    if a.dtype != b.dtype:
        found.append(("dtype", type_a.partition("[")[0], type_b.partition("[")[0]))
    if not same_shape:
        found.append(("shape", _dims(type_a), _dims(type_b)))
    if not found:
        found.append(("values", shown_content(content_a), shown_content(content_b)))
    return [WeightChange(path, new.name or "", *first, *numbers) for first in found]


def _readable(content: str) -> bool:
    return content.startswith(('["sha256": ', "{")) and '"?"' not in content


def _dims(type_: str) -> str:
    return "(" + type_.partition("[")[2].rstrip("]").replace(",", ", ") + ")"


def shown_content(content: str) -> str:
    """Return the content of a tensor for people: values, or `sha256 783a51dd4133dec4`."""
    if content.startswith('["sha256": "'):
        return f"sha256 {content[12:28]}"
    return content
