"""One of two models to compare: hashes of nodes, contents of constants, declarations."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from functools import cache

import numpy as np
import onnx
import onnx_ir as ir

from onnx_kvtool.core import walk
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.model_io.sorting import sort_nodes
from onnx_kvtool.ops.traits import dtype_name
from onnx_kvtool.review.digests import Digests, type_text
from onnx_kvtool.review.printing import CanonicalWriter, attribute_lines

Content = tuple[str, str]
"""Type and shape of a constant, and its content, both in ONNX's syntax."""

_CONSTANT_TYPES = {
    ("value_int", ir.AttributeType.INT): np.int64,
    ("value_ints", ir.AttributeType.INTS): np.int64,
    ("value_float", ir.AttributeType.FLOAT): np.float32,
    ("value_floats", ir.AttributeType.FLOATS): np.float32,
}


class Scope:
    """The nodes of one graph with their hashes, which do not depend on names and order.

    Args:
        graph: The graph.

    Attributes:
        graph: The graph.
        nodes: Its nodes, in an order that can run.
        up: Hash of what a node computes: its operator and attributes, and those of all nodes that
            lead to it.
        down: Hash of what a node is used for: its operator and attributes, and those of all nodes
            that it leads to.
        anchors: Hash of the operator and the contents of the weights of a node that has weights.
    """

    def __init__(self, graph: ir.Graph) -> None:
        self.graph, self.nodes = graph, tuple(graph)
        self.up: dict[ir.Node, int] = {}
        self.down: dict[ir.Node, int] = {}
        self.anchors: dict[ir.Node, int] = {}


class Side:
    """A model with the facts for a comparison, which sorts its nodes; nobody else may use it."""

    def __init__(self, model: ir.Model, digests: Digests) -> None:
        self.model = model
        self.digests = digests
        self.writer = CanonicalWriter(digests)
        self._places = {n: Location.of(path, n, i) for path, i, n in walk.nodes(model)}
        sort_nodes(model)
        self.attributes = cache(self._attributes)
        self.content = cache(self._content)
        self.captured = cache(self._captured)
        self._inside = cache(self._kinds_inside)
        self._bodies = cache(self._hash_bodies)

    def place(self, node: ir.Node) -> Location:
        """Return the place of a node in the file."""
        return self._places[node]

    def _attributes(self, node: ir.Node) -> Mapping[str, str]:
        """Return the attributes of a node as text by name, without graphs."""
        return {
            name: self.attribute_text(attribute)
            for name, attribute in node.attributes.data.items()
            if attribute.type not in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
            or attribute.is_ref()
        }

    def attribute_text(self, attribute: ir.Attr) -> str:
        """Return an attribute as text, with its remark."""
        message = onnx.AttributeProto()
        self.writer.attribute(message, attribute)
        text = "\n".join(attribute_lines(message, ""))
        return f"{text}  # {attribute.doc_string}" if attribute.doc_string else text

    def kind(self, node: ir.Node) -> int:
        """Return a hash of the operator of a node and its attributes, without graphs."""
        attributes = self.attributes(node)
        texts = tuple(attributes[name] for name in sorted(attributes)) if attributes else ()
        return hash((node.domain, node.op_type, node.overload, texts, len(node.outputs)))

    def _content(self, value: ir.Value) -> Content | None:
        """Return the content of an initializer or of a Constant; None for other values."""
        tensor = _constant(value)
        if tensor is None:
            return None
        dims = ",".join(map(str, tensor.shape.numpy()))
        name = tensor.dtype.name.lower()
        return f"{name}[{dims}]" if dims else name, self.digests.content(tensor)[0]

    def _captured(self, node: ir.Node) -> tuple[ir.Value, ...]:
        """Return the values of outer graphs that the bodies of a node read, each once."""
        found: dict[ir.Value, None] = {}
        for _, body in walk.subgraphs(node) if node.attributes.data else ():
            own = {*body.inputs, *body.initializers.values()}
            read: list[ir.Value | None] = []
            for inner in body:
                own.update(inner.outputs)
                read += inner.inputs
                read += self.captured(inner)
            read.extend(body.outputs)
            found |= dict.fromkeys(v for v in read if v is not None and v not in own)
        return tuple(found)

    def _kinds_inside(self, node: ir.Node) -> int:
        """Return a hash of the nodes in the bodies of a node, in any order."""
        inner = [n for _, body in walk.subgraphs(node) for n in body]
        return hash(tuple(sorted(hash((self.kind(n), self._inside(n))) for n in inner)))

    def hash_scope(
        self,
        scope: Scope,
        labels: dict[ir.Value, int],
        outputs: Mapping[ir.Value, list[Hashable]] | None = None,
    ) -> int:
        """Fill `up` and `down` of a graph, and return a hash of what it computes.

        `labels` has a hash for each input and outer value, and gets one for every other value.
        Without `outputs`, the outputs of the graph are identified by their positions.
        """
        if outputs is None:
            outputs = {v: [place] for place, v in enumerate(scope.graph.outputs)}
        kinds = {node: self.kind(node) for node in scope.nodes}
        weighty: set[ir.Value] = set()
        for value in scope.graph.initializers.values():
            if value not in labels:
                held = self.content(value)
                labels[value] = hash(held)
                if held is not None and "sha256" in held[1]:
                    weighty.add(value)
        for node in scope.nodes:
            read = tuple([None if v is None else _label(labels, v) for v in node.inputs])
            bodies = 0
            outer: tuple[int, ...] = ()
            if node.attributes.data:
                bodies = self._bodies(node)
                outer = tuple(sorted(_label(labels, v) for v in self.captured(node)))
            up = scope.up[node] = hash((kinds[node], read, bodies, outer))
            if weights := [labels[v] for v in node.inputs if v is not None and v in weighty]:
                scope.anchors[node] = hash((node.domain, node.op_type, tuple(weights)))
            for place, value in enumerate(node.outputs):
                held = self.content(value)
                labels[value] = hash((up, place)) if held is None else hash(held)
        self._hash_down(scope, kinds, outputs)
        made = tuple(labels.get(value, 0) for value in scope.graph.outputs)
        return hash((made, tuple(sorted(scope.up.values()))))

    def _hash_bodies(self, node: ir.Node) -> int:
        """Return a hash of the bodies of a node that does not depend on outer values.

        Each body is hashed once, also if others are around it.
        """
        made = []
        for name, body in walk.subgraphs(node):
            labels = dict.fromkeys(self.captured(node), hash("outer"))
            for place, value in enumerate(body.inputs):
                labels[value] = hash(("input", place, name))
            made.append((name, self.hash_scope(Scope(body), labels)))
        return hash(tuple(made))

    def _hash_down(
        self,
        scope: Scope,
        kinds: Mapping[ir.Node, int],
        outputs: Mapping[ir.Value, list[Hashable]],
    ) -> None:
        uses: dict[ir.Value, list[int]] = {
            value: [hash(("output", *ends))] for value, ends in outputs.items()
        }
        for node in reversed(scope.nodes):
            made = tuple([hash(tuple(sorted(uses.get(v, ())))) for v in node.outputs])
            bodies = self._inside(node) if node.attributes.data else 0
            down = scope.down[node] = hash((kinds[node], bodies, made))
            for place, read in enumerate(node.inputs):
                if read is not None:
                    uses.setdefault(read, []).append(hash((down, place)))
            for read in self.captured(node):
                uses.setdefault(read, []).append(hash((down, "captured")))


def is_undefined(value: ir.Value) -> bool:
    """Return whether nothing in the model defines a value, as in a broken model."""
    return value.producer() is None and not (value.is_graph_input() or value.is_initializer())


def type_of(side: Side, value: ir.Value) -> str:
    """Return the declared type and shape of a value in ONNX's syntax; "" if both are unknown."""
    if value.type is None and value.shape is None:
        return ""
    message = onnx.ValueInfoProto()
    side.writer.value(message, value, "x")
    return type_text(message.type)


def _label(labels: Mapping[ir.Value, int], value: ir.Value) -> int:
    found = labels.get(value)
    return hash(("undefined", value.name)) if found is None else found


def _constant(value: ir.Value) -> ir.TensorProtocol | None:
    node = value.producer()
    if node is None:
        return value.const_value if value.is_initializer() else None
    if node.op_type != "Constant" or node.domain:
        return None
    for name, attribute in node.attributes.data.items():
        if attribute.is_ref():
            return None
        if name == "value" and attribute.type is ir.AttributeType.TENSOR:
            tensor: ir.TensorProtocol = attribute.value
            return tensor
        dtype = _CONSTANT_TYPES.get((name, attribute.type))
        if dtype is not None:
            return ir.tensor(np.array(attribute.value, dtype=dtype))
    return None


_WORD = re.compile(r"[^\W\d][\w.]*")

Declared = tuple[str | None, tuple[int | str | None, ...] | None]
"""Element type (the whole type of a value that is no tensor) and dimensions; None if unknown."""


def declared(side: Side, value: ir.Value) -> Declared:
    """Return the declaration of a value."""
    shape = value.shape
    dims = None if shape is None else tuple(d if isinstance(d, int) else d.value for d in shape)
    if isinstance(value.type, ir.TensorType):
        known = value.type.dtype != ir.DataType.UNDEFINED
        return (dtype_name(value.type.dtype) if known else None), dims
    return type_of(side, value) or None, None


def dim_renames(pairs: Iterable[tuple[Declared, Declared]]) -> dict[str, str]:
    """Return the new names of dimensions that only differ by name, everywhere."""
    found: dict[str, str | None] = {}
    names_old: set[str] = set()
    names_new: set[str] = set()
    for (_, old), (_, new) in pairs:
        names_old.update(_words(old))
        names_new.update(_words(new))
        if old is None or new is None or len(old) != len(new):
            continue
        for a, b in zip(old, new, strict=True):
            if isinstance(a, str) and isinstance(b, str) and found.setdefault(a, b) != b:
                found[a] = None
    renames = {
        a: b
        for a, b in found.items()
        if b is not None and a != b and a not in names_new and b not in names_old
    }
    taken = list(renames.values())
    return {a: b for a, b in renames.items() if taken.count(b) == 1 and _is_name(a, b)}


def _is_name(old: str, new: str) -> bool:
    return all(_WORD.fullmatch(name) or not _WORD.search(name) for name in (old, new))


def _words(dims: tuple[int | str | None, ...] | None) -> Iterable[str]:
    for dim in dims or ():
        if isinstance(dim, str):
            yield dim
            yield from _WORD.findall(dim)


def with_names(value: Declared, renames: dict[str, str]) -> Declared:
    """Return a declaration with the new names of dimensions."""
    kind, dims = value
    if dims is None or not renames:
        return value
    return kind, tuple(_renamed(d, renames) if isinstance(d, str) else d for d in dims)


def _renamed(dim: str, renames: dict[str, str]) -> str:
    if dim in renames:
        return renames[dim]
    return _WORD.sub(lambda word: renames.get(word[0], word[0]), dim)
