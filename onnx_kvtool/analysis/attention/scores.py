"""From the input of a Softmax up to the product of queries and keys.

    scores = cap * tanh(factor * (Q . K)) + mask + ...

Every step is linear in the product but the one Tanh, so that factors multiply and what is added
keeps the factor of all that follows it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import onnx_ir as ir

from onnx_kvtool.analysis.attention.frame import Frame
from onnx_kvtool.analysis.attention.numbers import number_of
from onnx_kvtool.analysis.attention.products import Product, is_product, product
from onnx_kvtool.analysis.attention.sight import Seen, Sight
from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.ops.traits import Trait, having
from onnx_kvtool.symbolic.expression import integer

__all__ = ["Hidden", "Mask", "Scores", "may_be_scores", "read_scores"]

_DEEPEST = 32
"""Most steps from the Softmax to the product."""

_MOST_TRIED = 8
"""Most sums both addends of which are followed upwards."""

_STEPS = frozenset({"Add", "Cast", "Div", "Mul", "Sub", "Tanh", "Where"})

MOVES = frozenset({"Expand", "Transpose", *having(Trait.VIEW)})
"""Operators that exporters put between a product and a Softmax, in front of heads and behind."""


@dataclass(frozen=True, slots=True)
class Mask:
    """What is added to the scores.

    Attributes:
        seen: The added value.
        factor: What it is multiplied by afterwards.
    """

    seen: Seen
    factor: float


@dataclass(frozen=True, slots=True)
class Hidden:
    """Scores that a Where replaces.

    Attributes:
        seen: The condition, bool.
        shown: Whether the scores stay where it is true; else where it is false.
        fill: What takes their place, with what it is multiplied by afterwards.
        alone: Whether nothing is added to the scores before.
    """

    seen: Seen
    shown: bool
    fill: float
    alone: bool = True


@dataclass(frozen=True, slots=True)
class Scores:
    """How scores come from a product.

    Attributes:
        product: The product.
        value: Its result.
        masks: What is added and replaced, from the Softmax upwards.
        scale: Factor of the product.
        softcap: Limit of the scaled product; None without one.
        masked_as: Element types in which numbers are added.
    """

    product: Product
    value: ir.Value
    masks: tuple[Mask | Hidden, ...] = ()
    scale: float = 1.0
    softcap: float | None = None
    masked_as: tuple[ir.DataType | None, ...] = ()


@dataclass(frozen=True, slots=True)
class _Way:
    """What lies between the Softmax and a value above it."""

    masks: tuple[Mask | Hidden, ...] = ()
    factor: float = 1.0
    softcap: float | None = None
    masked_as: tuple[ir.DataType | None, ...] = ()
    depth: int = 0

    def scaled(self, factor: float) -> _Way:
        return replace(self, factor=self.factor * factor, depth=self.depth + 1)


def may_be_scores(value: ir.Value) -> bool:
    """Return whether a product lies above, behind steps that scores may take; shapes unasked."""
    seen: set[ir.Value] = set()
    pending = [(value, 0)]
    while pending:
        here, depth = pending.pop()
        node = here.producer()
        if node is None or here in seen or depth > _DEEPEST or node.domain != "":
            continue
        seen.add(here)
        if is_product(node):
            return True
        if node.op_type in _STEPS:
            pending += [(v, depth + 1) for v in node.inputs if v is not None]
        elif node.op_type in MOVES and node.inputs[0] is not None:
            pending.append((node.inputs[0], depth + 1))
    return False


def read_scores(scores: Seen, frame: Frame, sight: Sight) -> Scores:
    """Return how the scores of a frame come from a product.

    Raises:
        Unproven: If a step is none that Attention takes, or a size on the way is not known.
    """
    return _Reading(frame, sight).up(scores, _Way())


@dataclass(slots=True)
class _Reading:
    """One run of `read_scores`.

    Attributes:
        frame: The frame of the scores.
        sight: What is known of the model.
        tried: Sums of which both addends were tried; a chain of `x + x` would take for ever.
    """

    frame: Frame
    sight: Sight
    tried: int = 0

    def up(self, seen: Seen, way: _Way) -> Scores:
        node = seen.value.producer()
        if node is None or node.domain != "":
            raise _unknown(seen.value)
        if way.depth > _DEEPEST:
            raise Unproven("unknown-scores", "too many steps lie between Softmax and the product")
        if is_product(node):
            return self.at_product(seen, way)
        match node.op_type:
            case "Add" | "Sub":
                return self.added(node, seen, way)
            case "Mul" | "Div":
                return self.scaled(node, seen, way)
            case "Cast":
                return self.cast(node, seen, way)
            case "Tanh":
                return self.capped(node, seen, way)
            case "Where":
                return self.replaced(node, seen, way)
        above = self.sight.above(seen, self.frame.facts(integer(1)))
        if above is None:
            raise _unknown(seen.value)
        return self.up(above, way.scaled(1.0))

    def at_product(self, seen: Seen, way: _Way) -> Scores:
        found = product(seen, self.sight)
        if found is None:
            text = f"the sizes of the operands of the product `{seen.value.name}` may differ"
            raise Unproven("sizes-unrelated", text)
        scale = way.factor if way.softcap is None else way.factor * way.softcap
        return Scores(found, seen.value, way.masks, scale, way.softcap, way.masked_as)

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
        a, b = node.inputs
        number, rest = number_of(b, self.sight), a
        if number is None and node.op_type == "Mul":
            number, rest = number_of(a, self.sight), b
        above = None if rest is None else self.sight.aligned(seen, rest)
        if number is None or above is None:
            text = f"`{seen.value.name}` multiplies the scores by what is not one known number"
            raise Unproven("unknown-scale", text)
        if node.op_type == "Div":
            number = 1 / number if number else math.inf
        if not math.isfinite(number):
            raise Unproven("unknown-scale", f"`{seen.value.name}` scales the scores by {number}")
        return self.up(above, way.scaled(number))

    def capped(self, node: ir.Node, seen: Seen, way: _Way) -> Scores:
        source = node.inputs[0]
        if way.softcap is not None or way.factor <= 0 or source is None:
            raise _unknown(seen.value)
        inner = replace(way, factor=1.0, softcap=way.factor, depth=way.depth + 1)
        return self.up(Seen(source, seen.index), inner)

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
        above, mask = self.sight.aligned(seen, scores), self.sight.aligned(seen, other)
        if above is None or mask is None:
            text = f"an operand of `{seen.value.name}` may be broadcast"
            raise Unproven("sizes-unrelated", text)
        masks = (*way.masks, Mask(mask, way.factor * sign))
        types = (*way.masked_as, seen.value.dtype)
        return self.up(above, replace(way.scaled(1.0), masks=masks, masked_as=types))

    def replaced(self, node: ir.Node, seen: Seen, way: _Way) -> Scores:
        if way.softcap is not None:
            text = f"`{seen.value.name}` masks the scores before they are capped"
            raise Unproven("mask-in-softcap", text)
        condition, yes, no = node.inputs
        if condition is None:
            raise _unknown(seen.value)
        fill, scores, shown = number_of(no, self.sight), yes, True
        if fill is None:
            fill, scores, shown = number_of(yes, self.sight), no, False
        if fill is None or scores is None:
            text = f"`{seen.value.name}` puts in place of scores what is not one known number"
            raise Unproven("unknown-fill", text)
        above = self.sight.aligned(seen, scores)
        seen_condition = self.sight.aligned(seen, condition)
        if above is None or seen_condition is None:
            text = f"an operand of `{seen.value.name}` may be broadcast"
            raise Unproven("sizes-unrelated", text)
        hidden = Hidden(seen_condition, shown, fill * way.factor)
        found = self.up(above, replace(way.scaled(1.0), masks=(*way.masks, hidden)))
        place = len(way.masks)
        if len(found.masks) == place + 1:
            return found
        inner = (*found.masks[:place], replace(hidden, alone=False), *found.masks[place + 1 :])
        return replace(found, masks=inner)


def _unknown(value: ir.Value) -> Unproven:
    node = value.producer()
    what = "an input" if node is None else f"the result of `{node.op_type}`"
    text = f"`{value.name}` is {what}, expected a product or what masks and scales one"
    return Unproven("unknown-scores", text)
