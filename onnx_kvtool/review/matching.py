"""Which node of one graph is which of another, in time that grows with the number of nodes.

First come nodes that compute the same and of which the same is made, then those of which one of
these holds: what is before an edit is known by what leads to it, what is behind by what it leads
to. In between names decide where a neighbour agrees, then neighbours alone, then names alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable

import onnx_ir as ir

from onnx_kvtool.review.side import Scope, producer

__all__ = ["NodePairs", "match_nodes"]

_Key = Callable[[ir.Node], Hashable | None]
_SameValue = Callable[[ir.Value | None, ir.Value | None], bool]


class NodePairs:
    """Pairs of nodes, of all graphs of two models.

    Attributes:
        new: The new node of an old one.
        old: The old node of a new one.
    """

    def __init__(self) -> None:
        self.new: dict[ir.Node, ir.Node] = {}
        self.old: dict[ir.Node, ir.Node] = {}

    def add(self, old: ir.Node, new: ir.Node) -> None:
        """Add a pair; neither node is in one."""
        self.new[old] = new
        self.old[new] = old


def match_nodes(old: Scope, new: Scope, pairs: NodePairs, same_value: _SameValue) -> None:
    """Add the pairs of two graphs that have been hashed.

    Args:
        old: The one graph.
        new: The other one.
        pairs: Gets the pairs; has those of outer graphs.
        same_value: Whether an old value is the new one, as far as pairs are known.
    """
    _Matcher(old, new, pairs, same_value).run()


class _Matcher:
    def __init__(self, old: Scope, new: Scope, pairs: NodePairs, same_value: _SameValue) -> None:
        self._old, self._new = old, new
        self._pairs = pairs
        self._same_value = same_value
        self._added: list[tuple[ir.Node, ir.Node]] = []
        self._pending: list[tuple[ir.Node, ir.Node]] = []
        self._inside_old, self._inside_new = set(old.nodes), set(new.nodes)

    def run(self) -> None:
        up, down = {**self._old.up, **self._new.up}, {**self._old.down, **self._new.down}
        # One of several equal constants is known by its name alone.
        self._alike(lambda n: (up[n], n.name or _outputs(n)) if n.op_type == "Constant" else None)
        self._alike(lambda n: (up[n], down[n]))
        for hashes in (up, down):
            self._unique(lambda n, h=hashes: (h[n], n.name or _outputs(n)))  # type: ignore[misc]
        for hashes in (up, down):
            self._unique(lambda n, h=hashes: h[n])  # type: ignore[misc]
        anchors = {**self._old.anchors, **self._new.anchors}
        self._unique(anchors.get)
        self._unique(_named, agree=True)
        self._unique(_made, agree=True)
        self._spread()
        self._unique(_named)
        self._unique(_made)
        self._spread()
        self._unique(lambda n: n.name or None, accept=self._reads_the_same)
        self._unique(_outputs, accept=self._reads_the_same)
        self._spread()
        self._in_place()

    def _left(self) -> tuple[list[ir.Node], list[ir.Node]]:
        return (
            [n for n in self._old.nodes if n not in self._pairs.new],
            [n for n in self._new.nodes if n not in self._pairs.old],
        )

    def _add(self, old: ir.Node, new: ir.Node) -> None:
        self._pairs.add(old, new)
        self._added.append((old, new))
        self._pending.append((old, new))

    def _alike(self, key: _Key) -> None:
        """Pair nodes that nothing but names tells apart: by name first, then in order."""
        left = self._left()
        olds, news = _groups(left[0], key), _groups(left[1], key)
        for value, group in olds.items():
            others = news.get(value)
            if others is None:
                continue
            if len(group) > 1 or len(others) > 1:
                by_name = {n.name or _outputs(n): n for n in others}
                for node in group:
                    other = by_name.pop(node.name or _outputs(node), None)
                    if other is not None:
                        self._add(node, other)
            rest = [n for n in group if n not in self._pairs.new]
            others = [n for n in others if n not in self._pairs.old]
            for node, other in zip(rest, others, strict=False):
                self._add(node, other)

    def _unique(
        self,
        key: _Key,
        *,
        agree: bool = False,
        accept: Callable[[ir.Node, ir.Node], bool] | None = None,
    ) -> None:
        """Pair nodes of which each graph has one with this key.

        Args:
            key: The key of a node; None for none.
            agree: Whether a neighbour has to be paired alike.
            accept: What else has to hold.
        """
        if agree:
            accept = self._neighbours_agree
        left = self._left()
        olds, news = _groups(left[0], key), _groups(left[1], key)
        for value, group in olds.items():
            others = news.get(value, ())
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
        """Pair neighbours of pairs that have one operator and one place there."""
        pairs = self._pairs
        while self._pending:
            old, new = self._pending.pop()
            for a, b in zip(old.inputs, new.inputs, strict=False):
                one, other = producer(a), producer(b)
                if one is None or other is None or not self._is_free(one, other):
                    continue
                if _operator(one) == _operator(other) and a.index() == b.index():  # type: ignore[union-attr]
                    self._add(one, other)
            for a, b in zip(old.outputs, new.outputs, strict=False):
                olds = _readers(a, lambda n: n in self._inside_old and n not in pairs.new)
                if not olds:
                    continue
                news = _readers(b, lambda n: n in self._inside_new and n not in pairs.old)
                for key, group in olds.items():
                    others = news.get(key, ())
                    if len(group) == len(others) == 1 and self._is_free(group[0], others[0]):
                        self._add(group[0], others[0])

    def _in_place(self) -> None:
        """Pair nodes of different operators that read the same, and are read at one place."""
        self._pending = list(self._added)
        while self._pending:
            old, new = self._pending.pop()
            for a, b in zip(old.inputs, new.inputs, strict=False):
                one, other = producer(a), producer(b)
                if one is None or other is None or not self._is_free(one, other):
                    continue
                if a.index() == b.index() and self._reads_the_same(one, other):  # type: ignore[union-attr]
                    self._add(one, other)

    def _is_free(self, old: ir.Node, new: ir.Node) -> bool:
        return (
            old in self._inside_old
            and new in self._inside_new
            and old not in self._pairs.new
            and new not in self._pairs.old
        )


def _is_constant(value: ir.Value) -> bool:
    node = value.producer()
    return value.is_initializer() if node is None else node.op_type == "Constant"


def _groups(nodes: Iterable[ir.Node], key: _Key) -> dict[Hashable, list[ir.Node]]:
    found: defaultdict[Hashable, list[ir.Node]] = defaultdict(list)
    for node in nodes:
        value = key(node)
        if value is not None:
            found[value].append(node)
    return found


def _readers(value: ir.Value, wanted: Callable[[ir.Node], bool]) -> dict[Hashable, list[ir.Node]]:
    found: defaultdict[Hashable, list[ir.Node]] = defaultdict(list)
    for use in value.uses():
        if wanted(use.node):
            found[_operator(use.node), use.idx].append(use.node)
    return found


def _operator(node: ir.Node) -> tuple[str, str, str]:
    return node.domain, node.op_type, node.overload


def _outputs(node: ir.Node) -> tuple[str, ...] | None:
    names = tuple([value.name for value in node.outputs if value.name])
    return names or None


def _named(node: ir.Node) -> Hashable | None:
    return (node.name, _operator(node)) if node.name else None


def _made(node: ir.Node) -> Hashable | None:
    names = _outputs(node)
    return (names, _operator(node)) if names else None
