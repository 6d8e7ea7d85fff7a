"""Layers that are alike: two models need only a few of them to be compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

from onnx_kvtool.ops.schema import NEWEST, op_facts
from onnx_kvtool.ops.traits import FLOAT_TYPES, Trait, traits
from onnx_kvtool.verification.shrinking.drawn_weights import WEIGHT_TYPES, Skeleton, captured, keep
from onnx_kvtool.verification.weights import bare_attribute

# The places where the whole of a decoder passes through one node, between one layer and the next.
#
# A node lies on the spine of a graph if every way from the start of the spine to the deepest
# output passes through it: the residual additions of a decoder do. What lies between two
# neighbours on the spine is a segment, a function of the values at its start, of weights, and of
# graph inputs. A model is cut into segments, and some can be left out.


Cut = tuple[str, ...]
"""The values that a node of the spine gives to others; in model B several nodes may give them."""


class Side:
    """One of the two models, and the segments that its nodes belong to.

    Segment `n` ends at cut `n`; segment 0 is all that comes before the first cut, and the last one
    what comes after the last cut. Nodes are known by their index.

    Attributes:
        nodes: The nodes of the main graph, in topological order.
        reads: The names that each node reads, in its bodies too, each once.
        producer: The node that gives a value, by its name.
        readers: The nodes that read a value, in their bodies too, by its name.
        inner: Names that bodies of nodes read.
        spine: The nodes of the spine, by the values that they give to others.
    """

    def __init__(self, skeleton: Skeleton) -> None:
        self.skeleton = skeleton
        graph = skeleton.message.graph
        self.outputs = {value.name: value for value in graph.output}
        self.inputs = {value.name: value for value in graph.input}
        self.tensors = {tensor.name: tensor for tensor in graph.initializer}
        self.nodes = list(graph.node)
        self.reads: list[list[str]] = []
        self.producer: dict[str, int] = {}
        self.readers: dict[str, list[int]] = {}
        self.inner: set[str] = set()
        for index, node in enumerate(self.nodes):
            self.producer.update(dict.fromkeys(filter(None, node.output), index))
            inner = list(captured(node))
            self.reads.append(list(dict.fromkeys([*filter(None, node.input), *inner])))
            for name in self.reads[-1]:
                self.readers.setdefault(name, []).append(index)
            self.inner.update(inner)
        used = self.readers.keys() | self.outputs.keys()
        found = ((tuple(n for n in self.nodes[i].output if n in used), i) for i in self._spine())
        self.spine: dict[Cut, int] = {cut: index for cut, index in found if cut}
        self.cuts: list[Cut] = []
        self.members: list[list[int]] = []
        self._home: dict[int, int] = {}

    def sources(self, index: int) -> list[int]:
        """Return the nodes whose values a node reads."""
        return [self.producer[name] for name in self.reads[index] if name in self.producer]

    def _spine(self) -> list[int]:
        """Return the nodes of the longest spine of a graph, the first one first.

        The last one gives the deepest output. Empty for a graph whose outputs no node gives.
        """
        depth: list[int] = []
        for index in range(len(self.nodes)):
            depth.append(1 + max((depth[s] for s in self.sources(index) if s < index), default=0))
        ends = [self.producer[name] for name in self.outputs if name in self.producer]
        if not ends:
            return []
        end = max(ends, key=depth.__getitem__)
        # The next node that every way to the end passes, and how many of them follow.
        following: dict[int, int] = {end: end}
        count: dict[int, int] = {end: 0}
        for index in range(end - 1, -1, -1):
            readers = {
                reader for name in self.nodes[index].output for reader in self.readers.get(name, ())
            } & following.keys()
            if not readers:
                continue
            common = readers.pop()
            for reader in readers:
                other = reader
                while common != other:  # the first node that every way from either passes
                    if count[common] >= count[other]:
                        common = following[common]
                    else:
                        other = following[other]
            following[index], count[index] = common, count[common] + 1
        start = max(count, key=lambda index: (count[index], -index))
        found = [start]
        while found[-1] != end:
            found.append(following[found[-1]])
        return found

    def divide(self, cuts: list[Cut]) -> None:
        """Divide the nodes into segments at `cuts`."""
        self.cuts = cuts
        self._home = home = {}
        for number, cut in enumerate(cuts):
            pending = [self.producer[name] for name in cut]
            while pending:
                index = pending.pop()
                if index not in home:
                    home[index] = number
                    pending += self.sources(index)
        after = {name: number + 1 for number, cut in enumerate(cuts) for name in cut}
        for index in range(len(self.nodes)):
            if index not in home:  # it leads to no cut: the end of a cache, or of the model
                given = [home[source] for source in self.sources(index)]
                given += [after.get(name, 0) for name in self.reads[index]]
                home[index] = max(given, default=0)
        self.members = [[] for _ in range(len(cuts) + 1)]
        for index in range(len(self.nodes)):
            self.members[home[index]].append(index)

    def homes(self, name: str) -> set[int]:
        """Return the segments that read a value."""
        return {self._home[reader] for reader in self.readers.get(name, ())}

    def gives(self, number: int) -> list[str]:
        """Return the graph outputs that a segment gives, in the order of its nodes."""
        given = (n for i in self.members[number] for n in self.nodes[i].output)
        return [name for name in given if name in self.outputs]

    def is_closed(self, number: int) -> bool:
        """Return whether a segment gives nothing to others but its cut and graph outputs."""
        cut = self.cuts[number]
        if any(name in self.outputs or name in self.inner for name in cut):
            return False
        return not any(
            self.homes(name) - {number}
            for index in self.members[number]
            for name in self.nodes[index].output
            if name and name not in cut
        )

    def is_alike_at_ends(self, number: int) -> bool:
        """Return whether what a segment gives has the type and shape of what it reads.

        It has if it is what it reads, with something added, or scaled: a residual sum, normalised.
        """
        before, after = self.cuts[number - 1], self.cuts[number]
        if len(before) != len(after):
            return False
        for name in after:
            seen, pending = set(), [name]
            while pending and not (found := pending[-1] in before):
                index = self.producer.get(pending.pop())
                if index is None or index in seen or self._home[index] != number:
                    continue
                seen.add(index)
                if _is_shaped(self.nodes[index]):
                    pending += self.nodes[index].input
            if not (pending and found):
                return False
        return True

    def without(
        self, dropped: Set[int], renamed: Mapping[str, str], shown: Iterable[str]
    ) -> Skeleton:
        """Return the model without some segments, and with further outputs."""
        message = self.skeleton.copied()
        graph = message.graph
        left = [node for i, node in enumerate(self.nodes) if self._home[i] not in dropped]
        keep(graph.node, left)
        for node in graph.node:
            for place, name in enumerate(node.input):
                node.input[place] = renamed.get(name, name)
        gone = {name for n in dropped for i in self.members[n] for name in self.nodes[i].output}
        outputs = [value for name, value in self.outputs.items() if name not in gone]
        outputs += [onnx.ValueInfoProto(name=name) for name in shown]
        keep(graph.output, outputs)
        read = {name for node in graph.node for name in (*node.input, *captured(node))}
        read.update(value.name for value in outputs)
        fed = read | (self.inputs.keys() - self.readers.keys())
        keep(graph.input, [value for name, value in self.inputs.items() if name in fed])
        keep(graph.initializer, [t for name, t in self.tensors.items() if name in read])
        return self.skeleton.of(message)


def _is_shaped(node: onnx.NodeProto) -> bool:
    """Return whether a result has the type of the operands, and the shape of the largest."""
    kinds = traits(node)
    if kinds.any(Trait.SAME, Trait.NORMALIZES):
        return True
    facts = op_facts(node.op_type, NEWEST) if Trait.BROADCASTS in kinds else None
    return facts is not None and all(
        formal.type_parameter == facts.outputs[0].type_parameter for formal in facts.inputs
    )


# Layers that are alike: a few are enough to compare two models.


class Thinned(NamedTuple):
    """Two models with fewer layers.

    Attributes:
        a: Model A.
        b: Model B.
        before: Segments of both models that have a counterpart which is alike.
        after: How many of them are left.
        stand_ins: For each output that was left out, the one that stands for it.
    """

    a: Skeleton
    b: Skeleton
    before: int
    after: int
    stand_ins: Mapping[str, str]


def thinned(a: Skeleton, b: Skeleton, most: int) -> Thinned | None:
    """Return two models with at most `most` segments of each kind; None if none can be left out.

    Two models are equal if, segment by segment, they give the same values at the end for the same
    values at the start. A segment of A and its counterpart in B are a pair. Two pairs are of one
    kind if they agree in operators, attributes, wiring, constants and types of weights, and each
    reads its own weights and caches in the same places. Then one pair stands for both. To leave out
    a segment, its readers read what came before it. The values between segments become outputs:
    pairs stand for others only if they agree there.

    B has the large weights of A under the same names with the same values.
    """
    sides = Side(a), Side(b)
    cuts = _common_cuts(*sides)
    if len(cuts) < 3:
        return None
    for side in sides:
        side.divide(cuts)
    closed = [n == 0 or all(side.is_closed(n) for side in sides) for n in range(len(cuts))]
    cuts = [cut for n, cut in enumerate(cuts) if closed[n] or cut in sides[1].spine]
    if len(cuts) < len(closed):  # what one node gives in A crosses others in B
        for side in sides:
            side.divide(cuts)
    kinds: dict[object, list[int]] = {}
    for number in range(1, len(cuts)):
        if sides[0].is_alike_at_ends(number) and all(side.is_closed(number) for side in sides):
            counted: dict[str, int] = {}
            kind = tuple(tuple(_nodes(side, sides, number, counted)) for side in sides)
            kinds.setdefault(kind, []).append(number)
    many = [numbers for numbers in kinds.values() if len(numbers) > most]
    if not many:
        return None
    dropped = sorted(number for numbers in many for number in numbers[most:])
    renamed: dict[str, str] = {}
    for number in dropped:
        for old, new in zip(cuts[number], cuts[number - 1], strict=True):
            renamed[old] = renamed.get(new, new)
    known = {name for side in sides for name in (*side.outputs, *side.inputs)}
    shown = dict.fromkeys(
        renamed.get(name, name)
        for numbers in many
        for number in numbers[:most]
        for name in (*cuts[number - 1], *cuts[number])
    )
    names = tuple(name for name in shown if name not in known)
    one, other = (side.without(frozenset(dropped), renamed, names) for side in sides)
    before = sum(map(len, many))
    stand_ins = {
        name: stand_in
        for numbers in many
        for number in numbers[most:]
        for name, stand_in in zip(sides[0].gives(number), sides[0].gives(numbers[0]), strict=True)
    }
    return Thinned(one, other, before, before - len(dropped), stand_ins)


def _common_cuts(a: Side, b: Side) -> list[Cut]:
    """Return the cuts that both models have, in the order of both.

    What one node of A gives may come from several of B: a sum and what it is normalised to.
    """
    found: list[Cut] = []
    last = -1
    for cut in a.spine:
        places = [b.producer.get(name, -1) for name in cut]
        is_one = cut in b.spine or (len(cut) > 1 and not any(name in b.outputs for name in cut))
        if is_one and min(places) >= 0 and max(places) > last:
            found.append(cut)
            last = max(places)
    return found


def _nodes(
    side: Side, sides: tuple[Side, Side], number: int, numbers: dict[str, int]
) -> Iterator[object]:
    """Yield a description of each node of a segment, without names that are its own.

    `numbers` counts weights, inputs and outputs that only this segment has, for both models: that
    they stand at the same places in both is a part of what a segment is.
    """
    own: dict[str, object] = {n: ("start", i) for i, n in enumerate(side.cuts[number - 1])}
    ends = {name: place for place, name in enumerate(side.cuts[number])}
    for order, index in enumerate(side.members[number]):
        node = side.nodes[index]
        reads = [own.get(n) or _outer(n, sides, number, numbers) for n in node.input]
        gives = []
        for place, name in enumerate(node.output):
            own[name] = (order, place)
            shown: object = None
            if name in side.outputs:
                type_ = side.outputs[name].type.SerializeToString(deterministic=True)
                shown = numbers.setdefault(name, len(numbers)), type_
            gives.append((bool(name), ends.get(name), shown))
        own[""] = None
        attributes = sorted(map(bare_attribute, node.attribute))
        kind = node.domain, node.op_type, node.overload
        yield kind, tuple(reads), tuple(gives), tuple(attributes)


def _outer(name: str, sides: tuple[Side, Side], number: int, numbers: dict[str, int]) -> object:
    """Describe a value that a segment reads and does not make."""
    if not name:
        return None
    if any(side.homes(name) - {number} or name in side.outputs for side in sides):
        return name  # others read it as well: it is this very one
    what = [_leaf(side, name) for side in sides]
    if not any(what):
        return name
    if what[0] == what[1] and what[0] is not None and what[0].is_free:
        what = [what[0]._replace(values=b"")]
    return numbers.setdefault(name, len(numbers)), *what


class _Leaf(NamedTuple):
    """A weight or an input: its type, what it holds, and whether other values would do as well."""

    type: object
    values: bytes = b""
    is_free: bool = False


def _leaf(side: Side, name: str) -> _Leaf | None:
    """Return what a weight or an input is; None for what is neither."""
    if name in side.tensors:
        tensor = side.tensors[name]
        type_ = tensor.data_type, tuple(tensor.dims)
        if name in side.skeleton.bare:
            # Weights are the same in both; other data of a file is not looked at.
            is_weight = tensor.data_type in WEIGHT_TYPES
            return _Leaf(type_, b"" if is_weight else name.encode())
        array = numpy_helper.to_array(tensor)
        is_free = tensor.data_type in FLOAT_TYPES
        is_free = is_free and not np.isin(array.astype(np.float64), _SPECIAL).any()
        return _Leaf(type_, array.tobytes(), is_free)
    if name in side.inputs:
        return _Leaf(side.inputs[name].type.SerializeToString(deterministic=True))
    return None


_SPECIAL = (0.0, 1.0, -1.0, np.inf, -np.inf, np.nan)
"""Numbers of a weight that others would not do for."""
