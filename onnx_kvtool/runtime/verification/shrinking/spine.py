"""The places where the whole of a decoder passes through one node, between one layer and the next.

A node lies on the spine of a graph if every way from the start of the spine to the deepest output
passes through it: the residual additions of a decoder do. What lies between two neighbours on the
spine is a segment, a function of the values at its start, of weights, and of graph inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import onnx

from onnx_kvtool.core.messages.bodies import bodies

__all__ = ["Flow", "captured", "spine"]


@dataclass(slots=True)
class Flow:
    """The nodes of a main graph and what they give to each other, by their index.

    Attributes:
        nodes: The nodes, in topological order.
        producer: The node that gives a value, by its name.
        readers: The nodes that read a value, in its bodies too, by its name.
        inner: Names that bodies of nodes read.
    """

    nodes: list[onnx.NodeProto]
    producer: dict[str, int] = field(default_factory=dict)
    readers: dict[str, list[int]] = field(default_factory=dict)
    inner: set[str] = field(default_factory=set)
    _reads: list[list[str]] = field(default_factory=list)

    @staticmethod
    def of(graph: onnx.GraphProto) -> Flow:
        """Return the flow of a graph."""
        flow = Flow(list(graph.node))
        for index, node in enumerate(flow.nodes):
            flow.producer.update(dict.fromkeys(filter(None, node.output), index))
            inner = list(captured(node))
            reads = list(dict.fromkeys([*filter(None, node.input), *inner]))
            for name in reads:
                flow.readers.setdefault(name, []).append(index)
            flow._reads.append(reads)
            flow.inner.update(inner)
        return flow

    def reads(self, index: int) -> list[str]:
        """Return the names that a node reads, each once."""
        return self._reads[index]

    def sources(self, index: int) -> list[int]:
        """Return the nodes whose values a node reads."""
        return [self.producer[name] for name in self.reads(index) if name in self.producer]

    def used(self, index: int, outputs: Mapping[str, object]) -> tuple[str, ...]:
        """Return the outputs of a node that anybody reads or that are among `outputs`."""
        return tuple(n for n in self.nodes[index].output if n in self.readers or n in outputs)


def captured(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that the bodies of `node` read, those of outer values among them."""
    for graph in bodies(node):
        for inner in graph.node:
            yield from filter(None, inner.input)
            yield from captured(inner)
        yield from (value.name for value in graph.output)


def spine(flow: Flow, outputs: Mapping[str, object]) -> list[int]:
    """Return the nodes of the longest spine of a graph, the first one first.

    The last one gives the deepest output. Empty for a graph whose outputs no node gives.
    """
    end = _deepest(flow, outputs)
    if end is None:
        return []
    # The next node that every way to the end passes, and how many of them follow.
    following: dict[int, int] = {end: end}
    count: dict[int, int] = {end: 0}
    for index in range(end - 1, -1, -1):
        readers = {
            reader for name in flow.nodes[index].output for reader in flow.readers.get(name, ())
        } & following.keys()
        if not readers:
            continue
        common, *rest = readers
        for reader in rest:
            common = _meet(common, reader, following, count)
        following[index], count[index] = common, count[common] + 1
    start = max(count, key=lambda index: (count[index], -index))
    found = [start]
    while found[-1] != end:
        found.append(following[found[-1]])
    return found


def _meet(one: int, other: int, following: Mapping[int, int], count: Mapping[int, int]) -> int:
    """Return the first node that every way from either node to the end passes."""
    while one != other:
        if count[one] >= count[other]:
            one = following[one]
        else:
            other = following[other]
    return one


def _deepest(flow: Flow, outputs: Mapping[str, object]) -> int | None:
    """Return the node of an output with the most nodes before it in a row."""
    depth: list[int] = []
    for index in range(len(flow.nodes)):
        depth.append(1 + max((depth[s] for s in flow.sources(index) if s < index), default=0))
    ends = [flow.producer[name] for name in outputs if name in flow.producer]
    return max(ends, key=lambda index: depth[index], default=None)
