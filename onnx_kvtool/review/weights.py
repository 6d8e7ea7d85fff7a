"""Which initializer is which, by what it holds, by where it is read and by name; what changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable

import onnx_ir as ir

from onnx_kvtool.review.digests import Digests
from onnx_kvtool.review.distance import distance
from onnx_kvtool.review.matching import NodePairs
from onnx_kvtool.review.report import WeightChange
from onnx_kvtool.review.side import Content, Side

__all__ = ["pair_initializers", "shown_content", "weight_changes"]

_Pairs = dict[ir.Value, ir.Value]


def pair_initializers(
    old: Side, new: Side, graphs: tuple[ir.Graph, ir.Graph], nodes: NodePairs
) -> _Pairs:
    """Return the new initializer of each old one of a graph, as far as there is one.

    Args:
        old: The model of the one graph.
        new: The model of the other.
        graphs: The graphs; their nodes are paired.
        nodes: The pairs.
    """
    olds = {v.name or "": v for v in graphs[0].initializers.values() if not v.is_graph_input()}
    news = {v.name or "": v for v in graphs[1].initializers.values() if not v.is_graph_input()}
    readers = _readers(olds, news, nodes)
    found = _Found()
    for name, value in olds.items():  # untouched, as nearly all are
        other = news.get(name)
        if other is not None and old.content(value) == new.content(other):
            found.add(value, other)
    for value, other in readers:
        if old.content(value) == new.content(other):
            found.add(value, other)
    for value, other in readers:
        if value.name == other.name:
            found.add(value, other)
    # Behind those that a name and a reader speak for: what holds the same, then what is read at the
    # same place, then what has the same name and is not read.
    _by_content(found, olds.values(), news.values(), old.content, new.content)
    for value, other in readers:
        if _shape(value) == _shape(other):
            found.add(value, other)
    for name, value in olds.items():
        if name in news:
            found.add(value, news[name])
    return found.new


class _Found:
    def __init__(self) -> None:
        self.new: _Pairs = {}
        self._taken: set[ir.Value] = set()

    def add(self, old: ir.Value, new: ir.Value) -> None:
        if old not in self.new and new not in self._taken:
            self.new[old] = new
            self._taken.add(new)

    def free(self, values: Iterable[ir.Value]) -> list[ir.Value]:
        return [v for v in values if v not in self.new and v not in self._taken]


def _readers(
    olds: dict[str, ir.Value], news: dict[str, ir.Value], nodes: NodePairs
) -> list[tuple[ir.Value, ir.Value]]:
    """Return old and new initializers that one node reads at one place."""
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


def _by_content(
    found: _Found,
    olds: Iterable[ir.Value],
    news: Iterable[ir.Value],
    content_old: Callable[[ir.Value], Content | None],
    content_new: Callable[[ir.Value], Content | None],
) -> None:
    groups: defaultdict[Hashable, list[ir.Value]] = defaultdict(list)
    for value in found.free(news):
        groups[content_new(value)].append(value)
    for value in found.free(olds):
        group = groups.get(content_old(value))
        if group:
            found.add(value, group.pop(0))


def _shape(value: ir.Value) -> Hashable:
    tensor = value.const_value
    return None if tensor is None else (tensor.dtype, tuple(tensor.shape.numpy()))


def weight_changes(
    path: str, old: ir.Value, new: ir.Value, sides: tuple[Side, Side], digests: Digests | None
) -> list[WeightChange]:
    """Return what changed of an initializer; nothing if it holds the same.

    Args:
        path: Path of its graph.
        old: What it was.
        new: What it is.
        sides: The models.
        digests: Given where it is asked how much values differ: what can be read is read.
    """
    (type_a, held_a), (type_b, held_b) = _held(sides[0], old), _held(sides[1], new)
    if (type_a, held_a) == (type_b, held_b):
        return []
    name = new.name or ""
    a, b = old.const_value, new.const_value
    assert a is not None and b is not None
    gap = None
    same_shape = tuple(a.shape.numpy()) == tuple(b.shape.numpy())
    if digests is not None and same_shape and _readable(held_a) and _readable(held_b):
        gap = distance(a, b)
    numbers = () if gap is None else (gap.largest, gap.relative, gap.changed, gap.elements)
    found = []
    if a.dtype != b.dtype:
        found.append(("dtype", type_a.partition("[")[0], type_b.partition("[")[0]))
    if not same_shape:
        found.append(("shape", _dims(type_a), _dims(type_b)))
    if not found:
        found.append(("values", shown_content(held_a), shown_content(held_b)))
    return [WeightChange(path, name, *first, *numbers) for first in found]


def _held(side: Side, value: ir.Value) -> Content:
    return side.content(value) or ("", "")


def _readable(held: str) -> bool:
    return held.startswith(('["sha256": ', "{")) and '"?"' not in held


def _dims(type_: str) -> str:
    return "(" + type_.partition("[")[2].rstrip("]").replace(",", ", ") + ")"


def shown_content(held: str) -> str:
    """Return what a tensor holds for people: values, or `sha256 783a51dd4133dec4`."""
    if held.startswith('["sha256": "'):
        return f"sha256 {held[12:28]}"
    return held
