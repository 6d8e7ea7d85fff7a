"""One node, as the rules of shapes and of elements see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.words import counted, shape_text
from onnx_kvtool.ops.contrib import contrib_facts, default_of
from onnx_kvtool.ops.schema import op_facts
from onnx_kvtool.ops.view import NodeView, given_input, given_integer
from onnx_kvtool.symbolic.contents import IndexMap
from onnx_kvtool.symbolic.dimensions import Dims, Shape, shape_words
from onnx_kvtool.symbolic.expressions import Dimension, Element, Expr, Exprs, Extent, integer
from onnx_kvtool.symbolic.knowledge import Conflict, Knowledge, Lost
from onnx_kvtool.symbolic.simplification import Facts, substitute

# One node, for the rules that return the shapes of its outputs.


_MOST_AXES = 1024
"""Longest vector of sizes; no runtime has tensors of more than some dozen axes."""


class Unknown(Exception):
    """No output of the node has a known shape.

    Attributes:
        code: Stable identifier of the kind of reason.
        why: The reason; "" where it is that of `cause`.
        cause: The input whose rank is missing; None where the reason lies in the node.
    """

    def __init__(self, code: str, why: str, cause: ir.Value | None = None) -> None:
        super().__init__(why)
        self.code = code
        self.why = why
        self.cause = cause


@dataclass(slots=True)
class ShapeSite:
    """A node and what is known of its inputs.

    Attributes:
        opset: Version of the default domain that it was written for.
        knowledge: Types and shapes so far.
        content: Returns the content of an integer value.
        conditional: Whether the node may never run, so that its requirements say nothing about the
            rest of the model.
    """

    node: ir.Node
    opset: int
    place: Location
    knowledge: Knowledge
    content: Callable[[ir.Value], IndexMap]
    conditional: bool = False
    _view: NodeView | None = field(default=None, repr=False)

    @property
    def view(self) -> NodeView:
        """The node read through its schema."""
        if self._view is None:
            # LayerNormalization is onnxruntime's where ONNX has none yet, and reads the same.
            domain, op_type = self.node.domain, self.node.op_type
            is_own = domain or op_facts(op_type, self.opset) is None
            facts = contrib_facts(domain, op_type) if is_own else None
            self._view = NodeView(self.node, self.opset, facts)
        return self._view

    def given(self, index: int) -> ir.Value | None:
        """Return the input at `index`; None when it is absent."""
        return given_input(self.node, index)

    def value(self, index: int) -> ir.Value:
        """Return the input at `index`, which the operator needs. Raise Unknown if it is absent."""
        found = self.given(index)
        if found is None:
            raise Unknown("malformed", f"input {index} of `{self.node.op_type}` is absent")
        return found

    def rank_of(self, value: ir.Value | None) -> int | None:
        """Return the rank of a value; None when it is unknown, or there is no value."""
        shape = None if value is None else self.knowledge.shapes.get(value)
        return None if shape is None else len(shape)

    def shape_of(self, value: ir.Value) -> Shape:
        """Return the shape of a value. Raise Unknown if its rank is unknown."""
        shape = self.knowledge.shapes.get(value)
        if shape is None:
            raise Unknown("unknown-input", "", value)
        return shape

    def shape(self, index: int) -> Shape:
        """Return the shape of the input at `index`. Raise Unknown if its rank is unknown."""
        return self.shape_of(self.value(index))

    def integer(self, name: str) -> int:
        """Return an integer attribute of an operator of onnxruntime, or its default, or 0."""
        given = given_integer(self.node, name)
        if given is None:
            op_type, domain = self.node.op_type, self.node.domain
            # SimplifiedLayerNormalization of the default domain is read in both.
            domain = domain if contrib_facts(domain, op_type) else ""
            default = default_of(op_type, name, self.opset, domain)
            return default if isinstance(default, int) else 0
        return given

    def elements(self, value: ir.Value) -> Exprs | None:
        """Return the elements of a scalar or of a vector of known length; None when unknown."""
        content = self.content(value)
        if content.shape == ():
            return None if content.element is None else (content.element,)
        return content.vector()

    def expressions(self, name: str) -> Exprs | None:
        """Return numbers that are an attribute in some versions and an input in others.

        None when neither is given, or the elements of the input are unknown.
        """
        if name not in self.view.facts.attributes:
            operand = self.view.find(name)
            return None if operand is None else self.elements(operand)
        given = self.view.attribute(name)
        numbers = given if isinstance(given, tuple) else (given,)
        return None if given is None else tuple(integer(n) for n in numbers if isinstance(n, int))

    def integers(self, name: str) -> tuple[int, ...] | None:
        """Return such numbers where all are constants; `listed` raises if they are not."""
        return constants(self.expressions(name))

    def listed(self, name: str) -> tuple[int, ...] | None:
        """Return the same as `integers`, but raise Unknown if the numbers are not constant."""
        found, operand = self.integers(name), self.view.find(name)
        if found is None and operand is not None:
            raise Unknown("data-dependent", f"`{name}` is not constant: {self.cause_of(operand)}")
        return found

    def cause_of(self, value: ir.Value) -> str:
        """Return the reason of a size that depends on the elements of `value`, as text."""
        return f"it depends on the elements of `{value.name}`"

    def lost(self, axis: int, why: str, *, code: str = "data-dependent", output: int = 0) -> Expr:
        """Return an unknown size of an output along `axis`, and remember the reason."""
        value = self.node.outputs[output]
        return self.knowledge.unknown_size(value, axis, Lost(self.place.of_value(value), code, why))

    def same(self, a: Expr, b: Expr, index: int, axis: int, what: str) -> Expr:
        """Return a size that two operands must share, the one that says more.

        `b` is that of the input at `index` along `axis`; a report calls both sizes `what`.
        """
        if a == b:
            return a
        known, why = self.knowledge.equalities, f"{self.node.op_type} demands one {what}"
        if (
            known.differ(a, b)
            if self.conditional
            else not known.equate(a, b, self.place.of_value(self.given(index)), why)
        ):
            self.refuse(index, axis, a, what)
        return min(a, b, key=_vagueness)

    def refuse(self, index: int, axis: int, wanted: Expr, what: str) -> None:
        """Report that an input has another size than the node takes."""
        value = self.value(index)
        shape = self.knowledge.shapes[value]
        expected = shape_words(changed(shape, axis, wanted))
        self.conflict("operand-shape", index, shape_words(shape), expected, f"`{what}` differs")

    def conflict(
        self,
        code: str,
        index: int,
        got: Dims | str | None,
        expected: Dims | str | None,
        what: str,
    ) -> None:
        """Report that an input is not what the node takes."""
        value = self.value(index)
        message = (
            f"`{self.node.op_type}` got {_shown(got)} for input {index}, `{value.name}`, "
            f"expected {_shown(expected)}: {what}"
        )
        self.knowledge.conflicts.append(
            Conflict(code, self.place.of_value(value), got or (), expected or (), message)
        )


def constants(elements: Exprs | None) -> tuple[int, ...] | None:
    """Return elements as numbers; None unless all are known."""
    numbers = tuple(e.number for e in elements or () if e.number is not None)
    return None if elements is None or len(numbers) < len(elements) else numbers


TypeOf = tuple[int, ...] | ir.DataType
"""Positions of inputs: the first given one has the type. Or the type itself."""

Shapes = Sequence[Shape | Unknown]
"""The shape of each output, in order; an output that is left out is unknown."""

ShapeRule = Callable[[ShapeSite], Shapes]
"""Returns the shapes of the outputs.

Raises:
    Unknown: If no output has a known shape.
"""


def _vagueness(size: Expr) -> int:
    if size.number is not None:
        return 0
    if isinstance(size.atom, Dimension):
        return 1
    return 3 if any(isinstance(atom, (Extent, Element)) for atom in size.atoms()) else 2


def _shown(given: Dims | str | None) -> str:
    if isinstance(given, str):
        return given
    return shape_text(given or ())


def malformed_if(is_wrong: bool, why: str) -> None:
    """Raise `Unknown` for a node that its operator does not allow, if it is so."""
    if is_wrong:
        raise Unknown("malformed", why)


def placed(axis: int, rank: int) -> int:
    """Return an axis counted from the front. Raise Unknown if it lies outside of the rank."""
    malformed_if(not -rank <= axis < rank, f"axis {axis} lies outside of rank {rank}")
    return axis % rank


def changed(shape: Shape, axis: int, *sizes: Expr) -> Shape:
    """Return a shape with other sizes, perhaps none, in the place of that of an axis."""
    return (*shape[:axis], *sizes, *shape[axis + 1 :])


def asked(site: ShapeSite, value: ir.Value) -> tuple[Expr | None, ...]:
    """Return the elements of a vector of sizes; None for each unknown one.

    Raises:
        Unknown: If not even their number is known.
    """
    elements = site.elements(value)
    if elements is not None:
        return elements
    shape = site.content(value).shape
    length = shape[0].number if shape is not None and len(shape) == 1 else None
    if length is None:
        raise Unknown("unknown-rank", f"the number of elements of `{value.name}` is unknown")
    if length > _MOST_AXES:
        raise Unknown(
            "malformed", f"`{value.name}` has {counted(length, 'element')}, more than axes can be"
        )
    return (None,) * length


# One node, for the rules that return the elements of its outputs.


class Unrelated(NamedTuple):
    """Two sizes along an axis of a result: one is broadcast to the other unless they are equal."""

    axis: int
    size: Expr
    other: Expr


@dataclass(slots=True)
class ElementSite(ShapeSite):
    """A node, the contents of its inputs, and one of its outputs.

    Attributes:
        output: Index of the output.
        unrelated: Sizes whose equality a rule would need; rules add to it.
    """

    output: int = 0
    dtype: ir.DataType | None = None
    sizes: Exprs = ()
    unrelated: list[Unrelated] = field(default_factory=list)

    @property
    def inputs(self) -> list[IndexMap]:
        """The content of each input that is present, in order."""
        return [self.content(value) for value in self.node.inputs if value is not None]

    def input(self, name: str) -> IndexMap | None:
        """Return the content of the input called `name`; None when it is absent."""
        value = self.view.find(name)
        return None if value is None else self.content(value)

    def ranked(self, index: int) -> tuple[IndexMap, Exprs]:
        """Return the content and the shape of the input at `index`, which the operator needs.

        Raises:
            Unknown: If its rank is unknown.
        """
        found = self.content(self.value(index))
        if found.shape is None:
            raise Unknown("unknown-rank", f"the rank of input {index} is unknown")
        return found, found.shape

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
        return IndexMap(self.sizes, self.dtype)

    def whole(self, element: Expr) -> IndexMap:
        """Return a map whose elements have one expression."""
        return IndexMap.whole(self.sizes, self.dtype, element)

    def stacked(self, axis: int, parts: Sequence[Expr]) -> IndexMap:
        """Return a map with one expression per place along `axis`."""
        return IndexMap.stacked(self.sizes, self.dtype, axis, parts)

    def like(self, axis: int | None, parts: Sequence[Expr]) -> IndexMap:
        """Return a map from the `axis` and `parts` of an `IndexMap`."""
        if not parts:
            return self.opaque()
        return self.whole(parts[0]) if axis is None else self.stacked(axis, parts)

    def moved(
        self, axis: int | None, parts: Sequence[Expr], coordinates: Mapping[int, Expr]
    ) -> IndexMap:
        """Return the same map with other coordinates in the place of those of the parts."""
        facts = Facts(self.sizes)
        return self.like(axis, [substitute(part, coordinates, facts) for part in parts])


ElementRule = Callable[[ElementSite], IndexMap | None]
"""The elements of an output of a node; None when nothing is known.

Raises:
    Unknown: Likewise.
"""
