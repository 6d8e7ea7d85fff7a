"""Values of an attention, followed by the coordinates of their elements."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.constants import const_tensor
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.walk import is_op, maker
from onnx_kvtool.ops.operators import parse
from onnx_kvtool.ops.traits import SIZE_TYPES, Trait, traits
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.symbolic.contents import IndexMap, elements
from onnx_kvtool.symbolic.expressions import (
    ONE,
    ZERO,
    Element,
    Expr,
    Exprs,
    Modulo,
    Quotient,
    coordinate,
    integer,
    variable,
)
from onnx_kvtool.symbolic.index_maps import IndexMaps
from onnx_kvtool.symbolic.knowledge import Knowledge
from onnx_kvtool.symbolic.rules.site import ElementSite, Unknown
from onnx_kvtool.symbolic.rules.table import element_rule
from onnx_kvtool.symbolic.simplification import Facts, divided, modulo, simplified, substitute

# Which element of which value another value holds, seen through operators that only move.
#
# The index maps say what integers are. Queries, keys and scores are no integers, and what counts
# of them is where their elements come from. So an operand of a movement stands for itself here, a
# symbol `Element(operand, coordinates)`, and the rules that index maps have say which of them the
# result holds at each coordinate: `Reshape(Expand(Unsqueeze(K)))` is K at head `h // g`, however
# written.


@dataclass(frozen=True, slots=True)
class Seen:
    """Elements of a value, one for each point of a frame.

    `index` has the coordinate along each axis of the value, over the coordinates of the frame.
    """

    value: ir.Value
    index: Exprs


@dataclass(frozen=True, slots=True)
class Sight:
    """What is known of the values of a model.

    Attributes:
        maps: What integer values hold, and the shape of any value.
        unpadded: Inputs that are granted to be 1 throughout, each with the text that grants it.
        bounds: What is known of sizes besides equal sizes, such as that no cache has more rows than
            are asked for.
    """

    maps: IndexMaps
    knowledge: Knowledge
    opset: int
    unpadded: Mapping[ir.Value, str]
    bounds: Facts

    def shape(self, value: ir.Value) -> Exprs | None:
        """Return the size of each axis, equal sizes by one expression; None without a rank."""
        shape = self.maps.shape(value)
        if shape is None:
            return None
        known = tuple(map(self.knowledge.equalities.resolved, shape))
        if not self.bounds.nonnegative:
            return known
        return tuple(simplified(size, self.bounds) for size in known)

    def view(self, node: ir.Node) -> NodeView | None:
        """Return a node of the default domain through its schema; None where that is impossible."""
        if node.domain != "":
            return None
        try:
            return NodeView(node, self.opset)
        except MalformedNode:
            return None

    def aligned(self, seen: Seen, operand: ir.Value) -> Seen | None:
        """Return an operand of an elementwise node as its result is seen.

        None where nobody knows whether an axis is broadcast.
        """
        whole, part = self.shape(seen.value), self.shape(operand)
        if whole is None or part is None or len(part) > len(whole):
            return None
        index = []
        for size, result, at in zip(part[::-1], whole[::-1], seen.index[::-1], strict=False):
            if size != result and size.number != 1:
                return None
            index.append(ZERO if size.number == 1 else at)
        return Seen(operand, tuple(reversed(index)))

    def upwards(self, seen: Seen, facts: Facts, most: int) -> Iterator[Seen]:
        """Yield at most so many values: `seen`, and what `above` returns for each of them."""
        above: Seen | None = seen
        while above is not None and most:
            yield above
            above, most = self.above(above, facts), most - 1

    def above(self, seen: Seen, facts: Facts) -> Seen | None:
        """Return what is moved by the node that makes a value; None for any other node."""
        node = maker(seen.value)
        source = node.inputs[0] if node is not None and node.inputs else None
        if node is None or source is None:
            return None
        if node.op_type == "Cast":
            same = source.dtype is not None and source.dtype == seen.value.dtype
            return Seen(source, seen.index) if same else None
        held = self._moved(node, source, seen.value)
        if held is None:
            return None
        known = dict(enumerate(seen.index))
        return Seen(source, tuple(_rejoined(substitute(p, known, facts)) for p in held))

    def _moved(self, node: ir.Node, source: ir.Value, output: ir.Value) -> Exprs | None:
        """Return the coordinates in `source` of each element of `output`, over those of it."""
        kind = traits(node)
        if Trait.REARRANGES not in kind and Trait.REPEATS not in kind:
            return None
        rule = element_rule(node.op_type)
        if rule is None or len(node.outputs) != 1:
            return None
        view, before, after = self.view(node), self.shape(source), self.shape(output)
        if view is None or before is None or after is None:
            return None
        itself = variable(Element(source, tuple(map(coordinate, range(len(before))))))
        described = IndexMap.whole(before, output.dtype, itself)

        def operand(value: ir.Value) -> IndexMap:
            return described if value is source else self.maps.of(value)

        try:
            found = rule(
                ElementSite(
                    node, view.opset, Location(), self.knowledge, operand, True, view, 0,
                    output.dtype, after,
                )
            )  # fmt: skip
        except (MalformedNode, Unknown):
            return None
        element = None if found is None or found.element is None else found.element.atom
        if not isinstance(element, Element) or element.value is not source:
            return None
        return element.index


def _rejoined(expr: Expr) -> Expr:
    """Return an expression with `(a // n) * n + a % n` written as `a`, for numbers n."""
    terms = dict(expr.linear())
    for rest, count in terms.items():
        by = rest.by.number if isinstance(rest, Modulo) else None
        if not isinstance(rest, Modulo) or not by:
            continue
        whole = Quotient(rest.of, rest.by)
        if terms.get(whole) == count * by:
            return _rejoined(expr + (rest.of - variable(rest) - variable(whole) * by) * count)
    return expr


# The coordinates of an attention, and where values of other ranks have its points.
#
# Letters: B batch, H query heads, L queries, S keys; the coordinates are b, h, i and j. Scores
# stand in a graph as (B, H, L, S), with grouped heads as (B, KV, G, L, S), their products as (B,
# KV, G * L, S) as well, for the products of older models as (B * H, L, S), and without a batch as
# (L, S).


BATCH, HEAD, QUERY, KEY = range(4)

_MOST_MOVES = 8
"""Most movements between the Softmax and a value that shows batch and heads apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame(Sight):
    """The points (b, h, i, j) of an attention, and what is known of the values of its model.

    Attributes:
        sizes: B, H, L and S.
    """

    sizes: Exprs
    # One for each size: they remember what they were asked.
    _facts: dict[Expr, Facts] = field(default_factory=dict, compare=False, repr=False)
    _simplified: dict[Expr, Expr] = field(default_factory=dict, compare=False, repr=False)

    def at(self, axis: int) -> Expr:
        """Return the coordinate along an axis; 0 where its size is 1."""
        return ZERO if self.sizes[axis].number == 1 else coordinate(axis)

    def facts(self, last: Expr = ONE) -> Facts:
        """Return what is known of the coordinates, and of one more, of size `last`."""
        return self._facts.setdefault(last, Facts((*self.sizes, last)))

    def simplified(self, expr: Expr) -> Expr:
        """Return an expression over the points with all decided that is certain of them."""
        if expr not in self._simplified:
            self._simplified[expr] = simplified(expr, self.facts())
        return self._simplified[expr]

    def index(self, shape: Exprs, last: Expr) -> Exprs | None:
        """Return where a value has the row of b, h and i, and in it the element `last`.

        The shape is of one of the forms above, whatever its last size; None for another form.
        """
        batch, heads, queries, _ = self.sizes
        b, h, i = self.at(BATCH), self.at(HEAD), self.at(QUERY)
        facts = self.facts()
        match shape[:-1]:
            case (first, second, third) if (first, second, third) == self.sizes[:3]:
                return (b, h, i, last)
            case (first, second, third) if first == batch and second.number and heads.number:
                group = integer(heads.number // second.number)
                if second * group != heads or third != group * queries:
                    return None
                row = modulo(h, group, facts) * queries + i
                return (b, divided(h, group, facts), row, last)
            case (first, kv, group, third) if (first, third) == (batch, queries):
                if kv.number is None or group.number is None or kv * group != heads:
                    return None
                return (b, divided(h, group, facts), modulo(h, group, facts), i, last)
            case (both, third) if (both, third) == (batch * heads, queries):
                return (b * heads + h, i, last)
            case (third,) if third == queries and (batch * heads).number == 1:
                return (i, last)
        return None


def frames(scores: ir.Value, sight: Sight) -> Iterator[Frame]:
    """Yield the frames that the input of a Softmax may have, the most telling first."""
    shape = sight.shape(scores)
    if shape is None or not 2 <= len(shape) <= 5:
        return
    found = [shape]
    match shape:
        case (batch, kv, group, queries, keys):
            found = [(batch, kv * group, queries, keys)]
        case (both, queries, keys):
            apart = _apart(scores, sight)
            found = [(both, ONE, queries, keys)]
            if apart is not None and apart[0] * apart[1] == both and apart[2:] == (queries, keys):
                found.insert(0, apart)
        case (queries, keys):
            found = [(ONE, ONE, queries, keys)]
    known = {one.name: getattr(sight, one.name) for one in fields(Sight)}
    yield from (Frame(**known, sizes=sizes) for sizes in found)


def _apart(scores: ir.Value, sight: Sight) -> Exprs | None:
    """Return the shape of rank 4 of what is reshaped to scores of rank 3."""
    shape = sight.shape(scores) or ()
    seen = Seen(scores, tuple(map(coordinate, range(len(shape)))))
    moves = sight.upwards(seen, Facts(shape), _MOST_MOVES + 1)
    shapes = (sight.shape(above.value) or () for above in moves)
    return next((found for found in shapes if len(found) == 4), None)


# Sums of products over one index: MatMul, and Einsum of two operands.


SUMMED = 4
"""The coordinate of a frame over which the product is summed, behind those of its axes."""


class Product(NamedTuple):
    """A value that is the sum over `SUMMED` of products of elements of two others.

    `sizes` is how many products are added up, as each operand has it. One expression or not, the
    two are equal in every run that does not fail.
    """

    operands: tuple[Seen, Seen]
    sizes: tuple[Expr, Expr]


def is_product(node: ir.Node | None) -> bool:
    """Return whether a node may be a product of two values, neither of them stored in the file."""
    if node is None or not is_op(node, "MatMul", "Einsum"):
        return False
    # What is multiplied with weights is a layer: a router's scores, say, and no attention.
    return len(node.inputs) == 2 and not any(
        v is None or v.is_initializer() or maker(v, "Constant") for v in node.inputs
    )


def product(seen: Seen, sight: Sight, summed: Expr | None = None) -> Product | None:
    """Return what a value is the product of; None where it is none or its sizes are unknown.

    `summed` stands for the index of the sum; it is the coordinate `SUMMED` by default.
    """
    node = seen.value.producer()
    view = sight.view(node) if node is not None and is_product(node) else None
    known = [shape for v in node.inputs if v and (shape := sight.shape(v))] if node else []
    if node is None or view is None or len(known) != 2:
        return None
    is_matmul = node.op_type == "MatMul"
    equation = "...ij,...jk->...ik" if is_matmul else view.string("equation")
    try:
        terms, output = parse(equation, [len(shape) for shape in known])
    except MalformedNode:
        return None
    both = set(terms[0]) & set(terms[1]) - set(output)
    only_once = all(len(set(term)) == len(term) for term in terms)
    if len(both) != 1 or not only_once or len(output) != len(seen.index):
        return None
    if (set(terms[0]) ^ set(terms[1])) - set(output):
        return None  # summed over in one operand alone
    (label,) = both
    at = coordinate(SUMMED) if summed is None else summed
    places = {**dict(zip(output, seen.index, strict=True)), label: at}
    sizes: dict[str, Expr] = {}
    operands = []
    for value, term, shape in zip(node.inputs, terms, known, strict=True):
        assert value is not None
        index = []
        for name, size in zip(term, shape, strict=True):
            other = sizes.setdefault(name, size)
            if is_matmul and name == label:
                if sight.knowledge.equalities.differ(size, other):
                    return None
            elif size != other and (name == label or 1 not in (size.number, other.number)):
                return None
            index.append(ZERO if size.number == 1 else places[name])
        operands.append(Seen(value, tuple(index)))
    first, second = (shape[term.index(label)] for term, shape in zip(terms, known, strict=True))
    return Product((operands[0], operands[1]), (first, second))


# Single numbers of a graph: scales, caps, masked values; constants, or computed from sizes.


_DEEPEST = 16
"""Most nodes in a row that compute a number."""

_COMPUTES: dict[str, tuple[int, Callable[..., float]]] = {
    "Add": (2, operator.add),
    "Div": (2, operator.truediv),
    "Mul": (2, operator.mul),
    "Neg": (1, operator.neg),
    "Pow": (2, operator.pow),
    "Reciprocal": (1, lambda number: 1 / number),
    "Sqrt": (1, math.sqrt),
    "Sub": (2, operator.sub),
}
"""What computes a number: how many of its inputs are numbers, and what it makes of them.

Others hand one on, perhaps in another type."""


def number_of(value: ir.Value | None, sight: Sight, depth: int = 0) -> float | None:
    """Return the only element of a float value, the same in every run; None where it is unknown.

    Every step is rounded to its element type, as a runtime rounds it.
    """
    if value is None or depth > _DEEPEST:
        return None
    shape = sight.shape(value)
    if shape is None or any(size.number != 1 for size in shape):
        return None
    if value.dtype in SIZE_TYPES:
        scalar = sight.maps.of(value).scalar()
        return None if scalar is None or scalar.number is None else float(scalar.number)
    tensor = None if value.is_graph_input() else const_tensor(value)
    if tensor is not None:
        held = elements(tensor)
        return None if held is None or held.size != 1 else float(held.ravel()[0])
    return _computed(value, sight, depth)


def _computed(value: ir.Value, sight: Sight, depth: int) -> float | None:
    node = maker(value)
    if node is None or value.dtype is None:
        return None
    hands_on = traits(node).any(Trait.VIEW, Trait.CASTS)
    count, compute = _COMPUTES.get(node.op_type, (int(hands_on), float))
    operands = [number_of(operand, sight, depth + 1) for operand in node.inputs[:count]]
    known = [operand for operand in operands if operand is not None]
    if not count or len(known) < count:
        return None
    try:
        with np.errstate(over="ignore"):
            result = float(np.asarray(compute(*known)).astype(value.dtype.numpy()))
    except (ArithmeticError, ValueError, TypeError):
        return None
    return None if math.isnan(result) else result
