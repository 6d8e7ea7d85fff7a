"""Sequences whose elements are known, for opsets below 11, which have no sequences.

What reads such a sequence reads its elements instead, wherever they were put together, split,
inserted or erased at constant places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
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
from onnx_kvtool.shapes.infer import annotate
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
    return is_standard(node) and (node.op_type in _SOURCES or node.op_type in _READERS)


@dataclass(slots=True)
class _Settling:
    """One pass over a model.

    Attributes:
        names: Of the model.
        trace: Where each node stands.
        elements: Those of each sequence that is known.
        settled: Where nodes stood that were written anew.
        folder: Folding of small integers.
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
            source = _SOURCES.get(node.op_type)
            if source is not None:
                found = source(self, node, scope)
                if found is not None:
                    self.elements[node.outputs[0]] = found
            else:
                self._read(node, scope)
        for node in reversed(tuple(graph)):
            made = node.outputs[0] if node.outputs else None
            if made in self.elements and not made.uses() and not made.is_graph_output():
                remove_node(node)

    def _read(self, node: ir.Node, scope: ScopedValues) -> None:
        elements = self.of(node.inputs[0])
        em = Emitter(scope, _OPSET, node.name or node.op_type)
        result = None if elements is None else _READERS[node.op_type](self, node, elements, em)
        if result is None:
            em.discard()
            return
        place = self.trace.get(node)
        for new in replace_node(node, em, Replacement((result,))):
            if place is not None:
                self.trace[new] = place
        if place is not None:
            self.settled.append(place)

    def of(self, value: ir.Value | None) -> _Elements | None:
        """Return the elements of a sequence; None where they are unknown."""
        return None if value is None else self.elements.get(value)

    def place(self, node: ir.Node, index: int, default: int) -> int | None:
        """Return a constant place that an input names; None for one that is not constant."""
        if len(node.inputs) <= index or node.inputs[index] is None:
            return default
        known = self.folder.integers(node.inputs[index])
        return None if known is None or known.size != 1 else int(known.ravel()[0])


def _constructed(run: _Settling, node: ir.Node, scope: ScopedValues) -> _Elements | None:
    return tuple(read_values(node))


def _inserted(run: _Settling, node: ir.Node, scope: ScopedValues) -> _Elements | None:
    before, value = run.of(node.inputs[0]), node.inputs[1]
    if before is None or value is None:
        return None
    place = run.place(node, 2, len(before))
    if place is None or not -len(before) <= place <= len(before):
        return None
    place += len(before) if place < 0 else 0
    return (*before[:place], value, *before[place:])


def _erased(run: _Settling, node: ir.Node, scope: ScopedValues) -> _Elements | None:
    before = run.of(node.inputs[0])
    place = None if before is None else run.place(node, 1, len(before) - 1)
    if before is None or place is None or not -len(before) <= place < len(before):
        return None
    place %= len(before)
    return before[:place] + before[place + 1 :]


def _split(run: _Settling, node: ir.Node, scope: ScopedValues) -> _Elements | None:
    """Split a tensor where it is made a sequence: into rows, or parts of constant sizes."""
    view = NodeView(node, _OPSET)
    data, dims = view.required("input"), dims_of(view.required("input"))
    if dims is None or data.dtype is None or not dims:
        return None
    axis = counted_axis(view.integer("axis"), len(dims))
    given, size = view.input("split"), dims[axis]
    drops = given is None and not view.integer("keepdims")
    known = np.array(1) if given is None else run.folder.integers(given)
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
    if (place := run.trace.get(node)) is not None:
        run.trace.update(dict.fromkeys(new, place))
    return parts


def _at(run: _Settling, node: ir.Node, elements: _Elements, em: Emitter) -> ir.Value | None:
    place = run.place(node, 1, 0)
    if place is None or not -len(elements) <= place < len(elements):
        return None
    return elements[place]


def _length(run: _Settling, node: ir.Node, elements: _Elements, em: Emitter) -> ir.Value:
    return em.constant(len(elements), "length")


def _joined(run: _Settling, node: ir.Node, elements: _Elements, em: Emitter) -> ir.Value | None:
    view = NodeView(node, _OPSET)
    axis, dtype = view.integer("axis"), elements[0].dtype if elements else None
    if dtype is None:
        return None
    if view.integer("new_axis"):
        elements = tuple(unsqueeze(em, element, [axis]) for element in elements)
    return em.op("Concat", *elements, axis=axis)


_SOURCES: Mapping[str, Callable[[_Settling, ir.Node, ScopedValues], _Elements | None]] = {
    "SequenceConstruct": _constructed,
    "SequenceEmpty": _constructed,
    "SequenceErase": _erased,
    "SequenceInsert": _inserted,
    "SplitToSequence": _split,
}
"""What gives a sequence, and its elements."""

_READERS: Mapping[str, Callable[[_Settling, ir.Node, _Elements, Emitter], ir.Value | None]] = {
    "ConcatFromSequence": _joined,
    "SequenceAt": _at,
    "SequenceLength": _length,
}
"""What reads a sequence and gives a tensor: the tensor, of its elements."""
