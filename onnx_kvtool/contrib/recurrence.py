"""A state that each token decays, corrects and is read from: one step, or a Scan of many.

With the state S of a head, (D, E), and for each token a key, a value and queries:

    S = decay * S
    written = rate * (value - key S), or the value itself
    S = S + key^T written
    output = query S
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.rule import Builder
from onnx_kvtool.emit.emitter import AttributeValue, Emitter
from onnx_kvtool.emit.sizes import size
from onnx_kvtool.symbolic.dimensions import Dim

__all__ = ["Heads", "Recurred", "Rows", "recur", "repeated", "zero_state"]

_FLOAT = ir.DataType.FLOAT


@dataclass(frozen=True, slots=True)
class Heads:
    """How many heads there are, and their sizes.

    Attributes:
        states: KV, each with a state of its own.
        queries: G, the queries of each state.
        key_size: D.
        value_size: E.
    """

    states: int
    queries: int
    key_size: int
    value_size: int


@dataclass(frozen=True, slots=True)
class Rows:
    """What tokens bring, float32: (T, B, ...) as a Scan takes them, or of one token (B, ...).

    Attributes:
        query: (..., KV, G, D), scaled.
        key: (..., KV, 1, D).
        column: The key as (..., KV, D, 1).
        value: (..., KV, 1, E).
        decay: Factor of the state, (..., KV, D or 1, 1); None for one that does not decay.
        rate: How much is corrected, (..., KV or 1, 1, 1); None where the value is written as it is.
    """

    query: ir.Value
    key: ir.Value
    column: ir.Value
    value: ir.Value
    decay: ir.Value | None
    rate: ir.Value | None

    def gated(self, decay: ir.Value | None, rate: ir.Value | None) -> Rows:
        """Return these rows with gates."""
        return replace(self, decay=decay, rate=rate)

    def given(self) -> list[ir.Value]:
        """Return those that are there, in order."""
        every = (self.query, self.key, self.column, self.value, self.decay, self.rate)
        return [value for value in every if value is not None]

    def with_given(self, values: Sequence[ir.Value]) -> Rows:
        """Return rows of which those that are there are others."""
        left = iter(values)
        query, key, column, value = (next(left) for _ in range(4))
        decay, rate = (None if v is None else next(left) for v in (self.decay, self.rate))
        return Rows(query, key, column, value, decay, rate)


@dataclass(frozen=True, slots=True)
class Recurred:
    """What became of tokens.

    Attributes:
        state: The last state: (B, KV, D, E).
        output: (T, B, KV, G, E), or of one token (B, KV, G, E).
        written: What was added to the state for the key, (T, B, KV, 1, E) or (B, KV, 1, E); None
            where it was not asked for.
    """

    state: ir.Value
    output: ir.Value
    written: ir.Value | None


def recur(
    em: Emitter,
    state: ir.Value,
    rows: Rows,
    heads: Heads,
    *,
    is_one: bool,
    tells: bool = False,
    sequence: ir.Value | None = None,
) -> Recurred:
    """Update a state by one token, or by each in turn, and read it.

    Args:
        em: Where to build.
        state: (B, KV, D, E), float32.
        rows: What the tokens bring.
        heads: The sizes.
        is_one: Whether there is one token, without an axis of its own.
        tells: Whether what was written is asked for.
        sequence: The sequence of each token, (T, 1), int64, where tokens of several lie behind each
            other: B is 1 in `rows` then.
    """
    if is_one:
        return _step(em, state, rows)
    fresh, parts = em.scope.names.fresh, rows.given()

    def inner(name: str, dtype: ir.DataType, *dims: int | None) -> ir.Value:
        return ir.Value(name=fresh(name), type=ir.TensorType(dtype), shape=ir.Shape(dims))

    sizes = (heads.states, heads.key_size, heads.value_size)
    carried = inner("state", _FLOAT, None, *sizes)
    tokens = [inner("token", _FLOAT, None, None, None, None) for _ in parts]
    place = None if sequence is None else inner("sequence", ir.DataType.INT64, 1)

    def body() -> list[ir.Value]:
        op, at = Builder(em, _FLOAT), rows.with_given(tokens)
        own = carried if place is None else op("Gather", carried, place, hint="own")
        step = _step(em, own, at)
        after = step.state
        if place is not None:
            index = em.op("Reshape", place, em.constant([1, 1], "shape"))
            after = op("ScatterND", carried, index, after)
        if not tells or step.written is None:
            return [after, step.output]
        # tract 0.23.9 gives the rank of a row of the result to whoever reads it in the body.
        return [after, step.output, op("Identity", step.written)]

    taken = [*parts, *([] if sequence is None else [sequence])]
    attributes: dict[str, AttributeValue] = {
        "body": em.nested(
            body, [carried, *tokens, *([] if place is None else [place])], hint="token"
        ),
        "num_scan_inputs": len(taken),
    }
    dtypes = [_FLOAT] * (3 if tells else 2)
    last, output, *written = em.multi("Scan", state, *taken, attributes=attributes, dtypes=dtypes)
    return Recurred(last, output, written[0] if written else None)


def _step(em: Emitter, state: ir.Value, rows: Rows) -> Recurred:
    op, written = Builder(em, _FLOAT), rows.value
    if rows.decay is not None:
        state = op("Mul", state, rows.decay, hint="decayed")
    if rows.rate is not None:
        known = op("MatMul", rows.key, state, hint="retrieved")
        written = op("Mul", rows.rate, op("Sub", written, known), hint="written")
    state = op("Add", state, op("Mul", rows.column, written, hint="outer"), hint="state")
    return Recurred(state, op("MatMul", rows.query, state, hint="read"), written)


def repeated(em: Emitter, rows: ir.Value, heads: int, times: int) -> ir.Value:
    """Return (..., heads, D), float32, with each head so many times in a row."""
    if times == 1:
        return rows
    order = em.constant(np.repeat(np.arange(heads), times), "heads")
    return em.op("Gather", rows, order, attributes={"axis": -2}, dtype=_FLOAT, hint="repeated")


def zero_state(em: Emitter, like: ir.Value, batch: Dim, heads: Heads) -> ir.Value:
    """Return a state of zeros for the batch of a value, which is its first axis."""
    sizes = [heads.states, heads.key_size, heads.value_size]
    if isinstance(batch, int):
        shape = em.constant([batch, *sizes], "shape")
    else:
        count = em.op("Reshape", size(em, batch, like, 0), em.constant([1], "one"))
        shape = em.op("Concat", count, em.constant(sizes, "sizes"), attributes={"axis": 0})
    zero = ir.Tensor(np.zeros(1, np.float32))
    return em.op("ConstantOfShape", shape, attributes={"value": zero}, dtype=_FLOAT, hint="zeros")
