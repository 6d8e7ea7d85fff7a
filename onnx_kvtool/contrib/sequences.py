"""Sequences of different lengths that lie behind each other, told apart by where each begins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.heads import dim_of
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast, reduce, where
from onnx_kvtool.emit.sizes import positions, size

__all__ = ["Sequences", "sequences_of"]

_I, _B = ir.DataType.INT64, ir.DataType.BOOL
_END = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Sequences:
    """Where B sequences lie among N tokens, int64.

    Attributes:
        em: Where to build.
        count: N: ().
        starts: The first token of each sequence: (B, 1).
        ends: The token behind its last one: (B, 1).
        number: Its number: (B, 1).
        place: The number of each token: (N, 1).
        owner: The sequence of each token: (N, 1).
    """

    em: Emitter
    count: ir.Value
    starts: ir.Value
    ends: ir.Value
    number: ir.Value
    place: ir.Value
    owner: ir.Value

    @property
    def lengths(self) -> ir.Value:
        """How many tokens each sequence has: (B, 1)."""
        return self.em.once(
            ("lengths", self.ends), lambda: self.em.op("Sub", self.ends, self.starts)
        )

    def before(
        self, place: ir.Value, local: ir.Value, owner: ir.Value, rows: int, offsets: np.ndarray
    ) -> ir.Value:
        """Return where rows are that lie before some place of a sequence, its state in front.

        Args:
            place: Numbers of tokens: (X, 1).
            local: How far behind the start of its sequence each is: (X, 1).
            owner: That sequence: (X, 1).
            rows: How many rows of state a sequence has.
            offsets: 0 or less, and no farther than the state reaches: (K,).

        Returns:
            Rows of the tokens with those of all states behind them, (N + B * rows): (X, K).
        """
        op, away = self.em.op, self.em.constant(offsets.reshape(1, -1), "offsets")
        far = op("Add", local, away, hint="local")
        base = op("Mul", owner, self.em.constant(rows, "rows"))
        base = op("Add", op("Add", base, self.em.constant(rows, "rows")), self.count)
        held = op("Add", base, far, hint="held")
        is_before = op("Less", far, self.em.constant(0), dtype=_B)
        return where(self.em, is_before, held, op("Add", place, away), "places")


def sequences_of(em: Emitter, bounds: ir.Value, tokens: ir.Value) -> Sequences:
    """Read where sequences lie; what is the same for all layers is built once.

    Args:
        em: Where to build.
        bounds: 0, and where each sequence ends: (B + 1,). That they do not fit the tokens, which
            onnxruntime refuses, is not looked at.
        tokens: (N, ...).
    """
    count = dim_of(tokens, 0)

    def cut(first: int, last: int) -> ir.Value:
        wide = em.once(("bounds", bounds), lambda: cast(em, bounds, _I))
        where_ = (em.constant(value, "bound") for value in ([first], [last], [0]))
        return em.op("Reshape", em.op("Slice", wide, *where_), em.constant([-1, 1], "column"))

    starts = em.once(("starts", bounds), lambda: cut(0, -1))
    ends = em.once(("ends", bounds), lambda: cut(1, _END))
    place = positions(em, count, tokens, 0, place=0, rank=2)
    known = dim_of(bounds, 0)
    batch = known - 1 if isinstance(known, int) else None
    number = positions(em, batch, ends, 0, place=0, rank=2)

    def owner() -> ir.Value:
        row = em.op("Reshape", ends, em.constant([1, -1], "row"))
        is_over = em.op("Not", em.op("Less", place, row, dtype=_B), dtype=_B)
        return reduce(em, "ReduceSum", cast(em, is_over, _I), [1], hint="owner")

    key = ("owner", bounds, count if count is not None else tokens)
    return Sequences(
        em, size(em, count, tokens, 0), starts, ends, number, place, em.once(key, owner)
    )
