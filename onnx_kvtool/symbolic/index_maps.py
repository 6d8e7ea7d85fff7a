"""The elements of integer values of a graph, as functions of their coordinates.

`IndexMaps(opset).of(value)` returns an `IndexMap`: the shape of the value and its elements as an
expression over their coordinates. The elements of `Unsqueeze(Add(Range(0, L, 1), start), -1)`, of
shape (L, 1), are `start + i`, however an exporter writes it. If no rule knows an element, it stays
`Element(value, coordinates)`: a symbol for itself, never a guess.

An expression holds for every run of the graph that does not fail before the value is complete,
given that

- shapes and dimension names on the values are true, one name being one size in the whole graph;
- no size reaches 2^30 (`OUTSIDE`);
- no addition, subtraction, multiplication or negation leaves the range of its type (int64, or
  int32), and no divisor is 0. A Cast to int32 is seen through only where the numbers fit.

A TensorScatter may replace a scatter although integers wrap around: the sum `start + s` wraps only
for a start within 2^30 of the largest integer of its type. In linear mode TensorScatter fails for
it; in circular mode its own sum wraps as well. The caller decides about an index that lies outside
its axis, or counts from the end; see `as_index`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.walk import maker, read_values
from onnx_kvtool.ops.result_types import output_types
from onnx_kvtool.ops.traits import EXACT, FLOAT_TYPES, WHOLE_TYPES, Trait, traits
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.symbolic.broadcasting import SizeEqualities
from onnx_kvtool.symbolic.contents import IndexMap, fill
from onnx_kvtool.symbolic.dimensions import Dim, dims_of, is_invented
from onnx_kvtool.symbolic.expressions import (
    ZERO,
    Atom,
    Dimension,
    Element,
    Expr,
    Exprs,
    Extent,
    coordinate,
    integer,
    variable,
)
from onnx_kvtool.symbolic.knowledge import Knowledge
from onnx_kvtool.symbolic.rules.site import ElementSite, Unknown, Unrelated
from onnx_kvtool.symbolic.rules.sources import stored
from onnx_kvtool.symbolic.rules.table import element_rule, shape_rule
from onnx_kvtool.symbolic.simplification import Facts, interval, substitute

HEAVIEST = 256
"""Largest weight of an expression; a value that would need a larger one is opaque."""

_NOWHERE = Location()

_LONGEST_CASTS = 8
"""Most casts of casts that are looked through."""


class IndexMaps:
    """The elements of the values of one graph (with its nested graphs), or of one function.

    Every value is described once, after its operands, in time linear in their number. Shapes are
    read from the values: infer them before. While an instance is in use, the graph must not change
    above the values that are asked about.

    Args:
        opset: Version of the default domain, for nodes without their own.
        equalities: Dimensions that are equal beyond those of one name.
    """

    def __init__(self, opset: int, equalities: SizeEqualities | None = None) -> None:
        self.opset = opset
        self._equalities = equalities if equalities is not None else SizeEqualities()
        self._memo: dict[ir.Value, IndexMap] = {}
        self._unrelated: dict[ir.Value, tuple[Unrelated, ...]] = {}
        self._around = Knowledge()  # of the operands of the node that is looked at

    def of(self, value: ir.Value) -> IndexMap:
        """Return the elements of `value`.

        An integer or bool value of known rank always has a description, `Element(value,
        coordinates)` if nothing is known. Other values have one only if they are computed exactly
        from small integers, such as a mask that was cast to float.
        """
        return fill(value, self._memo, self._operands, self._describe)

    def shape(self, value: ir.Value) -> Exprs | None:
        """Return the size of each axis of any value; None when its rank is unknown.

        A size without number and name is `Extent(value, axis)`.
        """
        if value.dtype is None or value.dtype in WHOLE_TYPES:
            return self.of(value).shape
        return self._declared(value)

    def size(self, dim: Dim) -> Expr | None:
        """Return a dimension as an expression; None if it is unknown."""
        return self._equalities.of_dim(dim)

    def unrelated(self, value: ir.Value) -> tuple[Unrelated, ...]:
        """Return the pairs of sizes that would have to be equal to say more of `value`.

        Broadcasts of these made elements opaque that the description of `value` refers to. Empty if
        equal sizes would not help.
        """
        held = self.of(value)
        todo = _values_in([*held.parts, *(held.shape or ())])
        found: dict[Unrelated, None] = {}
        for seen in todo:
            for one in self._unrelated.get(seen, ()):
                found[one] = None
                todo += [v for v in _values_in([one.size, one.other]) if v not in todo]
        # A user cannot name the size of a broadcast that is itself undecided.
        causes = [
            one
            for one in found
            if not any(
                isinstance(atom, Extent) and atom.value in self._unrelated
                for atom in (one.size.atom, one.other.atom)
            )
        ]
        return tuple(causes or found)

    def widened(self, expr: Expr, facts: Facts) -> Expr:
        """Return `expr`, assuming that all numbers cast to int32 fit that type.

        A Cast of numbers that may not fit is opaque. The returned expression refers to the operand
        of the Cast instead.
        """
        for _ in range(_LONGEST_CASTS):
            casts = {a: s for a in expr.atoms() if (s := self._cast_to_int32(a)) is not None}
            if not casts or expr.weight > HEAVIEST:
                break
            expr = substitute(expr, {}, facts, casts)
        return expr

    def _cast_to_int32(self, atom: Atom) -> Expr | None:
        """Return the operand of a Cast to int32 at the place of its opaque element; else None."""
        node = maker(atom.value, "Cast") if isinstance(atom, Element) else None
        if node is None or len(node.inputs) != 1 or node.inputs[0] is None:
            return None
        source = self.of(node.inputs[0])
        narrow = node.outputs[0].dtype == ir.DataType.INT32 and source.dtype == ir.DataType.INT64
        if not narrow or source.element is None:
            return None
        return substitute(source.element, dict(enumerate(atom.parts)), Facts())

    def _operands(self, value: ir.Value) -> list[ir.Value]:
        node = maker(value)
        if node is None or element_rule(node.op_type) is None:
            return []
        if Trait.READS_SHAPE in traits(node):
            return [v for v in read_values(node) if v.dtype in (None, *WHOLE_TYPES)]
        return read_values(node)

    def _describe(self, value: ir.Value) -> IndexMap:
        found = stored(value) or self._produced(value)
        dtype = value.dtype or (found.dtype if found is not None else None)
        shape = self._declared(value)
        if found is None:
            found = IndexMap(shape, dtype)
        elif found.shape is not None:
            if shape is not None and (
                len(shape) != len(found.shape)
                or any(
                    f.number is not None and d.number is not None and f.number != d.number
                    for f, d in zip(found.shape, shape, strict=True)
                )
            ):
                return IndexMap(None, dtype)  # another rank or size is declared
            shape = _merged(found.shape, shape)
        parts = found.parts if shape is not None and _is_exact(found, dtype) else ()
        if not parts and shape is not None and (dtype is None or dtype in WHOLE_TYPES):
            index = tuple(
                ZERO if size.number == 1 else coordinate(i) for i, size in enumerate(shape)
            )
            return IndexMap(shape, dtype, None, (variable(Element(value, index)),))
        if shape is None or not parts:
            return IndexMap(shape, dtype)
        if found.axis is None:
            return IndexMap.whole(shape, dtype, parts[0])
        return IndexMap.stacked(shape, dtype, found.axis, parts)

    def _produced(self, value: ir.Value) -> IndexMap | None:
        node = maker(value)
        rule = None if node is None else element_rule(node.op_type)
        if node is None or rule is None:
            return None
        try:
            view = NodeView(node, self.opset)
            if not node.attributes.keys() <= view.facts.attributes.keys():
                return None  # that of another version, perhaps, which gives it another meaning
            site = ElementSite(
                node, view.opset, _NOWHERE, self._around, self._operand, True, view,
                value.index() or 0, self._dtype(node, view.opset, value),
            )  # fmt: skip
            # A constant has its own shape, and most nodes of a model are constants.
            shape = () if node.op_type == "Constant" else self._result(site, value)
            if shape is None:
                return None
            site.sizes = shape
            found = rule(site)
        except (MalformedNode, Unknown):
            return None
        if site.unrelated:
            self._unrelated[value] = tuple(site.unrelated)
        return found

    def _result(self, site: ElementSite, value: ir.Value) -> Exprs | None:
        """Return the shape of an output by its rule, with declared sizes where it knows none."""
        declared, found = self._declared(value), self._inferred(site)
        if found is None or declared is None or len(declared) != len(found):
            return declared if found is None else found
        return tuple(
            there if isinstance(atom := size.atom, Extent) and atom.value is value else size
            for size, there in zip(found, declared, strict=True)
        )

    def _inferred(self, site: ElementSite) -> Exprs | None:
        knowledge = self._around
        knowledge.shapes.clear()
        knowledge.conflicts.clear()
        knowledge.assumed.clear()
        for operand in read_values(site.node):
            is_whole = operand.dtype is None or operand.dtype in WHOLE_TYPES
            shape = self._operand(operand).shape if is_whole else self._declared(operand)
            if shape is not None:
                knowledge.shapes[operand] = shape
        rule = shape_rule(site.node.op_type)
        try:
            shapes = () if rule is None else rule(site)
        except Unknown:
            shapes = ()
        if knowledge.conflicts:
            raise MalformedNode("operand-shape", knowledge.conflicts[0].message)
        found = shapes[site.output] if site.output < len(shapes) else None
        # With an empty operand, Reshape might copy another size.
        return None if knowledge.assumed or isinstance(found, Unknown) else found

    def _operand(self, value: ir.Value) -> IndexMap:
        known = self._memo.get(value)
        return known or IndexMap(self._declared(value), value.dtype)

    def _dtype(self, node: ir.Node, opset: int, value: ir.Value) -> ir.DataType | None:
        """Return the type of an output: as declared, or as the schema derives it from inputs."""

        def type_of(operand: ir.Value) -> ir.TypeProtocol | None:
            dtype = operand.dtype or self._operand(operand).dtype
            return None if dtype is None else ir.TensorType(dtype)

        if value.dtype is not None:
            return value.dtype
        found = dict(enumerate(output_types(node, opset, type_of))).get(value.index() or 0)
        return None if found is None else found.dtype

    def _declared(self, value: ir.Value) -> Exprs | None:
        dims = dims_of(value)
        if dims is None:
            return None
        return tuple(
            size
            if not is_invented(dim) and (size := self.size(dim)) is not None
            else variable(Extent(value, integer(i)))
            for i, dim in enumerate(dims)
        )


def _values_in(expressions: Iterable[Expr]) -> list[ir.Value]:
    """Return the values that expressions refer to, by an element or by a size."""
    atoms = (atom for expr in expressions for atom in expr.atoms())
    return list(dict.fromkeys(a.value for a in atoms if isinstance(a, (Element, Extent))))


def _merged(found: Sequence[Expr], declared: Sequence[Expr] | None) -> Exprs:
    """Return the shape that says most: numbers before computed sizes before names."""
    if declared is None:
        return tuple(found)
    return tuple(
        d if d.number is not None or (f.number is None and _rank(d) < _rank(f)) else f
        for f, d in zip(found, declared, strict=True)
    )


def _rank(size: Expr) -> int:
    atom = size.atom
    if isinstance(atom, Dimension):
        return 0
    return 2 if isinstance(atom, Extent) else 1


def _is_exact(found: IndexMap, dtype: ir.DataType | None) -> bool:
    if any(part.weight > HEAVIEST or part.is_vast for part in found.parts):
        return False
    if dtype is None or dtype in WHOLE_TYPES:
        # A number outside its type has wrapped around for certain.
        bits = 31 if dtype == ir.DataType.INT32 else 63
        numbers = [part.number for part in found.parts]
        return all(n is None or -(2**bits) <= n < 2**bits for n in numbers)
    if dtype not in FLOAT_TYPES:
        return False
    facts = found.facts
    ends = [end for part in found.parts for end in interval(part, facts)]
    return all(abs(end) <= EXACT for end in ends)
