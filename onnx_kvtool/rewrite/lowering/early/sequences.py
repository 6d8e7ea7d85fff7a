"""Sequences whose elements are known, for opsets below 11, which have no sequences.

What reads such a sequence reads its elements instead, wherever they were put together, split,
inserted or erased at constant places.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.constants import ConstantFolder
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.walk import read_values, remove_node, subgraphs
from onnx_kvtool.emit.emitter import Emitter, Names, Replacement, ScopedValues
from onnx_kvtool.emit.forms import split, squeeze, unsqueeze
from onnx_kvtool.ops.schema import is_standard
from onnx_kvtool.ops.view import NodeView, counted_axis
from onnx_kvtool.rewrite.engine.inline import replace_node
from onnx_kvtool.shapes.annotations import annotate
from onnx_kvtool.symbolic.dimensions import dims_of

_OPSET = 11
_Elements = tuple[ir.Value, ...]


def settle_sequences(model: ir.Model, trace: MutableMapping[ir.Node, Location]) -> list[Location]:
    """Replace readers of sequences with known elements by readers of these, in place.

    A sequence that another body or an output of the model reads stays. `trace` says where each node
    of the model stands; new nodes get the place of the old ones. Return the places of the readers.
    """
    if not any(_touches(node) for node in model.graph.all_nodes()):
        return []
    annotations = annotate(model, _touches, fully=True)
    run = _Settling(Names(model), trace)
    run.graph(model.graph, None)
    annotations.remove()
    return run.settled


def _touches(node: ir.Node) -> bool:
    return is_standard(node) and node.op_type in (*_SOURCES, *_READERS)


@dataclass(slots=True)
class _Settling:
    """One pass over a model.

    Attributes:
        elements: Those of each sequence that is known.
        settled: Where nodes stood that were written anew.
    """

    names: Names
    trace: MutableMapping[ir.Node, Location]
    elements: dict[ir.Value, _Elements] = field(default_factory=dict)
    settled: list[Location] = field(default_factory=list)
    folder: ConstantFolder = field(default_factory=ConstantFolder)

    def graph(self, graph: ir.Graph, parent: ScopedValues | None) -> None:
        """Go through a graph and the bodies in it."""
        scope = ScopedValues(graph, parent, self.names)
        for node in tuple(graph):
            for _, body in subgraphs(node):
                self.graph(body, scope)
            if not _touches(node):
                continue
            if node.op_type in _READERS:
                self._read(node, scope)
            elif (found := self._elements(node, scope)) is not None:
                self.elements[node.outputs[0]] = found
        for node in reversed(tuple(graph)):
            made = node.outputs[0] if node.outputs else None
            if made in self.elements and not made.uses() and not made.is_graph_output():
                remove_node(node)

    def _read(self, node: ir.Node, scope: ScopedValues) -> None:
        elements = self._of(node.inputs[0])
        em = Emitter(scope, _OPSET, node.name or node.op_type)
        result = None if elements is None else self._result(node, elements, em)
        if result is None:
            em.discard()
            return
        place = self.trace.get(node)
        for new in replace_node(node, em, Replacement((result,))):
            if place is not None:
                self.trace[new] = place
        if place is not None:
            self.settled.append(place)

    def _of(self, value: ir.Value | None) -> _Elements | None:
        """Return the elements of a sequence; None where they are unknown."""
        return None if value is None else self.elements.get(value)

    def _place(self, node: ir.Node, index: int, default: int, count: int) -> int | None:
        """Return a constant place that an input names, of so many; None for one that is not."""
        place = default
        if len(node.inputs) > index and node.inputs[index] is not None:
            known = self.folder.integers(node.inputs[index])
            if known is None or known.size != 1:
                return None
            place = int(known.ravel()[0])
        return place if -count <= place < count else None

    def _elements(self, node: ir.Node, scope: ScopedValues) -> _Elements | None:
        """Return the elements of the sequence that a node gives."""
        if node.op_type in ("SequenceConstruct", "SequenceEmpty"):
            return tuple(read_values(node))
        if node.op_type == "SplitToSequence":
            return self._split(node, scope)
        before = self._of(node.inputs[0])
        if before is None:
            return None
        count = len(before)
        if node.op_type == "SequenceErase":
            place = self._place(node, 1, count - 1, count)
            return None if place is None else before[:place] + before[place % count + 1 :]
        value, place = node.inputs[1], self._place(node, 2, count, count + 1)
        if value is None or place is None or place < -count:
            return None
        return (*before[:place], value, *before[place:])

    def _split(self, node: ir.Node, scope: ScopedValues) -> _Elements | None:
        """Split a tensor where it is made a sequence: into rows, or parts of constant sizes."""
        view = NodeView(node, _OPSET)
        data, dims = view.required("input"), dims_of(view.required("input"))
        if dims is None or data.dtype is None or not dims:
            return None
        axis = counted_axis(view.integer("axis"), len(dims))
        given, size = view.input("split"), dims[axis]
        drops = given is None and not view.integer("keepdims")
        known = np.array(1) if given is None else self.folder.integers(given)
        if known is None:
            return None
        if known.ndim:
            sizes = [int(part) for part in known]
        elif isinstance(size, int) and known > 0:
            part = int(known)
            sizes = [min(part, size - start) for start in range(0, size, part)]
        else:
            return None
        if not sizes:
            return ()
        em = Emitter(scope, _OPSET, node.name or node.op_type)
        parts = split(em, data, sizes, axis)
        if drops:
            parts = tuple(squeeze(em, part, [axis]) for part in parts)
        new = em.commit()
        assert node.graph is not None
        node.graph.insert_before(node, new)
        if (place := self.trace.get(node)) is not None:
            self.trace.update(dict.fromkeys(new, place))
        return parts

    def _result(self, node: ir.Node, elements: _Elements, em: Emitter) -> ir.Value | None:
        """Return what a node reads of a sequence: a tensor of its elements."""
        if node.op_type == "SequenceLength":
            return em.constant(len(elements), "length")
        if node.op_type == "SequenceAt":
            place = self._place(node, 1, 0, len(elements))
            return None if place is None else elements[place]
        if not elements or elements[0].dtype is None:
            return None
        view = NodeView(node, _OPSET)
        axis = view.integer("axis")
        if view.integer("new_axis"):
            elements = tuple(unsqueeze(em, element, [axis]) for element in elements)
        return em.op("Concat", *elements, axis=axis)


_SOURCES = (
    "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SplitToSequence",
)  # fmt: skip
_READERS = ("ConcatFromSequence", "SequenceAt", "SequenceLength")
"""What gives a sequence, and what reads one and gives a tensor."""
