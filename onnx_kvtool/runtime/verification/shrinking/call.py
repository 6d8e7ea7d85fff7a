"""A node as the rules of shrinking see it: its operands' shapes and small constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import onnx

from onnx_kvtool.ops.contrib_schema import default_of
from onnx_kvtool.ops.schema import NEWEST
from onnx_kvtool.runtime.verification.shrinking.sizes import Shape, Size

__all__ = ["Call", "Item", "Link", "Links"]


@dataclass(frozen=True, slots=True)
class Item:
    """An integer of a shape that a model gives to an operator: of a constant, or a size.

    Attributes:
        number: What it is; None for a size.
        place: Name of the constant that it comes from, and its index there; None for a size.
        size: The size that it is read off while the model runs, and therefore follows; else None.
    """

    number: int | None = None
    place: tuple[str, int] | None = None
    size: Size | None = None


@dataclass(frozen=True, slots=True)
class Link:
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
class Links:
    """What rules find in one model beside the sizes of its values.

    Attributes:
        numbers: Numbers that are sizes.
        readers: How many nodes read a constant for numbers that are sizes.
        tables: Constants that hold indices along a size, with it.
        scales: Indices of Attention nodes whose scale follows from the size of their heads.
    """

    numbers: list[Link] = field(default_factory=list)
    readers: dict[str, int] = field(default_factory=dict)
    tables: list[tuple[str, Size]] = field(default_factory=list)
    scales: dict[int, Size] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Call:
    """One node.

    Attributes:
        node: The node.
        shapes: Shapes of its inputs; None for an unknown rank and for an input that is left out.
        integers: What its inputs hold where they are small constants of integers.
        items: What its inputs hold where they are shapes: constants, or computed from sizes.
        is_token: For each input, whether it holds token ids that are fed.
        opset: Version of its domain.
        index: Index of the node.
        links: Where rules note what else they find.
    """

    node: onnx.NodeProto
    shapes: Sequence[Shape | None]
    integers: Sequence[list[int] | None]
    items: Sequence[list[Item] | None]
    is_token: Sequence[bool]
    opset: int = NEWEST
    index: int = 0
    links: Links = field(default_factory=Links)

    def shape(self, index: int) -> Shape | None:
        """Return the shape of an input; None if it is left out or of unknown rank."""
        return self.shapes[index] if index < len(self.shapes) else None

    def constant(self, index: int) -> list[int] | None:
        """Return the integers that an input is known to hold, and keep how many they are."""
        if shape := self.shape(index):
            shape[0].pin()
        return self.integers[index] if index < len(self.integers) else None

    def target(self, index: int) -> list[Item] | None:
        """Return the integers of an input that is a shape, and keep how many they are."""
        if shape := self.shape(index):
            shape[0].pin()
        return self.items[index] if index < len(self.items) else None

    def link_target(self, index: int, sizes: dict[int, Size]) -> None:
        """Note that integers of a shape are sizes, all others no sizes that may change."""
        name = self.node.input[index]
        self.links.readers[name] = self.links.readers.get(name, 0) + 1
        for element, item in enumerate(self.items[index] or ()):
            if element in sizes and item.place is not None:
                self.links.numbers.append(Link(*item.place, sizes[element]))

    def link(self, index: int, sizes: dict[int, Size]) -> None:
        """Note that elements of a constant input are sizes, all others no sizes that may change."""
        if not sizes:
            return
        name = self.node.input[index]
        self.links.readers[name] = self.links.readers.get(name, 0) + 1
        self.links.numbers += [Link(name, element, size) for element, size in sizes.items()]

    def link_attribute(self, name: str, size: Size, element: int = 0) -> None:
        """Note that a number of an attribute is a size."""
        self.links.numbers.append(Link((self.index, name), element, size))

    def has(self, index: int) -> bool:
        """Return whether an input is given."""
        return index < len(self.node.input) and bool(self.node.input[index])

    def number(self, name: str) -> int:
        """Return the value of an integer attribute, or the schema's default; 0 without either."""
        given = self._given(name, onnx.AttributeProto.INT)
        if given is not None:
            return given.i
        default = default_of(self.node.op_type, name, self.opset, self.node.domain)
        return default if isinstance(default, int) else 0

    def axis(self, shape: Shape | None) -> int | None:
        """Return the attribute `axis`, counted from the front of a shape.

        None if the shape has no such axis, or is not known.
        """
        axis = self.number("axis")
        if shape is None or not -len(shape) <= axis < len(shape):
            return None
        return axis % len(shape)

    def numbers(self, name: str) -> list[int] | None:
        """Return the value of an attribute that is a list of integers; None without one."""
        given = self._given(name, onnx.AttributeProto.INTS)
        return None if given is None else list(given.ints)

    def _given(self, name: str, kind: int) -> onnx.AttributeProto | None:
        found = (a for a in self.node.attribute if a.name == name and a.type == kind)
        return next(found, None)
