"""One node, as the rules see it that say what its output holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.symbolic.expression import Expr, integer
from onnx_kvtool.symbolic.index_map import IndexMap

__all__ = ["ElementRule", "ElementSite", "Unrelated"]


@dataclass(frozen=True, slots=True)
class Unrelated:
    """Two sizes of which one is broadcast to the other unless they are equal.

    Attributes:
        axis: Axis of the result.
        size: Size of the operand.
        other: Size of the result.
    """

    axis: int
    size: Expr
    other: Expr


@dataclass(slots=True)
class ElementSite:
    """A node and what is known of its inputs.

    Attributes:
        view: The node, read through its schema.
        operands: What each value read by the node holds.
        shape_of: The shape of any value; None when its rank is unknown.
        dtype: Element type of the output; None when unknown.
        shape: Shape of the output.
        output: The output that is described.
        unrelated: What a rule would have had to know; rules add to it.
    """

    view: NodeView
    operands: Callable[[ir.Value], IndexMap]
    shape_of: Callable[[ir.Value], tuple[Expr, ...] | None]
    dtype: ir.DataType | None
    shape: tuple[Expr, ...]
    output: ir.Value
    unrelated: list[Unrelated] = field(default_factory=list)

    @property
    def node(self) -> ir.Node:
        """The node."""
        return self.view.node

    @property
    def inputs(self) -> list[IndexMap]:
        """What each input holds that is present, in order."""
        return [self.operands(value) for value in self.node.inputs if value is not None]

    def input(self, name: str) -> IndexMap | None:
        """Return what the input called `name` in the schema holds; None when it is absent."""
        if all(formal.name != name for formal in self.view.facts.inputs):
            return None
        value = self.view.input(name)
        return None if value is None else self.operands(value)

    def integers(self, name: str) -> tuple[int, ...] | None:
        """Return fixed integers: an attribute, or an input that holds constants.

        None when neither is present or the input is not constant; `has` tells the two apart.
        """
        if name in self.view.facts.attributes:
            value = self.view.attribute(name)
            if isinstance(value, tuple):
                return tuple(n for n in value if isinstance(n, int))
            return None
        given = self.input(name)
        if given is None:
            return None
        elements = given.vector() or ((given.element,) if given.shape == () else None)
        if elements is None:
            return (0,)[:0] if given.shape == (integer(0),) else None
        numbers = [e.number for e in elements if e is not None]
        found = tuple(n for n in numbers if n is not None)
        return found if len(found) == len(elements) else None

    def has(self, name: str) -> bool:
        """Return whether the node has an attribute or an input of this name."""
        if name in self.view.facts.attributes:
            return self.view.attribute(name) is not None
        return any(f.name == name for f in self.view.facts.inputs) and bool(
            self.view.input(name) is not None
        )

    def number(self, name: str, default: int | None) -> int | None:
        """Return an integer attribute; `default` where the operator or the node has none."""
        if name not in self.view.facts.attributes:
            return default
        value = self.view.attribute(name)
        return value if isinstance(value, int) else default

    def tensor(self, name: str) -> ir.TensorProtocol | None:
        """Return a tensor attribute; None where the node has none.

        Raises:
            MalformedNode: If it is of another type, or a parameter of a function that is not bound.
        """
        if self.view.attribute(name) is None:
            return None
        # Not `as_tensor()`, which asks the tensor for its size and fails for an undefined type.
        found: ir.TensorProtocol = self.node.attributes[name].value
        return found

    def opaque(self) -> IndexMap:
        """Return a map with unknown elements."""
        return IndexMap(self.shape, self.dtype, None, ())

    def whole(self, element: Expr) -> IndexMap:
        """Return a map whose elements have one expression."""
        return IndexMap.whole(self.shape, self.dtype, element)

    def stacked(self, axis: int, parts: Sequence[Expr]) -> IndexMap:
        """Return a map with one expression per place along `axis`."""
        return IndexMap.stacked(self.shape, self.dtype, axis, parts)

    def like(self, axis: int | None, parts: Sequence[Expr]) -> IndexMap:
        """Return a map from expressions as `IndexMap` holds them."""
        if not parts:
            return self.opaque()
        return self.whole(parts[0]) if axis is None else self.stacked(axis, parts)


ElementRule = Callable[[ElementSite], IndexMap | None]
"""What an output of a node holds; None when nothing is known."""
