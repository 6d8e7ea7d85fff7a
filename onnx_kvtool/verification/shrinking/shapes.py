"""The sizes of every value of two models, tied together, and the choice of new ones."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper, shape_inference

from onnx_kvtool.core.domains import DEFAULT_DOMAINS, canonical_domain
from onnx_kvtool.core.reporting import Shrunken
from onnx_kvtool.ops.schema import NEWEST
from onnx_kvtool.ops.traits import SIZE_TYPES, Trait, traits
from onnx_kvtool.verification.shrinking.rules import SIZE_RULES, unknown
from onnx_kvtool.verification.shrinking.sizes import (
    Call,
    Item,
    Links,
    Shape,
    Size,
    Unknown,
    carried,
    count_carriers,
    fixed,
    pin,
)
from onnx_kvtool.verification.shrinking.weights import Skeleton, captured

# The sizes of every value of one model, tied together by what its operators ask for.


_A = onnx.AttributeProto

LONGEST = 64
"""Elements of a constant that may hold sizes or axes."""

Shapes = dict[str, Shape | None]


@dataclass(slots=True)
class Sizes:
    """The sizes of one model.

    Attributes:
        shapes: The sizes of every value of the main graph by name; None for an unknown rank.
        links: Numbers that are sizes, and tables that index them.
    """

    shapes: Shapes
    links: Links


def sizes_of(skeleton: Skeleton, free: Set[str], tokens: Set[str]) -> Sizes:
    """Return the sizes of a model, tied by what its operators ask for.

    Sizes are pinned that have to stay: those of constants that are not `free`, symbolic ones, and
    those that some operator may depend on.

    Args:
        skeleton: The model.
        free: Weights that get other values, and constants where a part may do.
        tokens: Inputs that hold token ids, so that the tables which they index may be shorter.
    """
    walk = _Walk(skeleton, free, tokens)
    return Sizes(walk.shapes, walk.links)


class _Walk:
    def __init__(self, skeleton: Skeleton, free: Set[str], tokens: Set[str]) -> None:
        graph = skeleton.message.graph
        self.links = Links()
        self.shapes: Shapes = {}
        self._tokens = set(tokens)
        self._opsets = {o.domain: o.version for o in skeleton.message.opset_import}
        self._integers: dict[str, list[int]] = {}
        self._items: dict[str, list[Item]] = {}
        self._symbols: dict[str, Size] = {}
        self._inferred = _inferred(skeleton.message)
        for value in graph.input:
            self.shapes[value.name] = self._declared(value)
        for tensor in graph.initializer:
            is_pinned = tensor.name not in free
            self.shapes[tensor.name] = [Size(size, is_pinned=is_pinned) for size in tensor.dims]
            self._note(tensor.name, tensor)
        for sparse in graph.sparse_initializer:
            self.shapes[sparse.values.name] = [fixed(size) for size in sparse.dims]
        for index, node in enumerate(graph.node):
            self._node(node, index)
        self._check_readers(graph.node, [value.name for value in graph.output])

    def _check_readers(self, nodes: Sequence[onnx.NodeProto], outputs: list[str]) -> None:
        """Tie sizes that are one number, and keep those that some node reads for anything else."""
        readers: Counter[str] = Counter(outputs)
        for node in nodes:
            readers.update(name for name in node.input if name)
            readers.update(captured(node))
        count_carriers(nodes, self._items, self.links, readers)
        first: dict[object, Size] = {}
        for link in self.links.numbers:
            # Nodes that share a constant share what it says.
            first.setdefault((link.place, link.element), link.size).join(link.size)
            known = self.links.readers
            if isinstance(link.place, str) and readers[link.place] != known.get(link.place, 0):
                link.size.pin()

    def _node(self, node: onnx.NodeProto, index: int) -> None:
        if node.op_type == "Constant" and node.domain in DEFAULT_DOMAINS:
            self._constant(node)
            return
        call = Call(
            node,
            [self.shapes.get(name) if name else None for name in node.input],
            [self._integers.get(name) for name in node.input],
            [self._items.get(name) for name in node.input],
            [name in self._tokens for name in node.input],
            self._opsets.get(node.domain, NEWEST),
            index,
            self.links,
        )
        if (items := carried(call)) is not None:
            self._items[node.output[0]] = items
        try:
            outputs = SIZE_RULES.get((canonical_domain(node.domain), node.op_type), unknown)(call)
        except Unknown:
            pin(*call.shapes, *(self.shapes.get(name) for name in captured(node)))
            outputs = [self._fresh(name) for name in node.output]
        for name, shape in zip(node.output, outputs, strict=False):
            # A size that stays, where a rule knows no rank but inference does.
            self.shapes[name] = self._fresh(name) if shape is None else shape
        is_copy = traits(node).any(Trait.VIEW, Trait.CASTS)
        if is_copy and node.input and node.input[0] in self._tokens:
            self._tokens.update(node.output)

    def _fresh(self, name: str) -> Shape | None:
        """Return pinned sizes in the rank that inference finds."""
        sizes = self._inferred.get(name)
        return None if sizes is None else [fixed(size) for size in sizes]

    def _constant(self, node: onnx.NodeProto) -> None:
        (name,) = node.output
        for attribute in node.attribute:
            if attribute.type == _A.TENSOR:
                self.shapes[name] = [fixed(size) for size in attribute.t.dims]
                self._note(name, attribute.t)
            elif attribute.type in (_A.INTS, _A.INT):
                numbers = list(attribute.ints) if attribute.type == _A.INTS else [attribute.i]
                self._hold(name, numbers)
                self.shapes[name] = [fixed(len(numbers))] if attribute.type == _A.INTS else []
            else:
                self.shapes[name] = self._fresh(name)

    def _note(self, name: str, tensor: onnx.TensorProto) -> None:
        """Remember a constant that may hold sizes or axes."""
        if tensor.data_type not in SIZE_TYPES or tensor.data_location == onnx.TensorProto.EXTERNAL:
            return
        if int(np.prod(tensor.dims)) <= LONGEST:
            self._hold(name, [int(n) for n in numpy_helper.to_array(tensor).reshape(-1)])

    def _hold(self, name: str, numbers: list[int]) -> None:
        self._integers[name] = numbers
        self._items[name] = [Item(n, (name, element)) for element, n in enumerate(numbers)]

    def _declared(self, value: onnx.ValueInfoProto) -> Shape | None:
        """Return the sizes of an input; those of one name are the same."""
        type_ = value.type.tensor_type
        if not type_.HasField("shape"):
            return None
        return [
            Size(dim.dim_value)
            if dim.HasField("dim_value")
            else self._symbols.setdefault(dim.dim_param, fixed(None))
            if dim.dim_param
            else fixed(None)
            for dim in type_.shape.dim
        ]


def _inferred(message: onnx.ModelProto) -> dict[str, list[int | None]]:
    """Return the shapes that onnx infers; none at all for a model that it cannot work on."""
    try:
        inferred = shape_inference.infer_shapes(message)
    except (shape_inference.InferenceError, RuntimeError, ValueError):
        return {}
    return {
        value.name: [
            dim.dim_value if dim.HasField("dim_value") else None
            for dim in value.type.tensor_type.shape.dim
        ]
        for value in inferred.graph.value_info
        if value.type.tensor_type.HasField("shape")
    }


# New sizes for the dimensions of two models, and the numbers that follow from them.


_FIRST, _STEP = 24, 8
"""New sizes: small, each another one, and multiples of what kernels like."""

LEAST = 2
"""A size up to this one is never changed."""

_SMALL = 64
"""A size up to this one is changed only if it is one of heads, of blocks or of a cache."""


class Choice:
    """The new size of each size that has one."""

    def __init__(self) -> None:
        self._new: dict[Size, int] = {}

    def give(self, atom: Size, number: int) -> None:
        """Choose a size, which must be no product."""
        self._new[atom] = number

    def is_given(self, atom: Size) -> bool:
        """Return whether a size was chosen."""
        return atom in self._new

    def parts(self, size: Size) -> list[tuple[int, int]]:
        """Return the old and the new size of each part."""
        atoms = size.atoms()
        return [(a.number or 0, self._new.get(a, a.number or 0)) for a in atoms]

    def of(self, size: Size) -> int:
        """Return the new size; a symbolic one has none."""
        number = size.root().number
        assert number is not None, "the size of a constant is a number"
        if not any(atom in self._new for atom in size.atoms()):
            return number
        return math.prod(new for _, new in self.parts(size))

    def shrunken(self) -> tuple[Shrunken, ...]:
        """Return what was made smaller."""
        return tuple(
            Shrunken(size.what or "widths", size.number or 0, new)
            for size, new in self._new.items()
        )

    def write(self, message: onnx.ModelProto, sizes: Sizes) -> None:
        """Write new sizes where they stand as numbers: in inputs, attributes and constants."""
        for value in (*message.graph.input, *message.graph.output):
            shape = sizes.shapes.get(value.name)
            dims = value.type.tensor_type.shape.dim
            if shape is not None and len(shape) == len(dims):
                for dim, size in zip(dims, shape, strict=True):
                    if dim.HasField("dim_value") and size.root().number is not None:
                        dim.dim_value = self.of(size)
        tensors = {tensor.name: tensor for tensor in message.graph.initializer}
        constants = {
            node.output[0]: node for node in message.graph.node if node.op_type == "Constant"
        }
        for link in sizes.links.numbers:
            new = self.of(link.size)
            if new == link.size.root().number:
                continue
            if not isinstance(link.place, str):
                index, name = link.place
                _set_attribute(message.graph.node[index], name, link.element, new)
            elif link.place in tensors:
                _set(tensors[link.place], link.element, new)
            else:
                _set_constant(constants[link.place], link.element, new)
        for index, size in sizes.links.scales.items():
            if (number := size.root().number) is not None and self.of(size) != number:
                # The scale follows from the size of the heads of the model, not of the copy.
                attribute = helper.make_attribute("scale", 1 / math.sqrt(number))
                message.graph.node[index].attribute.append(attribute)


def _set(tensor: onnx.TensorProto, element: int, number: int) -> None:
    values = numpy_helper.to_array(tensor).copy()
    values.reshape(-1)[element] = number
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def _set_constant(node: onnx.NodeProto, element: int, number: int) -> None:
    (attribute,) = node.attribute
    if attribute.HasField("t"):
        _set(attribute.t, element, number)
    else:
        _set_attribute(node, attribute.name, element, number)


def _set_attribute(node: onnx.NodeProto, name: str, element: int, number: int) -> None:
    attribute = next(attribute for attribute in node.attribute if attribute.name == name)
    if attribute.type == onnx.AttributeProto.INTS:
        attribute.ints[element] = number
    else:
        attribute.i = number


def choose(models: Iterable[Shapes]) -> Choice:
    """Choose a new size for each size of a weight or an input that may have another one."""
    choice = Choice()
    fresh = itertools.count(_FIRST, _STEP)
    few = itertools.cycle((3, 2))
    for shapes in models:
        for shape in shapes.values():
            for atom in (atom for size in shape or () for atom in size.atoms()):
                number = atom.number
                if number is None or atom.is_pinned or number <= LEAST or choice.is_given(atom):
                    continue
                is_few = atom.is_part or atom.is_indexed or bool(atom.what)
                if number <= _SMALL and not is_few:
                    continue
                new = next(few if is_few and atom.what != "tokens" else fresh)
                if new < number:
                    choice.give(atom, new)
    return choice
