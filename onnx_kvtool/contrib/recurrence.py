"""Recurrences over tokens: the loop, its gates, and sequences of different lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.heads import known_size
from onnx_kvtool.contrib.rule import Site, is_read, no_form, refuse_value
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
from onnx_kvtool.symbolic.dimensions import Dim, dim_of, dims_of

# A state that each token decays, corrects and reads: one step, or a Scan over several.
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
    """The KV states, each with G query heads, and the sizes of a head: D of keys, E of values."""

    states: int
    queries: int
    key_size: int
    value_size: int


class Rows(NamedTuple):
    """The operands of tokens, float32: (T, B, ...) as a Scan takes them, or (B, ...) of one token.

    Attributes:
        query: (..., KV, G, D), scaled.
        key: (..., KV, 1, D).
        column: The key as (..., KV, D, 1).
        value: (..., KV, 1, E).
        decay: Factor of the state, (..., KV, D or 1, 1); None for one that does not decay.
        rate: Share of the correction, (..., KV or 1, 1, 1); None to write the value unchanged.
    """

    query: ir.Value
    key: ir.Value
    column: ir.Value
    value: ir.Value
    decay: ir.Value | None
    rate: ir.Value | None


def recur(
    em: Emitter,
    state: ir.Value,
    rows: Rows,
    heads: Heads,
    *,
    is_one: bool,
    sequence: ir.Value | None = None,
) -> tuple[ir.Value, ...]:
    """Update a state by one token, or by each in turn, and read it.

    Args:
        em: Where to build.
        state: (B, KV, D, E), float32.
        rows: The operands of the tokens.
        heads: The sizes.
        is_one: Whether there is one token, without an axis of its own.
        sequence: The sequence of each token, (T, 1), int64, if several sequences are packed: B is 1
            in `rows` then.

    Returns:
        The last state, (B, KV, D, E), and the output, (T, B, KV, G, E), or (B, KV, G, E) of one
        token.
    """
    if is_one:
        return _step(em, state, rows)
    given = {name: value for name, value in rows._asdict().items() if value is not None}
    sizes = (None, heads.states, heads.key_size, heads.value_size)
    carried = formal(em, "state", _FLOAT, sizes)
    tokens = [formal(em, "token", _FLOAT, [None] * 4) for _ in given]
    place = None if sequence is None else formal(em, "sequence", ir.DataType.INT64, [1])

    def body() -> list[ir.Value]:
        own = carried if place is None else em.op("Gather", carried, place, hint="own")
        at = rows._replace(**dict(zip(given, tokens, strict=True)))
        after, output = _step(em, own, at)
        if place is not None:
            after = em.op("ScatterND", carried, em.op("Reshape", place, [1, 1]), after)
        return [after, output]

    taken = [*given.values(), *([] if sequence is None else [sequence])]
    inner = em.nested(body, [carried, *tokens, *([] if place is None else [place])], hint="token")
    return em.multi("Scan", state, *taken, body=inner, num_scan_inputs=len(taken), count=2)


def _step(em: Emitter, state: ir.Value, rows: Rows) -> tuple[ir.Value, ir.Value]:
    op, written = em.op, rows.value
    if rows.decay is not None:
        state = op("Mul", state, rows.decay, hint="decayed")
    if rows.rate is not None:
        known = op("MatMul", rows.key, state, hint="retrieved")
        written = op("Mul", rows.rate, op("Sub", written, known), hint="written")
    state = op("Add", state, op("Mul", rows.column, written, hint="outer"), hint="state")
    return state, op("MatMul", rows.query, state, hint="read")


def shape_for(em: Emitter, batch: Dim, like: ir.Value, tail: Sequence[int]) -> ir.Value:
    """Return the shape (B, *tail), int64; B is the first axis of `like`."""
    if isinstance(batch, int):
        return em.constant([batch, *tail], "shape")
    count = em.op("Reshape", size(em, like, 0, batch), [1])
    return em.op("Concat", count, tail, axis=0)


def zero_state(em: Emitter, like: ir.Value, batch: Dim, heads: Heads) -> ir.Value:
    """Return a state of zeros for the batch, the first axis of `like`."""
    shape = shape_for(em, batch, like, [heads.states, heads.key_size, heads.value_size])
    zero = ir.Tensor(np.zeros(1, np.float32))
    return em.op("ConstantOfShape", shape, value=zero, hint="zeros")


# The gates of a recurrence: LinearAttentionGate of `com.microsoft`, and those of GatedDeltaNet.


def linear_attention_gate(site: Site) -> Replacement:
    """Write LinearAttentionGate as Add, Softplus and Mul, and as Sigmoid, in float32."""
    a, b, op = site.required("a"), site.input("b"), site.op
    bias, factor = (  # one number per head: onnxruntime accepts any shape of so many elements
        x if len(dims_of(x) or ()) == 1 else op("Reshape", x, [-1])
        for x in site.operands("dt_bias", "decay_scale")
    )
    rate = op("Softplus", op("Add", cast(site, a, _FLOAT), bias, hint="biased"))
    decay = cast(site, op("Mul", rate, factor, hint="decay"), dtype_of(a))
    if not is_read(site, 1):
        return outputs_of(site.node, decay, None)
    if b is None:
        raise no_form(
            "`beta` of `LinearAttentionGate` is read, which needs its input `b`, which is absent"
        )
    beta = op("Sigmoid", cast(site, b, _FLOAT), hint="beta")
    return Replacement((decay, cast(site, beta, dtype_of(b))))


def delta_decay(site: Site, decay: ir.Value, tail: list[int]) -> ir.Value:
    """Return the logarithm of the decay of the state of a GatedDeltaNet, float32.

    Args:
        site: The node.
        decay: (..., KV) or (..., KV, D).
        tail: The sizes after those of the tokens: KV, or KV and D.

    Raises:
        Refusal: If the activation is unknown, or `a_log` or `dt_bias` absent.
    """
    how = site.string("gate_activation")
    refuse_value(site, "gate_activation", "none", "softplus", "qwen", "sigmoid", "kda")
    wide, op = cast(site, decay, _FLOAT), site.op
    if how == "none":
        return wide
    power, bias = site.input("a_log"), site.input("dt_bias")
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
    bound = site.real("gate_lower_bound")
    return op("Mul", op("Sigmoid", op("Mul", biased, factor)), bound, hint="decay")


# Packed sequences of different lengths, with the bounds of each.


_I = ir.DataType.INT64
_END = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Sequences:
    """The places of B packed sequences among N tokens, int64.

    Attributes:
        count: N: ().
        starts: The first token of each sequence: (B, 1).
        ends: The token after its last one: (B, 1).
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
        """The number of tokens of each sequence: (B, 1)."""
        return self.em.op("Sub", self.ends, self.starts)

    def before(
        self, place: ir.Value, local: ir.Value, owner: ir.Value, rows: int, offsets: np.ndarray
    ) -> ir.Value:
        """Return the rows before some tokens of sequences, each with its state in front.

        Args:
            place: Numbers of tokens: (X, 1).
            local: Distance of each from the start of its sequence: (X, 1).
            owner: That sequence: (X, 1).
            rows: Number of rows of state that a sequence has.
            offsets: Which rows before each token, 0 or less, at most back to the state: (K,).

        Returns:
            Indices, (X, K), into the tokens followed by the rows of all states, (N + B * rows).
        """
        op, away = self.em.op, offsets.reshape(1, -1)
        far = op("Add", local, away, hint="local")
        base = op("Add", op("Add", op("Mul", owner, rows), rows), self.count)
        in_state = op("Add", base, far, hint="in_state")
        is_before = op("Less", far, 0)
        return where(self.em, is_before, in_state, op("Add", place, away), "places")


def sequences_of(em: Emitter, bounds: ir.Value, tokens: ir.Value) -> Sequences:
    """Return the places of packed sequences; all layers share the nodes.

    `bounds` is 0, and the end of each sequence: (B + 1,). Nothing checks that they fit the tokens,
    (N, ...); onnxruntime refuses others.
    """
    em = em.sharing
    wide, known = cast(em, bounds, _I), dim_of(bounds, 0)
    starts, ends = (
        em.op("Reshape", em.op("Slice", wide, [first], [last], [0]), [-1, 1])
        for first, last in ((0, -1), (1, _END))
    )
    place = positions(em, tokens, 0, place=0, rank=2)
    batch = known - 1 if isinstance(known, int) else None
    number = positions(em, ends, 0, place=0, rank=2, dim=batch)
    is_over = em.op("Not", em.op("Less", place, em.op("Reshape", ends, [1, -1])))
    owner = reduce(em, "ReduceSum", cast(em, is_over, _I), [1], hint="owner")
    return Sequences(em, size(em, tokens, 0), starts, ends, number, place, owner)
