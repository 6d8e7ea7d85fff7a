"""A model cut into segments, of which some can be left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import onnx

from onnx_kvtool.ops.schema import NEWEST, op_facts
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.runtime.verification.shrinking.skeleton import Skeleton
from onnx_kvtool.runtime.verification.shrinking.spine import Flow, captured, spine

__all__ = ["Cut", "Side"]

Cut = tuple[str, ...]
"""The values that a node of the spine gives to others; in model B several nodes may give them."""


class Side:
    """One of the two models, and the segments that its nodes belong to.

    Segment `n` ends at cut `n`; segment 0 is all that comes before the first cut, and the last one
    what comes after the last cut.
    """

    def __init__(self, skeleton: Skeleton) -> None:
        self.skeleton = skeleton
        graph = skeleton.message.graph
        self.outputs = {value.name: value for value in graph.output}
        self.inputs = {value.name: value for value in graph.input}
        self.tensors = {tensor.name: tensor for tensor in graph.initializer}
        self.flow = Flow.of(graph)
        found = ((self.flow.used(i, self.outputs), i) for i in spine(self.flow, self.outputs))
        self.spine = {cut: index for cut, index in found if cut}
        self.cuts: list[Cut] = []
        self.members: list[list[int]] = []
        self._home: dict[int, int] = {}

    def divide(self, cuts: list[Cut]) -> None:
        """Divide the nodes into segments at `cuts`."""
        self.cuts = cuts
        self._home = home = {}
        for number, cut in enumerate(cuts):
            pending = [self.flow.producer[name] for name in cut]
            while pending:
                index = pending.pop()
                if index not in home:
                    home[index] = number
                    pending += self.flow.sources(index)
        after = {name: number + 1 for number, cut in enumerate(cuts) for name in cut}
        for index in range(len(self.flow.nodes)):
            if index not in home:  # it leads to no cut: the end of a cache, or of the model
                reads = self.flow.reads(index)
                given = [home[self.flow.producer[n]] for n in reads if n in self.flow.producer]
                home[index] = max([*given, *(after.get(name, 0) for name in reads)], default=0)
        self.members = [[] for _ in range(len(cuts) + 1)]
        for index in range(len(self.flow.nodes)):
            self.members[home[index]].append(index)

    def homes(self, name: str) -> set[int]:
        """Return the segments that read a value."""
        return {self._home[reader] for reader in self.flow.readers.get(name, ())}

    def gives(self, number: int) -> list[str]:
        """Return the graph outputs that a segment gives, in the order of its nodes."""
        given = (n for i in self.members[number] for n in self.flow.nodes[i].output)
        return [name for name in given if name in self.outputs]

    def is_closed(self, number: int) -> bool:
        """Return whether a segment gives nothing to others but its cut and graph outputs."""
        cut = self.cuts[number]
        if any(name in self.outputs or name in self.flow.inner for name in cut):
            return False
        return not any(
            self.homes(name) - {number}
            for index in self.members[number]
            for name in self.flow.nodes[index].output
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
                index = self.flow.producer.get(pending.pop())
                if index is None or index in seen or self._home[index] != number:
                    continue
                seen.add(index)
                if _is_shaped(self.flow.nodes[index]):
                    pending += self.flow.nodes[index].input
            if not (pending and found):
                return False
        return True

    def without(
        self, dropped: Set[int], renamed: Mapping[str, str], shown: Iterable[str]
    ) -> Skeleton:
        """Return the model without some segments, and with further outputs."""
        message = onnx.ModelProto()
        message.CopyFrom(self.skeleton.message)
        graph = message.graph
        left = [node for i, node in enumerate(graph.node) if self._home[i] not in dropped]
        for node in left:
            for place, name in enumerate(node.input):
                node.input[place] = renamed.get(name, name)
        gone = {
            name for n in dropped for i in self.members[n] for name in self.flow.nodes[i].output
        }
        outputs = [value for value in graph.output if value.name not in gone]
        outputs += [onnx.ValueInfoProto(name=name) for name in shown]
        read = {name for node in left for name in (*node.input, *captured(node))}
        read.update(value.name for value in outputs)
        never = self.inputs.keys() - self.flow.readers.keys()
        _keep(graph.output, outputs)
        _keep(graph.input, [v for v in graph.input if v.name in read or v.name in never])
        _keep(graph.initializer, [t for t in graph.initializer if t.name in read])
        _keep(graph.node, left)
        names = {tensor.name for tensor in graph.initializer}
        weights = {name: t for name, t in self.skeleton.weights.items() if name in names}
        return replace(
            self.skeleton, message=message, weights=weights, bare=self.skeleton.bare & names
        )


def _is_shaped(node: onnx.NodeProto) -> bool:
    """Return whether a result has the type of the operands, and the shape of the largest."""
    kinds = traits(node)
    if kinds.any(Trait.SAME, Trait.NORMALIZES):
        return True
    facts = op_facts(node.op_type, NEWEST) if Trait.BROADCASTS in kinds else None
    return facts is not None and all(
        formal.type_parameter == facts.outputs[0].type_parameter for formal in facts.inputs
    )


def _keep(field: Any, messages: Sequence[Any]) -> None:
    """Let a repeated field of a message hold some of its elements, or others."""
    copies = [type(message)() for message in messages]
    for copy, message in zip(copies, messages, strict=True):
        copy.CopyFrom(message)
    del field[:]
    field.extend(copies)
