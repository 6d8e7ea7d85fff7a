"""The coordinates of an attention, and where values of other ranks have its points.

Letters: B batch, H query heads, L queries, S keys; the coordinates are b, h, i and j. Scores stand
in a graph as (B, H, L, S), with grouped heads as (B, KV, G, L, S), their products as (B, KV, G * L,
S) as well, for the products of older models as (B * H, L, S), and without a batch as (L, S).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.analysis.attention.sight import Seen, Sight
from onnx_kvtool.symbolic.bounds import Facts
from onnx_kvtool.symbolic.expression import Expr, coordinate, integer
from onnx_kvtool.symbolic.forms import divided, modulo

__all__ = ["BATCH", "HEAD", "KEY", "QUERY", "Frame", "frames"]

BATCH, HEAD, QUERY, KEY = range(4)

_MOST_MOVES = 8
"""Most movements between the Softmax and a value that shows batch and heads apart."""


@dataclass(frozen=True, slots=True)
class Frame:
    """The points (b, h, i, j) of an attention.

    Attributes:
        sizes: B, H, L and S.
    """

    sizes: tuple[Expr, Expr, Expr, Expr]

    def at(self, axis: int) -> Expr:
        """Return the coordinate along an axis; 0 where its size is 1."""
        return integer(0) if self.sizes[axis].number == 1 else coordinate(axis)

    def facts(self, last: Expr) -> Facts:
        """Return what is known of the coordinates, and of one more, of size `last`."""
        return Facts((*self.sizes, last))

    def index(self, shape: tuple[Expr, ...], last: Expr) -> tuple[Expr, ...] | None:
        """Return where a value has the row of b, h and i, and in it the element `last`.

        Args:
            shape: Shape of the value: of one of the forms above, whatever its last size.
            last: The coordinate along the last axis.

        Returns:
            None for a shape of another form.
        """
        batch, heads, queries, _ = self.sizes
        b, h, i = self.at(BATCH), self.at(HEAD), self.at(QUERY)
        facts = self.facts(integer(1))
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
    one = integer(1)
    match shape:
        case (batch, heads, queries, keys):
            yield Frame((batch, heads, queries, keys))
        case (batch, kv, group, queries, keys):
            yield Frame((batch, kv * group, queries, keys))
        case (both, queries, keys):
            apart = _apart(scores, sight)
            if apart is not None and apart[0] * apart[1] == both and apart[2:] == (queries, keys):
                yield Frame((apart[0], apart[1], queries, keys))
            yield Frame((both, one, queries, keys))
        case (queries, keys):
            yield Frame((one, one, queries, keys))


def _apart(scores: ir.Value, sight: Sight) -> tuple[Expr, Expr, Expr, Expr] | None:
    """Return the shape of rank 4 of what is reshaped to scores of rank 3."""
    shape = sight.shape(scores) or ()
    seen = Seen(scores, tuple(map(coordinate, range(len(shape)))))
    for _ in range(_MOST_MOVES):
        above = sight.above(seen, Facts(shape))
        if above is None:
            return None
        found = sight.shape(above.value) or ()
        if len(found) == 4:
            return found[0], found[1], found[2], found[3]
        seen = above
    return None
