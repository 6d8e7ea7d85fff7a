"""Recurrences over tokens: the loop, its gates, where sequences begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.heads import dim_of, known_size
from onnx_kvtool.contrib.rule import is_read, no_form, refuse_value
from onnx_kvtool.emit.emitter import Emitter, Replacement
from onnx_kvtool.emit.forms import (
    cast,
    dtype_of,
    formal,
    outputs_of,
    positions,
    reduce,
    size,
    where,
)
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.symbolic.dimensions import Dim, dims_of

# A state that each token decays, corrects and is read from: one step, or a Scan of many.
#
# With the state S of a head, (D, E), and for each token a key, a value and queries:
#
#     S = decay * S
#     written = rate * (value - key S), or the value itself
#     S = S + key^T written
#     output = query S


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
        """Return rows with those that are given replaced."""
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
    """

    state: ir.Value
    output: ir.Value


def recur(
    em: Emitter,
    state: ir.Value,
    rows: Rows,
    heads: Heads,
    *,
    is_one: bool,
    sequence: ir.Value | None = None,
) -> Recurred:
    """Update a state by one token, or by each in turn, and read it.

    Args:
        em: Where to build.
        state: (B, KV, D, E), float32.
        rows: What the tokens bring.
        heads: The sizes.
        is_one: Whether there is one token, without an axis of its own.
        sequence: The sequence of each token, (T, 1), int64, where tokens of several lie behind each
            other: B is 1 in `rows` then.
    """
    if is_one:
        return _step(em, state, rows)
    parts, sizes = rows.given(), (None, heads.states, heads.key_size, heads.value_size)
    carried = formal(em, "state", _FLOAT, sizes)
    tokens = [formal(em, "token", _FLOAT, [None] * 4) for _ in parts]
    place = None if sequence is None else formal(em, "sequence", ir.DataType.INT64, [1])

    def body() -> list[ir.Value]:
        op, at = em.op, rows.with_given(tokens)
        own = carried if place is None else op("Gather", carried, place, hint="own")
        step = _step(em, own, at)
        after = step.state
        if place is not None:
            index = em.op("Reshape", place, [1, 1])
            after = op("ScatterND", carried, index, after)
        return [after, step.output]

    taken = [*parts, *([] if sequence is None else [sequence])]
    inner = em.nested(body, [carried, *tokens, *([] if place is None else [place])], hint="token")
    scanned = em.multi("Scan", state, *taken, body=inner, num_scan_inputs=len(taken), count=2)
    return Recurred(*scanned)


def _step(em: Emitter, state: ir.Value, rows: Rows) -> Recurred:
    op, written = em.op, rows.value
    if rows.decay is not None:
        state = op("Mul", state, rows.decay, hint="decayed")
    if rows.rate is not None:
        known = op("MatMul", rows.key, state, hint="retrieved")
        written = op("Mul", rows.rate, op("Sub", written, known), hint="written")
    state = op("Add", state, op("Mul", rows.column, written, hint="outer"), hint="state")
    return Recurred(state, op("MatMul", rows.query, state, hint="read"))


def repeated(em: Emitter, rows: ir.Value, heads: int, times: int) -> ir.Value:
    """Return (..., heads, D), float32, with each head so many times in a row."""
    if times == 1:
        return rows
    return em.op("Gather", rows, np.repeat(np.arange(heads), times), axis=-2, hint="repeated")


def zero_state(em: Emitter, like: ir.Value, batch: Dim, heads: Heads) -> ir.Value:
    """Return a state of zeros for the batch of a value, which is its first axis."""
    sizes = [heads.states, heads.key_size, heads.value_size]
    if isinstance(batch, int):
        shape = em.constant([batch, *sizes], "shape")
    else:
        count = em.op("Reshape", size(em, batch, like, 0), [1])
        shape = em.op("Concat", count, sizes, axis=0)
    zero = ir.Tensor(np.zeros(1, np.float32))
    return em.op("ConstantOfShape", shape, value=zero, hint="zeros")


# What gates a recurrence: LinearAttentionGate of `com.microsoft`, and the like inside others.


def linear_attention_gate(view: NodeView, em: Emitter) -> Replacement:
    """Write LinearAttentionGate as Add, Softplus and Mul, and as Sigmoid, in float32."""
    a, b, op = view.required("a"), view.input("b"), em.op
    bias, factor = (_by_head(em, view.required(name)) for name in ("dt_bias", "decay_scale"))
    rate = op("Softplus", op("Add", cast(em, a, _FLOAT), bias, hint="biased"))
    decay = cast(em, op("Mul", rate, factor, hint="decay"), dtype_of(a))
    if not is_read(view, 1):
        return outputs_of(view.node, decay, None)
    if b is None:
        raise no_form(
            "`beta` of `LinearAttentionGate` is read, which needs its input `b`, which is absent"
        )
    beta = op("Sigmoid", cast(em, b, _FLOAT), hint="beta")
    return Replacement((decay, cast(em, beta, dtype_of(b))))


def _by_head(em: Emitter, given: ir.Value) -> ir.Value:
    """Return a number for each head as a vector; onnxruntime counts elements, and no axes."""
    dims = dims_of(given)
    if dims is not None and len(dims) == 1:
        return given
    return em.op("Reshape", given, [-1])


def delta_decay(view: NodeView, em: Emitter, decay: ir.Value, tail: list[int]) -> ir.Value:
    """Return the logarithm of the decay of the state of a GatedDeltaNet, float32.

    Args:
        view: The node.
        em: Where to build.
        decay: (..., KV) or (..., KV, D).
        tail: What comes behind the tokens: KV, or KV and D.

    Raises:
        Refusal: If the activation is unknown, or `a_log` or `dt_bias` absent.
    """
    how = view.string("gate_activation")
    refuse_value(view, "gate_activation", "none", "softplus", "qwen", "sigmoid", "kda")
    wide, op = cast(em, decay, _FLOAT), em.op
    if how == "none":
        return wide
    power, bias = view.input("a_log"), view.input("dt_bias")
    if power is None or bias is None:
        name = "a_log" if power is None else "dt_bias"
        raise no_form(f"`{name}` of `GatedDeltaNet` is absent, which `{how}` needs")
    own = known_size(bias, 0, "the size of `dt_bias`")
    if len(dims_of(bias) or ()) > 1 or own != tail[0]:
        bias = op("Reshape", bias, tail, hint="bias")
    elif len(tail) > 1:
        bias = op("Reshape", bias, [-1, 1], hint="bias")
    factor = op("Exp", power)
    if len(tail) > 1:
        factor = op("Reshape", factor, [-1, 1], hint="factor")
    biased = op("Add", wide, bias, hint="biased")
    if how in ("softplus", "qwen"):
        return op("Mul", op("Neg", factor), op("Softplus", biased), hint="decay")
    bound = view.real("gate_lower_bound")
    return op("Mul", op("Sigmoid", op("Mul", biased, factor)), bound, hint="decay")


def delta_rate(view: NodeView, em: Emitter, beta: ir.Value) -> ir.Value:
    """Return how much a GatedDeltaNet writes of a difference, float32: (..., KV)."""
    refuse_value(view, "beta_activation", "none", "sigmoid")
    wide = cast(em, beta, _FLOAT)
    if view.string("beta_activation") == "none":
        return wide
    return em.op("Sigmoid", wide, hint="beta")


# Sequences of different lengths that lie behind each other, told apart by where each begins.


_I = ir.DataType.INT64
_B = ir.DataType.BOOL
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
        base = op("Mul", owner, rows)
        base = op("Add", op("Add", base, rows), self.count)
        held = op("Add", base, far, hint="held")
        is_before = op("Less", far, 0, dtype=_B)
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
        return em.op("Reshape", em.op("Slice", wide, *where_), [-1, 1])

    starts = em.once(("starts", bounds), lambda: cut(0, -1))
    ends = em.once(("ends", bounds), lambda: cut(1, _END))
    place = positions(em, count, tokens, 0, place=0, rank=2)
    known = dim_of(bounds, 0)
    batch = known - 1 if isinstance(known, int) else None
    number = positions(em, batch, ends, 0, place=0, rank=2)

    def owner() -> ir.Value:
        row = em.op("Reshape", ends, [1, -1])
        is_over = em.op("Not", em.op("Less", place, row))
        return reduce(em, "ReduceSum", cast(em, is_over, _I), [1], hint="owner")

    key = ("owner", bounds, count if count is not None else tokens)
    return Sequences(
        em, size(em, count, tokens, 0), starts, ends, number, place, em.once(key, owner)
    )
