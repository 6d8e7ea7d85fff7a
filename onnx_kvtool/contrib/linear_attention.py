"""LinearAttention and GatedDeltaNet."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.contrib.heads import dim_of, known_size, parts
from onnx_kvtool.contrib.recurrence import (
    Heads,
    Rows,
    delta_decay,
    delta_rate,
    recur,
    repeated,
    sequences_of,
    zero_state,
)
from onnx_kvtool.contrib.rule import Site, is_read, no_form, refuse_value
from onnx_kvtool.emit.emitter import Emitter, Refusal, Replacement
from onnx_kvtool.emit.forms import cast, dtype_of, outputs_of, reduce, size
from onnx_kvtool.symbolic.dimensions import dims_of

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
    heads, asking, keyed = _heads(site, query, key, value)
    how = Arranged(site, heads, dim_of(query, 1) == 1)
    op, states = site.op, heads.states
    wide = _scaled(site, cast(site, query, _D.FLOAT), heads)
    decay, rate = gate(site, "decay"), gate(site, "beta")
    if decay is not None:
        one = known_size(decay, 2, f"the width of `{decay.name}`") // states
        decay = how.rows(op("Exp", cast(site, decay, _D.FLOAT), hint="kept"), [states, one, 1])
    if rate is not None:
        own = known_size(rate, 2, f"the width of `{rate.name}`")
        rate = how.rows(cast(site, rate, _D.FLOAT), [own, 1, 1])
    given = site.input("past_state")
    state, read = recur(
        site,
        zero_state(site, query, dim_of(query, 0), heads)
        if given is None
        else cast(site, given, _D.FLOAT),
        how.operands(wide, asking, cast(site, key, _D.FLOAT), keyed, cast(site, value, _D.FLOAT))
        .gated(decay, rate),
        heads,
        is_one=how.is_one,
    )  # fmt: skip
    width = states * heads.queries * heads.value_size
    output = cast(site, how.back(read, [width]), dtype_of(query))
    if not is_read(site, 1):
        return outputs_of(site.node, output, None)
    declared = site.node.outputs[1].dtype if given is None else given.dtype
    return Replacement((output, cast(site, state, declared or dtype_of(query))))


def _scaled(site: Site, query: ir.Value, heads: Heads) -> ir.Value:
    factor = site.attribute("scale") or heads.key_size**-0.5
    assert isinstance(factor, float)
    return query if factor == 1 else site.op("Mul", query, factor, hint="scaled")


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
class Arranged:
    """Tokens, (B, T, ...), arranged as a recurrence takes them.

    Attributes:
        em: Where to build.
        heads: The sizes.
        is_one: Whether there is one token.
        is_packed: Whether the tokens of several sequences are packed: (N, ...).
    """

    em: Emitter
    heads: Heads
    is_one: bool
    is_packed: bool = False

    def rows(self, value: ir.Value, tail: list[int]) -> ir.Value:
        """Return tokens as (T, B, *tail), packed ones as (N, 1, *tail), one as (B, *tail)."""
        op = self.em.op
        if self.is_packed:
            return op("Reshape", value, [0, 1, *tail])
        if self.is_one:
            return op("Reshape", value, [0, *tail])
        apart = op("Reshape", value, [0, 0, *tail])
        order = [1, 0, *range(2, len(tail) + 2)]
        return op("Transpose", apart, perm=order, hint="by_token")

    def operands(
        self, query: ir.Value, asking: int, key: ir.Value, keyed: int, value: ir.Value
    ) -> Rows:
        """Return the operands of tokens, without gates.

        Args:
            query: (B, T, ...).
            asking: Number of heads of `query`.
            key: (B, T, ...).
            keyed: Number of heads of `key`.
            value: (B, T, ...), with a head for each state.
        """
        heads = self.heads
        states, size = heads.states, heads.key_size
        queries = self._repeated(query, asking, states * heads.queries)
        keys = self._repeated(key, keyed, states)
        return Rows(
            self.rows(queries, [states, heads.queries, size]),
            self.rows(keys, [states, 1, size]),
            self.rows(keys, [states, size, 1]),
            self.rows(value, [states, 1, heads.value_size]),
            None,
            None,
        )

    def _repeated(self, rows: ir.Value, have: int, need: int) -> ir.Value:
        if have == need:
            return rows
        lead = [0] if self.is_packed else [0, 0]
        apart = self.em.op("Reshape", rows, [*lead, have, self.heads.key_size])
        return repeated(self.em, apart, have, need // have)

    def back(self, output: ir.Value, tail: list[int]) -> ir.Value:
        """Return the output of a recurrence as (B, T, *tail), or (N, *tail) if packed."""
        op = self.em.op
        lead = [0] if self.is_packed else [0, 1] if self.is_one else [0, 0]
        if not self.is_packed and not self.is_one:
            output = op("Transpose", output, perm=[1, 0, 2, 3, 4], hint="by_sequence")
        return op("Reshape", output, [*lead, *tail])


def _heads(site: Site, query: ir.Value, key: ir.Value, value: ir.Value) -> tuple[Heads, int, int]:
    """Return the sizes, and the numbers of heads of queries and keys.

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
    return Heads(states, max(asking // states, 1), size, widths[2] // states), asking, keyed


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
    net = _Net.of(site)
    heads, op = net.heads, site.op
    how = Arranged(site, heads, net.is_one, net.is_packed)
    query, key, value = net.operands()
    query = _scaled(site, query, heads)
    decay, rate = gate(site, "decay"), gate(site, "beta")
    if decay is not None:
        own = [heads.states, heads.key_size][: len(dims_of(decay) or ()) - net.axes]
        kept = net.by_sequence(op("Exp", delta_decay(site, decay, own), hint="kept"), own)
        decay = how.rows(kept, [heads.states, own[1] if len(own) > 1 else 1, 1])
    if rate is not None:
        rate = how.rows(
            net.by_sequence(delta_rate(site, rate), [heads.states]), [heads.states, 1, 1]
        )
    rows = how.operands(query, net.asking, key, net.asking, value).gated(decay, rate)
    state, read = recur(site, net.state(), rows, heads, is_one=net.is_one, sequence=net.owner)
    output = how.back(read, [heads.states, heads.value_size])
    if net.is_flat:
        output = op("Reshape", output, [-1, heads.states, heads.value_size], hint="flat")
    final = None
    if is_read(site, 1):
        final = op("Transpose", state, perm=[0, 1, 3, 2], hint="final_state")
    dtype = dtype_of(site.required("query"))
    return outputs_of(site.node, cast(site, output, dtype), final, None)


@dataclass(frozen=True, slots=True)
class _Net:
    """The layout of the tokens of a node.

    Attributes:
        site: The node.
        heads: The sizes of states and heads.
        asking: Number of heads of queries and keys.
        axes: Number of axes of the tokens: 1, (N,), or 2, (B, T).
        is_one: Whether each sequence has one token.
        owner: The sequence of each token, (N, 1); None if all sequences have the same length.
    """

    site: Site
    heads: Heads
    asking: int
    axes: int
    is_one: bool
    owner: ir.Value | None

    @classmethod
    def of(cls, site: Site) -> _Net:
        """Read the layout of the tokens.

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
        is_one = (
            count == 1 if axes == 2 else bounds is None and count is not None and count == batch
        )
        owner = None if bounds is None else sequences_of(site, bounds, query).owner
        return cls(site, Heads(states, 1, width, deep), asking, axes, is_one, owner)

    @property
    def is_packed(self) -> bool:
        """Whether sequences of any lengths are packed."""
        return self.owner is not None

    @property
    def is_flat(self) -> bool:
        """Whether sequences of the same length are packed."""
        return self.axes == 1 and self.owner is None

    def operands(self) -> tuple[ir.Value, ir.Value, ir.Value]:
        """Return queries, keys and values, float32, each with an axis of heads, by sequence."""
        em, heads, site = self.site, self.heads, self.site
        query, key, value = site.required("query"), site.input("key"), site.input("value")
        width, deep = self.asking * heads.key_size, heads.states * heads.value_size
        if key is None or value is None:
            query, key, value = parts(em, query, (width, width, deep))
        asked = [self.asking, heads.key_size]
        wide = [
            self._with_heads(cast(em, given, _D.FLOAT), tail)
            for given, tail in zip(
                (query, key, value), (asked, asked, [heads.states, heads.value_size]), strict=True
            )
        ]
        refuse_value(site, "qk_l2_norm", 0, 1)
        if site.integer("qk_l2_norm"):
            wide[:2] = [self._unit(given) for given in wide[:2]]
        one, two, three = wide
        return one, two, three

    def _with_heads(self, value: ir.Value, tail: list[int]) -> ir.Value:
        """Return tokens with an axis of heads."""
        if self.is_flat:
            return self.by_sequence(value, tail)
        if self.site.input("key") is not None:
            return value
        return self.site.op("Reshape", value, [*[0] * self.axes, *tail])

    def _unit(self, value: ir.Value) -> ir.Value:
        op = self.site.op
        square = reduce(self.site, "ReduceSum", op("Mul", value, value, hint="squared"), [-1])
        return op("Div", value, op("Sqrt", op("Add", square, _LEAST_SQUARE)), hint="unit")

    def by_sequence(self, value: ir.Value, tail: list[int]) -> ir.Value:
        """Return (B * T, ...) as (B, T, *tail); other layouts unchanged."""
        if not self.is_flat:
            return value
        em, state = self.site, self.site.required("initial_state")
        batch = dim_of(state, 0)
        if isinstance(batch, int):
            shape = em.constant([batch, -1, *tail], "shape")
        else:
            count = em.op("Reshape", size(em, batch, state, 0), [1])
            shape = em.op("Concat", count, [-1, *tail], axis=0)
        return em.op("Reshape", value, shape, hint="by_sequence")

    def state(self) -> ir.Value:
        """Return the first state: (B, KV, D, E)."""
        given, bounds = self.site.input("initial_state"), self.site.input("cu_seqlens")
        if given is not None:
            return self.site.op("Transpose", given, perm=[0, 1, 3, 2], hint="by_key")
        query = self.site.required("query")
        if bounds is None:
            return zero_state(self.site, query, dim_of(query, 0), self.heads)
        lying = sequences_of(self.site, bounds, query)
        known = dim_of(bounds, 0)
        batch = known - 1 if isinstance(known, int) else None
        return zero_state(self.site, lying.ends, batch, self.heads)


def _unfit(site: Site, what: str) -> Refusal:
    return no_form(f"of `{site.node.op_type}` {what}")
