"""Which dimensions of two models have to have the same size, and which may be another."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Shape", "Size", "bind", "broadcast", "pin", "unify"]


class Size:
    """The size of dimensions that are the same by what operators ask for; a union-find node.

    Attributes:
        number: The size; None for a symbolic one.
        is_pinned: Whether it has to stay as it is. A class is pinned as soon as one member is.
    """

    __slots__ = ("_parent", "is_pinned", "number")

    def __init__(self, number: int | None, *, is_pinned: bool = False) -> None:
        self.number = number
        self.is_pinned = is_pinned or number is None
        self._parent: Size | None = None

    def root(self) -> Size:
        """Return the member that stands for the class."""
        node = self
        while node._parent is not None:
            node = node._parent
        if node is not self:
            self._parent = node
        return node

    @property
    def is_one(self) -> bool:
        """Whether it is 1, which joins no class: such dimensions broadcast."""
        return self.number == 1

    def join(self, other: Size) -> None:
        """Let both be of one class; classes of different numbers pin each other."""
        a, b = self.root(), other.root()
        if a is b:
            return
        if a.number != b.number:
            a.is_pinned = b.is_pinned = True
            return
        b._parent = a
        a.is_pinned |= b.is_pinned


Shape = list[Size]


def pin(*shapes: Shape | None) -> None:
    """Keep every size in `shapes`."""
    for shape in shapes:
        for size in shape or ():
            size.root().is_pinned = True


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
