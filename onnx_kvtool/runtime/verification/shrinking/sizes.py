"""Which dimensions of two models have to have the same size, and which may be another.

A size may be a product: the width of a projection is heads times head size, and a Reshape takes it
apart. Its parts stand in the order of the elements, the part that changes slowest first, so that
dimensions that are taken apart in several ways have the parts of all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

__all__ = ["Shape", "Size", "bind", "broadcast", "factor", "pin", "unify"]


class Size:
    """The size of dimensions that are the same by what operators ask for; a union-find node.

    Attributes:
        number: The size; None for a symbolic one.
        is_pinned: Whether it has to stay as it is; of a product only the parts say so.
        is_part: Whether it is a part of another size.
        is_indexed: Whether computed indices point along it.
        what: What it counts, in the plural; "" where that is not known.
    """

    __slots__ = ("_parent", "_parts", "is_indexed", "is_part", "is_pinned", "number", "what")

    def __init__(self, number: int | None, *, is_pinned: bool = False, what: str = "") -> None:
        self.number = number
        self.is_pinned = is_pinned or number is None
        self.is_part = self.is_indexed = False
        self.what = what
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
        """Return the sizes of which this one is the product, none of which is a product."""
        root = self.root()
        if not root._parts:
            return [root]
        return [atom for part in root._parts for atom in part.atoms()]

    @property
    def is_one(self) -> bool:
        """Whether it is 1, which joins no class: such dimensions broadcast."""
        return self.number == 1

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
        parts = Size(number), Size((self.number or 0) // number)
        for part in parts:
            part.is_pinned, part.is_part = self.is_pinned, True
            part.is_indexed, part.what = self.is_indexed, self.what
        self._parts = parts


Shape = list[Size]


def factor(a: Iterable[Size], b: Iterable[Size]) -> None:
    """Let two products of the same number be the same, in the order of their elements.

    Sizes are taken apart where one product has a border inside a size of the other: 12 x 8 and
    6 x 16 are both 6 x 2 x 8. Those that have no such parts are pinned.
    """
    left = [atom for size in a for atom in size.atoms()][::-1]
    right = [atom for size in b for atom in size.atoms()][::-1]
    if math.prod(x.number or 0 for x in left) != math.prod(x.number or 0 for x in right):
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
    a, b = one.number or 0, other.number or 0
    if a == b:
        one.join(other)
    elif a == 1:
        right.append(other)
    elif b == 1:
        left.append(one)
    elif a % b == 0:
        one._split(b)
        left.append(one)
        right.append(other)
    elif b % a == 0:
        other._split(a)
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
    for one, other in zip(a, b, strict=True):
        one.join(other)


def broadcast(shapes: Sequence[Shape | None]) -> Shape | None:
    """Return the shape of an element-wise result; None if the rank of an operand is unknown."""
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        pin(*known)
        return None
    rank = max(map(len, known), default=0)
    result: Shape = []
    for place in range(-rank, 0):
        sizes = [shape[place] for shape in known if len(shape) >= -place]
        wide = [size for size in sizes if not size.is_one]
        for size in wide[1:]:
            wide[0].join(size)
        result.append(wide[0] if wide else sizes[0])
    return result


def bind(number: int | None, *, is_pinned: bool = True) -> Size:
    """Return a new size."""
    return Size(number, is_pinned=is_pinned)
