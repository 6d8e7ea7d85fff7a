"""Queries, keys and values as Attention takes them: (B, heads, rows, width)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.analysis.attention.frame import BATCH, HEAD, Frame
from onnx_kvtool.analysis.attention.numbers import number_of
from onnx_kvtool.analysis.attention.products import SUMMED
from onnx_kvtool.analysis.attention.sight import Seen, Sight
from onnx_kvtool.symbolic.division import exact_quotient
from onnx_kvtool.symbolic.expression import Expr, coordinate, integer
from onnx_kvtool.symbolic.forms import divided

__all__ = ["ROWS", "Operand", "operands_above", "scaled_above"]

ROWS = 2
"""The place of the rows in the axes of an operand, behind `BATCH` and `HEAD`."""

_DEEPEST = 24
"""Most steps above a product that are looked through for an operand."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A value that holds queries, keys or values.

    Attributes:
        value: The value.
        heads: How many heads it has.
        width: Size of a head.
        axes: Its axis for the batch, the heads, the rows and the width; None for one of size 1
            that it lacks. () where it is (B, rows, heads * width).
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
    seen: Seen, rows: tuple[int, Expr], width: Expr, frame: Frame, sight: Sight
) -> Iterator[Operand]:
    """Yield what may be taken for an operand of a product, upwards.

    Args:
        seen: The operand of the product, seen from the frame and from `SUMMED`.
        rows: The coordinate that numbers its rows, that of the queries or that of the keys, and how
            many there are.
        width: Size of a head.
        frame: The frame.
        sight: What is known of the model.
    """
    factor, facts = 1.0, frame.facts(width)
    for step in range(_DEEPEST):
        found = _read(seen, rows, width, frame, sight)
        found = found or _read_packed(seen, rows, width, frame, sight)
        if found is not None:
            axes, heads = found
            yield Operand(seen.value, heads, width, axes, factor, step)
        above = sight.above(seen, facts)
        if above is None:
            scaled = scaled_above(seen, sight)
            if scaled is None:
                return
            above, number = scaled
            factor *= number
        seen = above


def scaled_above(seen: Seen, sight: Sight) -> tuple[Seen, float] | None:
    """Return what is multiplied by one positive number, and the number."""
    node = seen.value.producer()
    if node is None or node.domain != "" or node.op_type not in ("Mul", "Div"):
        return None
    a, b = node.inputs
    number, rest = number_of(b, sight), a
    if number is None and node.op_type == "Mul":
        number, rest = number_of(a, sight), b
    if number is None or rest is None or not 0 < number < float("inf"):
        return None
    above = sight.aligned(seen, rest)
    if above is None or sight.shape(rest) != sight.shape(seen.value):
        return None
    return above, number if node.op_type == "Mul" else 1 / number


def _read(
    seen: Seen, rows: tuple[int, Expr], width: Expr, frame: Frame, sight: Sight
) -> tuple[tuple[int | None, ...], Expr] | None:
    """Return which axis is which, and how many heads there are; None where it is no operand."""
    shape = sight.shape(seen.value)
    if shape is None or len(shape) > 4:
        return None
    sizes = (frame.sizes[BATCH], None, rows[1], width)
    last = integer(0) if width.number == 1 else coordinate(SUMMED)
    wanted = (frame.at(BATCH), None, frame.at(rows[0]), last)
    places: dict[int, int] = {}
    heads: Expr = integer(1)
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
    seen: Seen, rows: tuple[int, Expr], width: Expr, frame: Frame, sight: Sight
) -> tuple[tuple[int | None, ...], Expr] | None:
    """Return no axes and how many heads there are, for (B, rows, heads * width)."""
    shape = sight.shape(seen.value)
    if shape is None or len(shape) != 3 or shape[:2] != (frame.sizes[BATCH], rows[1]):
        return None
    both, one = shape[2].number, width.number
    if both is None or not one or both % one or seen.index[0] != frame.at(BATCH):
        return None
    last = integer(0) if one == 1 else coordinate(SUMMED)
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
