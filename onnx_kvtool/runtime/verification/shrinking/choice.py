"""New sizes for the dimensions of two models, and the numbers that follow from them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import onnx
from onnx import helper, numpy_helper

from onnx_kvtool.core.shrunken import Shrunken
from onnx_kvtool.runtime.verification.shrinking.shapes import Shapes, Sizes
from onnx_kvtool.runtime.verification.shrinking.sizes import Size

__all__ = ["LEAST", "Choice", "choose"]

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
