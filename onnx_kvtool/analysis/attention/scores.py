"""From a Softmax up to the product of queries and keys, with their operands."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import onnx_ir as ir

from onnx_kvtool.analysis.attention.coordinates import (
    BATCH,
    HEAD,
    SUMMED,
    Frame,
    Product,
    Seen,
    Sight,
    is_product,
    number_of,
    product,
)
from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.walk import maker
from onnx_kvtool.ops.traits import WHOLE_TYPES, Trait, having
from onnx_kvtool.symbolic.dimensions import dims_of, exact_quotient
from onnx_kvtool.symbolic.expressions import (
    ONE,
    ZERO,
    Dimension,
    Expr,
    coordinate,
    integer,
    variable,
)
from onnx_kvtool.symbolic.expressions import text as written
from onnx_kvtool.symbolic.simplification import Facts, divided, substitute

# Queries, keys and values as Attention takes them: (B, heads, rows, width).


ROWS = 2
"""The place of the rows in the axes of an operand, behind `BATCH` and `HEAD`."""

_DEEPEST_OPERAND = 24
"""Most steps above a product that are looked through for an operand."""


class Operand(NamedTuple):
    """A value that holds queries, keys or values.

    Attributes:
        axes: Its axis for the batch, the heads, the rows and the width; None for one of size 1 that
            it lacks. () where it is (B, rows, heads * width).
        factor: What it is multiplied by on the way to the product.
        steps: How far above the product it stands.
    """

    value: ir.Value
    heads: Expr
    width: Expr
    axes: tuple[int | None, ...]
    factor: float
    steps: int

    @property
    def is_packed(self) -> bool:
        """Whether it is (B, rows, heads * width)."""
        return not self.axes

    @property
    def is_direct(self) -> bool:
        """Whether its axes stand as Attention takes them."""
        return self.axes == (0, 1, 2, 3)

    def axis_of(self, role: int) -> int | None:
        """Return its axis for `BATCH` or `ROWS`; None where it lacks one."""
        return role // ROWS if self.is_packed else self.axes[role]


def operands_above(
    seen: Seen, rows: tuple[int, Expr], width: Expr, frame: Frame
) -> Iterator[Operand]:
    """Yield what may be taken for an operand of a product, upwards.

    `rows` is the coordinate that numbers its rows, and how many rows there are.
    """
    factor, facts = 1.0, frame.facts(width)
    for step in range(_DEEPEST_OPERAND):
        found = _read(seen, rows, width, frame) or _read_packed(seen, rows, width, frame)
        if found is not None:
            axes, heads = found
            yield Operand(seen.value, heads, width, axes, factor, step)
        above = frame.above(seen, facts)
        if above is None:
            scaled = scaled_above(seen, frame)
            if scaled is None:
                return
            above, number = scaled
            factor *= number
        seen = above


def scaled_above(seen: Seen, sight: Sight) -> tuple[Seen, float] | None:
    """Return what is multiplied by one positive number, and the number."""
    node = maker(seen.value, "Mul", "Div")
    number, rest = (None, None) if node is None else _factor(node, sight)
    if number is None or rest is None or not 0 < number < math.inf:
        return None
    above = sight.aligned(seen, rest)
    if above is None or sight.shape(rest) != sight.shape(seen.value):
        return None
    return above, number


def _factor(node: ir.Node, sight: Sight) -> tuple[float | None, ir.Value | None]:
    """Return the number that a Mul or Div multiplies the other operand by, and this operand."""
    a, b = node.inputs
    number = number_of(b, sight)
    if node.op_type == "Div":
        return (None if number is None else 1 / number if number else math.inf), a
    return (number, a) if number is not None else (number_of(a, sight), b)


def _read(
    seen: Seen, rows: tuple[int, Expr], width: Expr, frame: Frame
) -> tuple[tuple[int | None, ...], Expr] | None:
    """Return which axis is which, and how many heads there are; None where it is no operand."""
    shape = frame.shape(seen.value)
    if shape is None or len(shape) > 4:
        return None
    sizes = (frame.sizes[BATCH], None, rows[1], width)
    last = ZERO if width.number == 1 else coordinate(SUMMED)
    wanted = (frame.at(BATCH), None, frame.at(rows[0]), last)
    places: dict[int, int] = {}
    heads: Expr = ONE
    single = [axis for axis, size in enumerate(shape) if size.number == 1]
    for axis, (size, at) in enumerate(zip(shape, seen.index, strict=True)):
        if axis in single:
            continue
        roles = [r for r in (0, 2, 3) if wanted[r] == at and sizes[r] == size]
        if not roles and _is_head(at, size, frame, width):
            roles, heads = [HEAD], size
        if len(roles) != 1 or roles[0] in places:
            return None
        places[roles[0]] = axis
    for role in (role for role in range(4) if role not in places):
        known = heads if role == HEAD else sizes[role]
        if known is None or known.number != 1:
            return None  # it is broadcast along an axis, or is none of these at all
        # Any axis of size 1 will do; the one in its place needs no Transpose.
        if single:
            chosen = role if role in single else single[0]
            single.remove(chosen)
            places[role] = chosen
    if single:
        return None
    return tuple(places.get(role) for role in range(4)), heads


def _read_packed(
    seen: Seen, rows: tuple[int, Expr], width: Expr, frame: Frame
) -> tuple[tuple[int | None, ...], Expr] | None:
    """Return no axes and how many heads there are, for (B, rows, heads * width)."""
    shape = frame.shape(seen.value)
    if shape is None or len(shape) != 3 or shape[:2] != (frame.sizes[BATCH], rows[1]):
        return None
    both, one = shape[2].number, width.number
    if both is None or not one or both % one or seen.index[0] != frame.at(BATCH):
        return None
    last = ZERO if one == 1 else coordinate(SUMMED)
    heads, at = integer(both // one), seen.index[2] - last
    in_rows = seen.index[1] == frame.at(rows[0])
    head = exact_quotient(at, width)
    is_head = head is not None and _is_head(head, heads, frame, width)
    return ((), heads) if in_rows and is_head else None


def _is_head(at: Expr, size: Expr, frame: Frame, width: Expr) -> bool:
    """Return whether an axis has the heads, query head h reading its head h // g."""
    every = frame.sizes[HEAD]
    if size == every:
        return at == frame.at(HEAD)
    if every.number is None or size.number is None or every.number % size.number:
        return False
    group = integer(every.number // size.number)
    return at == divided(frame.at(HEAD), group, frame.facts(width))


# From the input of a Softmax up to the product of queries and keys.
#
#     scores = cap * tanh(factor * (Q . K)) + mask + ...
#
# Every step is linear in the product but the one Tanh, so that factors multiply and what is added
# keeps the factor of all that follows it.


_DEEPEST_SCORE = 32
"""Most steps from the Softmax to the product."""

_MOST_TRIED = 8
"""Largest number of sums whose two addends are both followed upwards."""

_STEPS = frozenset({"Add", "Cast", "Div", "Mul", "Sub", "Tanh", "Where"})

MOVES = frozenset({"Expand", "Transpose", *having(Trait.VIEW)})
"""Operators that exporters put between a product and a Softmax, in front of heads and behind."""


class Mask(NamedTuple):
    """What is added to the scores, or which of them a Where replaces.

    Attributes:
        seen: The added value, or the condition, bool.
        factor: What an added value is multiplied by afterwards.
        fill: What takes the place of scores, with what it is multiplied by afterwards; None for
            a value that is added.
        shown: Whether the scores stay where the condition is true; else where it is false.
    """

    seen: Seen
    factor: float = 1.0
    fill: float | None = None
    shown: bool = True


class Scores(NamedTuple):
    """How scores come from a product.

    Attributes:
        masks: What is added and replaced, from the Softmax upwards.
        scale: Factor of the product.
        softcap: Limit of the scaled product; None without one.
        masked_as: Element types of the numbers that are added.
    """

    product: Product
    value: ir.Value
    masks: tuple[Mask, ...]
    scale: float
    softcap: float | None
    masked_as: tuple[ir.DataType | None, ...]


class _Way(NamedTuple):
    """What lies between the Softmax and a value above it."""

    masks: tuple[Mask, ...] = ()
    factor: float = 1.0
    softcap: float | None = None
    masked_as: tuple[ir.DataType | None, ...] = ()
    depth: int = 0

    def scaled(self, factor: float) -> _Way:
        return self._replace(factor=self.factor * factor, depth=self.depth + 1)


def may_be_scores(value: ir.Value) -> bool:
    """Return whether a product lies above, behind steps that scores may take; shapes unasked."""
    seen: set[ir.Value] = set()
    pending = [(value, 0)]
    while pending:
        here, depth = pending.pop()
        node = maker(here)
        if node is None or here in seen or depth > _DEEPEST_SCORE:
            continue
        seen.add(here)
        if is_product(node):
            return True
        if node.op_type in _STEPS:
            pending += [(v, depth + 1) for v in node.inputs if v is not None]
        elif node.op_type in MOVES and node.inputs[0] is not None:
            pending.append((node.inputs[0], depth + 1))
    return False


def read_scores(scores: Seen, frame: Frame) -> Scores:
    """Return how the scores of a frame come from a product.

    Raises:
        Unproven: If a step is none that Attention takes, or a size on the way is unknown.
    """
    return _Reading(frame).up(scores, _Way())


@dataclass(slots=True)
class _Reading:
    """One run of `read_scores`.

    `tried` counts the sums with both addends tried; a chain of `x + x` would take for ever.
    """

    frame: Frame
    tried: int = 0

    def up(self, seen: Seen, way: _Way) -> Scores:
        node = maker(seen.value)
        if node is None:
            raise _unknown(seen.value)
        if way.depth > _DEEPEST_SCORE:
            raise Unproven("unknown-scores", "too many nodes lie between Softmax and the product")
        if is_product(node):
            found = product(seen, self.frame)
            if found is None:
                text = f"the sizes of the operands of the product `{seen.value.name}` may differ"
                raise Unproven("sizes-unrelated", text)
            scale = way.factor if way.softcap is None else way.factor * way.softcap
            return Scores(found, seen.value, way.masks, scale, way.softcap, way.masked_as)
        match node.op_type:
            case "Add" | "Sub":
                return self.added(node, seen, way)
            case "Mul" | "Div":
                return self.scaled(node, seen, way)
            case "Cast":
                return self.cast(node, seen, way)
            case "Where":
                return self.replaced(node, seen, way)
            case "Tanh":
                source = node.inputs[0]
                if way.softcap is not None or way.factor <= 0 or source is None:
                    raise _unknown(seen.value)
                inner = way._replace(factor=1.0, softcap=way.factor, depth=way.depth + 1)
                return self.up(Seen(source, seen.index), inner)
        above = self.frame.above(seen, self.frame.facts())
        if above is None:
            raise _unknown(seen.value)
        return self.up(above, way.scaled(1.0))

    def cast(self, node: ir.Node, seen: Seen, way: _Way) -> Scores:
        source, to = node.inputs[0], seen.value.dtype
        of = None if source is None else source.dtype
        if source is None or of is None or to is None or not of.is_floating_point():
            raise _unknown(seen.value)
        # To a wider type nothing changes; to a narrower one it would be rounded.
        if to != of and to.bitwidth <= of.bitwidth:
            text = f"`{seen.value.name}` rounds the scores to another type"
            raise Unproven("rounded-scores", text)
        return self.up(Seen(source, seen.index), way.scaled(1.0))

    def scaled(self, node: ir.Node, seen: Seen, way: _Way) -> Scores:
        number, rest = _factor(node, self.frame)
        above = None if rest is None else self.frame.aligned(seen, rest)
        if number is None or above is None:
            text = f"`{seen.value.name}` multiplies the scores by what is not one known number"
            raise Unproven("unknown-scale", text)
        if not math.isfinite(number):
            raise Unproven("unknown-scale", f"`{seen.value.name}` scales the scores by {number}")
        return self.up(above, way.scaled(number))

    def added(self, node: ir.Node, seen: Seen, way: _Way) -> Scores:
        if way.softcap is not None:
            text = f"`{seen.value.name}` adds to the scores before they are capped"
            raise Unproven("mask-in-softcap", text)
        a, b = node.inputs
        if a is None or b is None:
            raise _unknown(seen.value)
        orders = [(a, b, 1.0), (b, a, 1.0)] if node.op_type == "Add" else [(a, b, -1.0)]
        possible = [order for order in orders if may_be_scores(order[0])]
        self.tried += len(possible) > 1
        missing: Unproven | None = None
        for scores, other, sign in possible[: 2 if self.tried <= _MOST_TRIED else 1]:
            try:
                return self.masked(seen, scores, other, sign, way)
            except Unproven as error:  # noqa: PERF203
                missing = missing or error
        raise missing or _unknown(seen.value)

    def masked(
        self, seen: Seen, scores: ir.Value, other: ir.Value, sign: float, way: _Way
    ) -> Scores:
        above, mask = self.aligned(seen, scores), self.aligned(seen, other)
        masks = (*way.masks, Mask(mask, way.factor * sign))
        types = (*way.masked_as, seen.value.dtype)
        return self.up(above, way.scaled(1.0)._replace(masks=masks, masked_as=types))

    def replaced(self, node: ir.Node, seen: Seen, way: _Way) -> Scores:
        if way.softcap is not None:
            text = f"`{seen.value.name}` masks the scores before they are capped"
            raise Unproven("mask-in-softcap", text)
        condition, yes, no = node.inputs
        if condition is None:
            raise _unknown(seen.value)
        fill, scores, shown = number_of(no, self.frame), yes, True
        if fill is None:
            fill, scores, shown = number_of(yes, self.frame), no, False
        if fill is None or scores is None:
            text = f"`{seen.value.name}` puts in place of scores what is not one known number"
            raise Unproven("unknown-fill", text)
        above, hidden = self.aligned(seen, scores), self.aligned(seen, condition)
        masks = (*way.masks, Mask(hidden, fill=fill * way.factor, shown=shown))
        return self.up(above, way.scaled(1.0)._replace(masks=masks))

    def aligned(self, seen: Seen, operand: ir.Value) -> Seen:
        found = self.frame.aligned(seen, operand)
        if found is None:
            raise _unaligned(seen, operand, self.frame)
        return found


def _unaligned(seen: Seen, operand: ir.Value, sight: Sight) -> Unproven:
    """Return that an operand of an elementwise node may be broadcast, where, and what would do."""
    code = "sizes-unrelated"
    whole, part = sight.shape(seen.value), sight.shape(operand)
    if whole is None or part is None:
        lacking = seen.value if whole is None else operand
        return Unproven(code, f"the rank of `{lacking.name}` is unknown")
    for back, (size, result) in enumerate(zip(part[::-1], whole[::-1], strict=False), 1):
        if size != result and size.number != 1:
            return Unproven(
                code,
                f"axis {len(part) - back} of `{operand.name}` is `{written(size)}` long and that"
                f" of `{seen.value.name}` `{written(result)}`, so that it may be broadcast",
                assumption=_covering(seen.value, size, result) or _equating(size, result),
            )
    return Unproven(code, f"`{operand.name}` has more axes than `{seen.value.name}`")


def _covering(value: ir.Value, size: Expr, result: Expr) -> str | None:
    """Return the assumption that an input is as long as all keys, where a size says how long."""
    node = value.producer()
    graph = None if node is None else node.graph
    names = {a.name for a in size.atoms() if isinstance(a, Dimension)}
    names -= {a.name for a in result.atoms() if isinstance(a, Dimension)}
    for given in () if graph is None or len(names) != 1 else graph.inputs:
        if given.dtype in WHOLE_TYPES and (dims_of(given) or (None,))[-1] in names:
            return f"covers-past:{given.name}"
    return None


def _equating(size: Expr, result: Expr) -> str | None:
    """Return the assumption that two dimensions are one, where two sizes are equal then."""
    names = {a.name for a in (*size.atoms(), *result.atoms()) if isinstance(a, Dimension)}
    for one, other in combinations(sorted(names), 2):
        kept = variable(Dimension(one))
        facts = Facts(nonnegative=(kept - 1,))
        a, b = (substitute(s, {}, facts, {Dimension(other): kept}) for s in (size, result))
        if a == b:
            return f"same-dim:{other}={one}"
    return None


def _unknown(value: ir.Value) -> Unproven:
    node = value.producer()
    what = "an input" if node is None else f"the result of `{node.op_type}`"
    text = f"`{value.name}` is {what}, expected a product or what masks and scales one"
    return Unproven("unknown-scores", text)
