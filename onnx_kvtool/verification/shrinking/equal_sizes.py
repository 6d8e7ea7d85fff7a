"""Which dimensions of two models have one size, and a node as the rules see it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

import onnx

from onnx_kvtool.core.domains import DEFAULT_DOMAINS
from onnx_kvtool.ops.contrib import default_of

# Which dimensions of two models have to have the same size, and which may be another.
#
# A size may be a product: the width of a projection is heads times head size, and a Reshape takes
# it apart. Its parts stand in the order of the elements, the part that changes slowest first, so
# that dimensions that are taken apart in several ways have the parts of all of them.


class Size:
    """The size of dimensions that are the same by what operators ask for; a union-find node.

    Attributes:
        number: The size; 0 for a symbolic one.
        is_pinned: Whether it has to stay as it is; of a product only the parts say so.
        is_part: Whether it is a part of another size.
        is_indexed: Whether computed indices point along it.
        what: What it counts, in the plural; "" where that is unknown.
    """

    __slots__ = ("_parent", "_parts", "is_indexed", "is_part", "is_pinned", "number", "what")

    def __init__(self, number: int, *, is_pinned: bool = False) -> None:
        self.number = number
        self.is_pinned = is_pinned or not number
        self.is_part = self.is_indexed = False
        self.what = ""
        self._parent: Size | None = None
        self._parts: tuple[Size, ...] = ()

    def root(self) -> Size:
        """Return the member that stands for the class."""
        node = self
        while node._parent is not None:
            node = node._parent
        if node is not self:
            self._parent = node
        return node

    def atoms(self) -> list[Size]:
        """Return the factors of this size that are no products themselves."""
        root = self.root()
        if not root._parts:
            return [root]
        return [atom for part in root._parts for atom in part.atoms()]

    @property
    def is_one(self) -> bool:
        """Whether it is 1, which joins no class: such dimensions broadcast."""
        return self.number == 1

    def parted(self, count: int) -> int:
        """Return a part of the size if `count` equal ones make it up.

        Raises:
            Unknown: If they do not, or if the size is symbolic.
        """
        need(self.number and count > 0 and self.number % count == 0)
        return self.number // count

    def pin(self) -> None:
        """Let it stay as it is."""
        for atom in self.atoms():
            atom.is_pinned = True

    def join(self, other: Size) -> None:
        """Let both be of one class; classes of different numbers pin each other."""
        a, b = self.root(), other.root()
        if a is b:
            return
        if a.number != b.number:
            a.pin()
            b.pin()
            return
        if a._parts or b._parts:
            factor([a], [b])
            a, b = a.root(), b.root()
            if a is b or not (a._parts and b._parts):
                return
        b._parent = a
        a.is_pinned |= b.is_pinned
        a.is_part |= b.is_part
        a.is_indexed |= b.is_indexed
        a.what = a.what or b.what

    def _split(self, number: int) -> None:
        """Let it be a product of `number` and the rest."""
        parts = Size(number), Size(self.number // number)
        for part in parts:
            part.is_pinned, part.is_part = self.is_pinned, True
            part.is_indexed, part.what = self.is_indexed, self.what
        self._parts = parts


Shape = list[Size]
Shapes = dict[str, Shape | None]

Found = list[Shape | None]
"""The shapes of the outputs of a node; None for one whose rank only inference knows."""


class Unknown(Exception):
    """A rule cannot say how a node ties sizes, so that the node keeps those of all its inputs."""


def need(condition: object) -> None:
    """Check what a rule rests on.

    Raises:
        Unknown: If the condition is false.
    """
    if not condition:
        raise Unknown


def factor(a: Iterable[Size], b: Iterable[Size]) -> None:
    """Let two products of the same number be the same, in the order of their elements.

    Sizes are taken apart where one product has a border inside a size of the other: 12 x 8 and
    6 x 16 are both 6 x 2 x 8. Those that have no such parts are pinned.
    """
    left = [atom for size in a for atom in size.atoms()][::-1]
    right = [atom for size in b for atom in size.atoms()][::-1]
    if math.prod(x.number for x in left) != math.prod(x.number for x in right):
        pin(left, right)
        return
    while left and right:
        one, other = left.pop().atoms(), right.pop().atoms()
        if len(one) > 1 or len(other) > 1:  # taken apart meanwhile
            left += one[::-1]
            right += other[::-1]
        else:
            _match(one[0], other[0], left, right)
    pin([size for size in (*left, *right) if not size.is_one])


def _match(one: Size, other: Size, left: list[Size], right: list[Size]) -> None:
    """Join two atoms, or the larger one's first part, and put back what is left of it."""
    if one.number < other.number:
        one, other, left, right = other, one, right, left
    a, b = one.number, other.number
    if a == b:
        one.join(other)
    elif b == 1:
        left.append(one)
    elif b and a % b == 0:
        one._split(b)
        left.append(one)
        right.append(other)
    else:
        pin([one, other, *left, *right])
        left.clear()
        right.clear()


def pin(*shapes: Sequence[Size] | None) -> None:
    """Keep every size in `shapes`."""
    for shape in shapes:
        for size in shape or ():
            size.pin()


def unify(a: Shape | None, b: Shape | None) -> None:
    """Let two values have the same shape; if that cannot be said, keep the sizes of both."""
    if a is None or b is None or len(a) != len(b):
        pin(a, b)
        return
    join_all(a, b)


def broadcast(shapes: Sequence[Shape | None]) -> Shape | None:
    """Return the shape of an element-wise result; None if the rank of an operand is unknown."""
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        pin(*known)
        return None
    result: Shape = []
    for sizes in zip_longest(*(shape[::-1] for shape in known)):
        given = [size for size in sizes if size is not None]
        first, *others = [size for size in given if not size.is_one] or given[:1]
        for size in others:
            first.join(size)
        result.append(first)
    return result[::-1]


def fixed(number: int = 0) -> Size:
    """Return a new size that stays as it is; a symbolic one without a number."""
    return Size(number, is_pinned=True)


def merged(sizes: Shape) -> Size:
    """Return the product of sizes; it stays as it is if one of them is symbolic."""
    if len(sizes) == 1:
        return sizes[0]
    if not (number := math.prod(size.number for size in sizes)):
        pin(sizes)
        return fixed()
    result = Size(number)
    factor([result], sizes)
    return result


def replaced(shape: Shape, axis: int, *sizes: Size) -> Shape:
    """Return a shape with other sizes in place of one."""
    return [*shape[:axis], *sizes, *shape[axis + 1 :]]


def join_all(a: Iterable[Size], b: Iterable[Size]) -> None:
    """Let the sizes of two shapes be the same, as far as the shorter one goes."""
    for one, other in zip(a, b, strict=False):
        one.join(other)


def name(what: str, *sizes: Size) -> None:
    """Say what sizes count, unless that is known."""
    for size in sizes:
        for atom in size.atoms():
            atom.what = atom.what or what


# A node as the rules of shrinking see it: its operands' shapes and small constants.


class Item(NamedTuple):
    """An integer of a shape that a model gives to an operator: of a constant, or a size.

    Attributes:
        number: What it is; 1 for a size.
        place: Name of the constant that it comes from, and its index there; None for a size.
        size: The size that it is read off while the model runs, and therefore follows; else None.
    """

    number: int = 1
    place: tuple[str, int] | None = None
    size: Size | None = None


class Link(NamedTuple):
    """A number of a model that is a size, and changes with it.

    Attributes:
        place: Name of the constant that holds it, or index of a node and name of its attribute.
        element: Its index in a constant or attribute that holds several.
        size: The size.
    """

    place: str | tuple[int, str]
    element: int
    size: Size


@dataclass(slots=True)
class Sizes:
    """The sizes of one model, and what rules find beside them.

    Attributes:
        shapes: The sizes of every value of the main graph by name; None for an unknown rank.
        integers: What small constants of integers hold, by name.
        items: What values hold that are shapes, constants or computed from sizes, by name.
        tokens: Names of values that hold token ids that are fed.
        numbers: Numbers that are sizes.
        readers: How many nodes read a constant for numbers that are sizes.
        tables: Constants that hold indices along a size, with it.
        scales: Indices of Attention nodes whose scale follows from the size of their heads.
    """

    shapes: Shapes = field(default_factory=dict)
    integers: dict[str, list[int]] = field(default_factory=dict)
    items: dict[str, list[Item]] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)
    numbers: list[Link] = field(default_factory=list)
    readers: Counter[str] = field(default_factory=Counter)
    tables: list[tuple[str, Size]] = field(default_factory=list)
    scales: dict[int, Size] = field(default_factory=dict)

    def fresh(self, name: str, sizes: Iterable[int] | None) -> None:
        """Give a value pinned sizes; none if its rank is unknown."""
        self.shapes[name] = None if sizes is None else [fixed(size) for size in sizes]


@dataclass(frozen=True, slots=True)
class Call:
    """One node, its index, the version of its domain, and the sizes, where rules note findings."""

    node: onnx.NodeProto
    index: int
    opset: int
    sizes: Sizes

    def name(self, index: int) -> str:
        """Return the name of an input; "" if it is left out."""
        return self.node.input[index] if index < len(self.node.input) else ""

    def shape(self, index: int) -> Shape | None:
        """Return the shape of an input; None if it is left out or of unknown rank."""
        name = self.name(index)
        return self.sizes.shapes.get(name) if name else None

    @property
    def shapes(self) -> list[Shape | None]:
        """The shapes of all inputs."""
        return [self.shape(index) for index in range(len(self.node.input))]

    def is_token(self, index: int) -> bool:
        """Return whether an input holds token ids that are fed."""
        return self.name(index) in self.sizes.tokens

    def integers(self, index: int) -> list[int] | None:
        """Return what an input holds if it is a small constant of integers."""
        return self.sizes.integers.get(self.name(index))

    def items(self, index: int) -> list[Item] | None:
        """Return what an input holds if it is a shape."""
        return self.sizes.items.get(self.name(index))

    def known(self, *indices: int) -> list[Shape]:
        """Return the shapes of some inputs.

        Raises:
            Unknown: If one of them is left out or of unknown rank.
        """
        shapes = [shape for index in indices if (shape := self.shape(index)) is not None]
        need(len(shapes) == len(indices))
        return shapes

    def _keep_length(self, index: int) -> None:
        pin((self.shape(index) or [])[:1])

    def constant(self, index: int) -> list[int] | None:
        """Return the integers that an input is known to hold, and keep how many they are."""
        self._keep_length(index)
        return self.integers(index)

    def target(self, index: int) -> list[Item]:
        """Return the integers of an input that is a shape, and keep how many they are.

        Raises:
            Unknown: If nobody knows them.
        """
        self._keep_length(index)
        items = self.items(index)
        if items is None:
            raise Unknown
        return items

    def link_target(self, index: int, sizes: Mapping[int, Size]) -> None:
        """Note that integers of a shape are sizes, all others no sizes that may change."""
        self.sizes.readers[self.name(index)] += 1
        for element, item in enumerate(self.items(index) or ()):
            if element in sizes and item.place is not None:
                self.sizes.numbers.append(Link(*item.place, sizes[element]))

    def link(self, index: int, sizes: Mapping[int, Size]) -> None:
        """Note that elements of a constant input are sizes, all others no sizes that may change."""
        if sizes:
            self.link_target(index, sizes)

    def link_attribute(self, name: str, size: Size, element: int = 0) -> None:
        """Note that a number of an attribute is a size."""
        self.sizes.numbers.append(Link((self.index, name), element, size))

    def number(self, name: str) -> int:
        """Return the value of an integer attribute, or the schema's default; 0 without either."""
        given = self._given(name, onnx.AttributeProto.INT)
        if given is not None:
            return given.i
        default = default_of(self.node.op_type, name, self.opset, self.node.domain)
        return default if isinstance(default, int) else 0

    def axis(self, shape: Shape) -> int:
        """Return the attribute `axis`, counted from the front of a shape.

        Raises:
            Unknown: If the shape has no such axis.
        """
        axis = self.number("axis")
        need(-len(shape) <= axis < len(shape))
        return axis % len(shape)

    def numbers(self, name: str) -> list[int] | None:
        """Return the value of an attribute that is a list of integers; None without one."""
        given = self._given(name, onnx.AttributeProto.INTS)
        return None if given is None else list(given.ints)

    def _given(self, name: str, kind: int) -> onnx.AttributeProto | None:
        found = (a for a in self.node.attribute if a.name == name and a.type == kind)
        return next(found, None)


# Shapes that a model puts together from sizes and constants before an operator takes them.
#
# What carries sizes is said here once more, and of few operators: copies must not be spoiled by
# what spoils the rules of `symbolic`, which inference and rewriting read.


_Items = list[Item] | None


def _shape(call: Call) -> _Items:
    shape = call.shape(0)
    if shape is None:
        return None
    end = next((a.i for a in call.node.attribute if a.name == "end"), len(shape))
    return [Item(size=size) for size in shape[call.number("start") : end]]


def _same(call: Call) -> _Items:
    return call.items(0)


def _reshaped(call: Call) -> _Items:
    """One number as a vector, or as a scalar."""
    items = call.items(0)
    return items if items is not None and len(items) == 1 else None


def _gather(call: Call) -> _Items:
    items, indices = call.items(0), call.integers(1)
    if items is None or indices is None or call.number("axis") not in (0, -1):
        return None
    is_inside = all(-len(items) <= index < len(items) for index in indices)
    return [items[index] for index in indices] if is_inside else None


def _slice(call: Call) -> _Items:
    items = call.items(0)
    begins, ends, axes, steps = (
        call.integers(place) if call.name(place) else default
        for place, default in ((1, None), (2, None), (3, [0]), (4, [1]))
    )
    if items is None or begins is None or ends is None or axes not in ([0], [-1]) or steps != [1]:
        return None
    return items[begins[0] : ends[0]] if len(begins) == len(ends) == 1 else None


def _concat(call: Call) -> _Items:
    given = [call.items(index) for index in range(len(call.node.input))]
    return None if None in given else [item for items in given for item in items or ()]


_CARRIERS: Mapping[str, Callable[[Call], _Items]] = {
    "Cast": _same,
    "Concat": _concat,
    "Gather": _gather,
    "Identity": _same,
    "Reshape": _reshaped,
    "Shape": _shape,
    "Slice": _slice,
    "Squeeze": _same,
    "Unsqueeze": _same,
}

CARRYING = frozenset(_CARRIERS) - {"Shape"}
"""Operators that hand integers of shapes on."""


def carried(call: Call) -> list[Item] | None:
    """Return the integers of the shape that a node gives; None if it gives no shape.

    Vectors and scalars are told apart by what reads them; other values hold no shape.
    """
    op_type = call.node.op_type
    if op_type not in _CARRIERS or call.node.domain not in DEFAULT_DOMAINS:
        return None
    handed = call.shapes if op_type == "Concat" else call.shapes[: op_type in CARRYING]
    is_flat = all(shape is not None and len(shape) <= 1 for shape in handed)
    return _CARRIERS[op_type](call) if is_flat else None


def count_carriers(nodes: Sequence[onnx.NodeProto], sizes: Sizes, all_: Counter[str]) -> None:
    """Count a node that hands a shape on among those that read it for sizes, if all that follow do.

    `all_` counts the nodes that read each value, and the outputs of the graph.
    """
    for node in reversed(nodes):
        name = next(iter(node.output), None)
        if node.op_type in CARRYING and name in sizes.items and all_[name] == sizes.readers[name]:
            sizes.readers.update(node.input if node.op_type == "Concat" else node.input[:1])
