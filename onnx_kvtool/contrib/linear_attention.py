"""LinearAttention and GatedDeltaNet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.heads import known_size, parts
from onnx_kvtool.contrib.recurrence import (
    Heads,
    Rows,
    delta_decay,
    recur,
    sequences_of,
    shape_for,
    zero_state,
)
from onnx_kvtool.contrib.rule import Site, is_read, no_form, refuse_value
from onnx_kvtool.emit.emitter import Refusal, Replacement
from onnx_kvtool.emit.forms import cast, dtype_of, outputs_of, reduce
from onnx_kvtool.symbolic.dimensions import dim_of, dims_of

# LinearAttention of `com.microsoft`: attention through a state that each token updates.


_D = ir.DataType


def linear_attention(site: Site) -> Replacement:
    """Write LinearAttention as MatMul, Mul, Sub and Add in float32, in a Scan over the tokens.

    A single token, if that is known (`--dim`), needs no Scan. The state stays an input and an
    output, of its own type. If there are fewer heads of keys or queries than states, they are
    repeated. `chunk_size`, a hint, is dropped. Refuses `state_window`, which onnxruntime supports
    on GPUs only.
    """
    refuse_value(site, "state_window", 0)
    query, key, value = site.operands("query", "key", "value")
    tokens, op = _joined(site, query, key, value), site.op
    heads, given = tokens.heads, site.input("past_state")
    wide = [cast(site, x, _D.FLOAT) for x in (query, key, value)]
    decay, rate = gate(site, "decay"), gate(site, "beta")
    if decay is not None:
        one = known_size(decay, 2, f"the width of `{decay.name}`") // heads.states
        kept = op("Exp", cast(site, decay, _D.FLOAT), hint="kept")
        decay = tokens.rows(kept, [heads.states, one, 1])
    if rate is not None:
        own = known_size(rate, 2, f"the width of `{rate.name}`")
        rate = tokens.rows(cast(site, rate, _D.FLOAT), [own, 1, 1])
    if given is None:
        start = zero_state(site, query, dim_of(query, 0), heads)
    else:
        start = cast(site, given, _D.FLOAT)
    state, read = tokens.recur(start, wide, decay, rate)
    output = tokens.back(read, [heads.states * heads.queries * heads.value_size])
    output = cast(site, output, dtype_of(query))
    if not is_read(site, 1):
        return outputs_of(site.node, output, None)
    declared = site.node.outputs[1].dtype if given is None else given.dtype
    return Replacement((output, cast(site, state, declared or dtype_of(query))))


def gate(site: Site, name: str) -> ir.Value | None:
    """Return an input, `decay` or `beta`, if the update rule of the node needs it; else None.

    Raises:
        Refusal: If the rule is unknown, or the input is absent.
    """
    refuse_value(site, "update_rule", "linear", "gated", "delta", "gated_delta")
    rule, given = site.string("update_rule"), site.input(name)
    if ("gated" if name == "decay" else "delta") not in rule:
        return None
    if given is None:
        raise no_form(f"`{name}` of `{site.node.op_type}` is absent, which the rule `{rule}` needs")
    return given


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The layout of the tokens of a node: (B, T, ...), or (N, ...).

    Attributes:
        asking: Number of heads of queries.
        keyed: Number of heads of keys.
        axes: Number of axes of the tokens.
        owner: The sequence of each token, (N, 1); None if all sequences have the same length.
    """

    site: Site
    heads: Heads
    asking: int
    keyed: int
    is_one: bool
    axes: int = 2
    owner: ir.Value | None = None

    @property
    def is_flat(self) -> bool:
        """Whether sequences of the same length are packed."""
        return self.axes == 1 and self.owner is None

    def rows(self, value: ir.Value, tail: list[int]) -> ir.Value:
        """Return tokens as (T, B, *tail), packed ones as (N, 1, *tail), one as (B, *tail)."""
        lead = [0, 1] if self.owner is not None else [0] if self.is_one else [0, 0]
        apart = self.site.op("Reshape", value, [*lead, *tail])
        if lead != [0, 0]:
            return apart
        order = [1, 0, *range(2, len(tail) + 2)]
        return self.site.op("Transpose", apart, perm=order, hint="by_token")

    def recur(
        self,
        state: ir.Value,
        operands: Sequence[ir.Value],
        decay: ir.Value | None,
        rate: ir.Value | None,
    ) -> tuple[ir.Value, ...]:
        """Return the last state, and the output of a recurrence.

        `operands` are queries, not yet scaled, keys, and values with a head for each state. `decay`
        and `rate` are as in `Rows`.
        """
        heads, (query, key, value) = self.heads, operands
        states, size = heads.states, heads.key_size
        factor = self.site.real_or_none("scale") or size**-0.5
        if factor != 1:
            query = self.site.op("Mul", query, factor, hint="scaled")
        query = self._repeated(query, self.asking, states * heads.queries)
        key = self._repeated(key, self.keyed, states)
        rows = Rows(
            self.rows(query, [states, heads.queries, size]),
            self.rows(key, [states, 1, size]),
            self.rows(key, [states, size, 1]),
            self.rows(value, [states, 1, heads.value_size]),
            decay,
            rate,
        )
        return recur(self.site, state, rows, heads, is_one=self.is_one, sequence=self.owner)

    def _repeated(self, rows: ir.Value, have: int, need: int) -> ir.Value:
        """Return rows with each head repeated."""
        if have == need:
            return rows
        lead = [0, 0] if self.owner is None else [0]
        apart = self.site.op("Reshape", rows, [*lead, have, self.heads.key_size])
        owners = np.repeat(np.arange(have), need // have)
        return self.site.op("Gather", apart, owners, axis=-2, hint="repeated")

    def back(self, output: ir.Value, tail: list[int]) -> ir.Value:
        """Return the output of a recurrence as (B, T, *tail), or (N, *tail) if packed."""
        op = self.site.op
        if self.owner is not None:
            return op("Reshape", output, [0, *tail])
        if self.is_one:
            return op("Reshape", output, [0, 1, *tail])
        turned = op("Transpose", output, perm=[1, 0, 2, 3, 4], hint="by_sequence")
        return op("Reshape", turned, [0, 0, *tail])

    def by_sequence(self, value: ir.Value, tail: list[int]) -> ir.Value:
        """Return (B * T, ...) as (B, T, *tail); other layouts unchanged."""
        if not self.is_flat:
            return value
        state = self.site.required("initial_state")
        shape = shape_for(self.site, dim_of(state, 0), state, [-1, *tail])
        return self.site.op("Reshape", value, shape, hint="by_sequence")


def _joined(site: Site, query: ir.Value, key: ir.Value, value: ir.Value) -> _Tokens:
    """Return the layout of tokens whose heads are joined.

    Raises:
        Refusal: If a width is unknown, or does not fit the heads.
    """
    asking, states = site.integer("q_num_heads"), site.integer("kv_num_heads")
    widths = [known_size(given, 2, f"the width of `{given.name}`") for given in (query, key, value)]
    size = widths[0] // asking if asking > 0 else 0
    keyed = widths[1] // size if size else 0
    if (
        not keyed
        or states < 1
        or widths != [asking * size, keyed * size, widths[2] // states * states]
        or max(asking, states) % min(asking, states)
        or states % keyed
    ):
        raise no_form(
            f"`LinearAttention` has `q_num_heads` {asking} and `kv_num_heads` {states} for widths "
            f"of {widths[0]}, {widths[1]} and {widths[2]}, which do not fit each other"
        )
    heads = Heads(states, max(asking // states, 1), size, widths[2] // states)
    return _Tokens(site, heads, asking, keyed, dim_of(query, 1) == 1)


# GatedDeltaNet of `com.microsoft`: the recurrence of LinearAttention, with its gates and norms.


_LEAST_SQUARE = 1e-12
"""The kernel of onnxruntime 1.32 adds this to the square of the norm of a head."""


def gated_delta_net(site: Site) -> Replacement:
    """Write GatedDeltaNet as its gates and norms, and the form of LinearAttention.

    The state, float32, is stored value by key, and is transposed for the recurrence and back.
    Tokens of packed sequences (`cu_seqlens`) go through one Scan, which takes the state of the
    token's sequence and puts it back; nothing checks that the bounds fit the tokens. Heads are
    divided by their norm; 1e-12 is added to its square.

    Refuses transitions that are captured and read: onnxruntime reads them on GPUs only.
    """
    if is_read(site, 2):
        raise no_form(
            "`state_update` of `GatedDeltaNet` is read (`state_update_capacity` is "
            f"`{site.integer('state_update_capacity')}`), which has no standard form"
        )
    refuse_value(site, "qk_l2_norm", 0, 1)
    tokens, op = _packed(site), site.op
    heads = tokens.heads
    operands = _operands(tokens)
    decay, rate = gate(site, "decay"), gate(site, "beta")
    if decay is not None:
        own = [heads.states, heads.key_size][: len(dims_of(decay) or ()) - tokens.axes]
        kept = op("Exp", delta_decay(site, decay, own), hint="kept")
        tail = [heads.states, own[1] if len(own) > 1 else 1, 1]
        decay = tokens.rows(tokens.by_sequence(kept, own), tail)
    if rate is not None:
        refuse_value(site, "beta_activation", "none", "sigmoid")
        rate = cast(site, rate, _D.FLOAT)
        if site.string("beta_activation") != "none":
            rate = op("Sigmoid", rate, hint="beta")
        rate = tokens.by_sequence(rate, [heads.states])
        rate = tokens.rows(rate, [heads.states, 1, 1])
    state, read = tokens.recur(_first_state(tokens), operands, decay, rate)
    output = tokens.back(read, [heads.states, heads.value_size])
    if tokens.is_flat:
        output = op("Reshape", output, [-1, heads.states, heads.value_size], hint="flat")
    final = None
    if is_read(site, 1):
        final = op("Transpose", state, perm=[0, 1, 3, 2], hint="final_state")
    output = cast(site, output, dtype_of(site.required("query")))
    return outputs_of(site.node, output, final, None)


def _packed(site: Site) -> _Tokens:
    """Return the layout of the tokens of a GatedDeltaNet.

    Raises:
        Refusal: If sizes do not fit each other, or one is unknown.
    """
    query, key, value = site.required("query"), site.input("key"), site.input("value")
    bounds, state = site.input("cu_seqlens"), site.input("initial_state")
    rank = len(dims_of(query) or ())
    axes = rank - (1 if key is None else 2)
    if axes not in (1, 2) or (key is None) != (value is None):
        raise _unfit(site, "`query`, `key` and `value` are not of the ranks that it takes")
    if (axes == 2 and bounds is not None) or (axes == 1 and bounds is None and state is None):
        raise _unfit(site, "`cu_seqlens` or `initial_state` does not say where sequences lie")
    if value is not None and key is not None:
        what = "a size of `query`, `key` or `value`"
        asking, width = (known_size(query, axis, what) for axis in (-2, -1))
        states, deep = (known_size(value, axis, what) for axis in (-2, -1))
        keyed = tuple(known_size(key, axis, what) for axis in (-2, -1))
    elif state is not None:
        what = "a size of `initial_state` or `query`"
        states, deep, width = (known_size(state, axis, what) for axis in (1, 2, 3))
        asking = (known_size(query, -1, what) - states * deep) // max(2 * width, 1)
        keyed = (asking, width)
    else:
        raise _unfit(site, "`initial_state` is absent, which packed heads need")
    if keyed != (asking, width) or asking < 1 or states % asking:
        raise _unfit(site, f"{asking} heads of queries do not fit those of keys and values")
    count = dim_of(query, 1) if axes == 2 else dim_of(query, 0)
    batch = None if state is None else dim_of(state, 0)
    is_one = count == 1 if axes == 2 else bounds is None and count is not None and count == batch
    owner = None if bounds is None else sequences_of(site, bounds, query).owner
    return _Tokens(site, Heads(states, 1, width, deep), asking, asking, is_one, axes, owner)


def _operands(tokens: _Tokens) -> list[ir.Value]:
    """Return queries, keys and values, float32, each with an axis of heads, by sequence."""
    site, heads, op = tokens.site, tokens.heads, tokens.site.op
    query, key, value = site.required("query"), site.input("key"), site.input("value")
    is_apart = key is not None
    width, deep = tokens.asking * heads.key_size, heads.states * heads.value_size
    if key is None or value is None:
        query, key, value = parts(site, query, (width, width, deep))
    found = []
    asked, own = [tokens.asking, heads.key_size], [heads.states, heads.value_size]
    for x, tail in ((query, asked), (key, asked), (value, own)):
        rows = tokens.by_sequence(cast(site, x, _D.FLOAT), tail)
        if not tokens.is_flat and not is_apart:
            rows = op("Reshape", rows, [*[0] * tokens.axes, *tail])
        if tail is asked and site.integer("qk_l2_norm"):
            square = reduce(site, "ReduceSum", op("Mul", rows, rows, hint="squared"), [-1])
            norm = op("Sqrt", op("Add", square, _LEAST_SQUARE))
            rows = op("Div", rows, norm, hint="unit")
        found.append(rows)
    return found


def _first_state(tokens: _Tokens) -> ir.Value:
    """Return the first state: (B, KV, D, E)."""
    site, query = tokens.site, tokens.site.required("query")
    given, bounds = site.input("initial_state"), site.input("cu_seqlens")
    if given is not None:
        return site.op("Transpose", given, perm=[0, 1, 3, 2], hint="by_key")
    if bounds is None:
        return zero_state(site, query, dim_of(query, 0), tokens.heads)
    known = dim_of(bounds, 0)
    batch = known - 1 if isinstance(known, int) else None
    return zero_state(site, sequences_of(site, bounds, query).ends, batch, tokens.heads)


def _unfit(site: Site, what: str) -> Refusal:
    return no_form(f"of `{site.node.op_type}` {what}")
