"""GatedDeltaNet of `com.microsoft`: the recurrence of LinearAttention, with all that feeds it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.heads import dim_of, known_size, parts
from onnx_kvtool.contrib.linear_attention import Arranged, gate
from onnx_kvtool.contrib.recurrence import Heads, recur, zero_state
from onnx_kvtool.contrib.recurrent_gates import delta_decay, delta_rate
from onnx_kvtool.contrib.rule import Builder, is_read, refuse_value
from onnx_kvtool.contrib.sequences import sequences_of
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast, reduce
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.emit.sizes import size
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["gated_delta_net"]

_D = ir.DataType
_LEAST_SQUARE = 1e-12
"""What the kernel of onnxruntime 1.32 adds to the square of a length."""


def gated_delta_net(view: NodeView, em: Emitter) -> Replacement:
    """Write GatedDeltaNet as what LinearAttention is written as, behind its gates and norms.

    The state, float32, lies value by key, and is turned for the recurrence and back. Tokens of
    sequences of different lengths (`cu_seqlens`) go through one Scan, which takes the state of the
    sequence of each and puts it back; bounds that do not fit the tokens, which onnxruntime refuses,
    are not looked at. Heads are normalized by their length, of which 1e-12 is added to the square.

    Refuses transitions that are captured and read, of which onnxruntime has what reads them on GPUs
    alone.
    """
    if is_read(view, 2):
        raise Refusal(
            "contrib-form",
            "`state_update` of `GatedDeltaNet` is read (`state_update_capacity` is "
            f"`{view.integer('state_update_capacity')}`), which has no standard form",
        )
    net = _Net.of(view, em)
    heads, op, scale = net.heads, Builder(em, _D.FLOAT), view.attribute("scale")
    how = Arranged(em, heads, net.is_one, net.is_packed)
    factor = scale if isinstance(scale, float) and scale else heads.key_size**-0.5
    query, key, value = net.operands()
    if factor != 1:
        query = op("Mul", query, em.constant(np.array(factor, np.float32), "scale"), hint="scaled")
    decay, rate = gate(view, "decay"), gate(view, "beta")
    if decay is not None:
        own = [heads.states, heads.key_size][: len(dims_of(decay) or ()) - net.axes]
        kept = net.by_sequence(op("Exp", delta_decay(view, em, decay, own), hint="kept"), own)
        decay = how.rows(kept, [heads.states, own[1] if len(own) > 1 else 1, 1])
    if rate is not None:
        rate = how.rows(
            net.by_sequence(delta_rate(view, em, rate), [heads.states]), [heads.states, 1, 1]
        )
    rows = how.operands(query, net.asking, key, net.asking, value).gated(decay, rate)
    found = recur(em, net.state(), rows, heads, is_one=net.is_one, sequence=net.owner)
    output = how.back(found.output, [heads.states, heads.value_size])
    if net.is_flat:
        shape = em.constant([-1, heads.states, heads.value_size], "shape")
        output = op("Reshape", output, shape, hint="flat")
    final = None
    if is_read(view, 1):
        final = op("Transpose", found.state, attributes={"perm": [0, 1, 3, 2]}, hint="final_state")
    dtype = view.required("query").dtype or _D.UNDEFINED
    return Replacement((cast(em, output, dtype), final, None)[: len(view.node.outputs)])


@dataclass(frozen=True, slots=True)
class _Net:
    """How the tokens of a node lie.

    Attributes:
        view: The node.
        em: Where to build.
        heads: The sizes of states and heads.
        asking: How many heads queries and keys have.
        axes: How many axes the tokens have: (N,) or (B, T).
        is_one: Whether there is one token of each sequence.
        owner: The sequence of each token, (N, 1); None where all sequences are of one length.
    """

    view: NodeView
    em: Emitter
    heads: Heads
    asking: int
    axes: int
    is_one: bool
    owner: ir.Value | None

    @classmethod
    def of(cls, view: NodeView, em: Emitter) -> _Net:
        """Read how tokens lie, and refuse what does not fit.

        Raises:
            Refusal: If sizes do not fit each other, or one is unknown.
        """
        query, key, value = view.required("query"), view.input("key"), view.input("value")
        bounds, state = view.input("cu_seqlens"), view.input("initial_state")
        rank = len(dims_of(query) or ())
        axes = rank - (1 if key is None else 2)
        if axes not in (1, 2) or (key is None) != (value is None):
            raise _unfit(view, "`query`, `key` and `value` are not of the ranks that it takes")
        if (axes == 2 and bounds is not None) or (axes == 1 and bounds is None and state is None):
            raise _unfit(view, "`cu_seqlens` or `initial_state` does not say where sequences lie")
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
            raise _unfit(view, "`initial_state` is absent, which packed heads need")
        if keyed != (asking, width) or asking < 1 or states % asking:
            raise _unfit(view, f"{asking} heads of queries do not fit those of keys and values")
        count = dim_of(query, 1) if axes == 2 else dim_of(query, 0)
        batch = None if state is None else dim_of(state, 0)
        is_one = (
            count == 1 if axes == 2 else bounds is None and count is not None and count == batch
        )
        owner = None if bounds is None else sequences_of(em, bounds, query).owner
        return cls(view, em, Heads(states, 1, width, deep), asking, axes, is_one, owner)

    @property
    def is_packed(self) -> bool:
        """Whether sequences of any lengths lie behind each other."""
        return self.owner is not None

    @property
    def is_flat(self) -> bool:
        """Whether sequences of one length lie behind each other."""
        return self.axes == 1 and self.owner is None

    def operands(self) -> tuple[ir.Value, ir.Value, ir.Value]:
        """Return queries, keys and values, float32, each with an axis of heads, by sequence."""
        em, heads, view = self.em, self.heads, self.view
        query, key, value = view.required("query"), view.input("key"), view.input("value")
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
        refuse_value(view, "qk_l2_norm", 0, 1)
        if view.integer("qk_l2_norm"):
            wide[:2] = [self._unit(given) for given in wide[:2]]
        one, two, three = wide
        return one, two, three

    def _with_heads(self, value: ir.Value, tail: list[int]) -> ir.Value:
        """Return tokens with an axis of heads."""
        if self.is_flat:
            return self.by_sequence(value, tail)
        if self.view.input("key") is not None:
            return value
        shape = self.em.constant([*[0] * self.axes, *tail], "shape")
        return self.em.op("Reshape", value, shape, dtype=_D.FLOAT)

    def _unit(self, value: ir.Value) -> ir.Value:
        op = Builder(self.em, _D.FLOAT)
        square = reduce(self.em, "ReduceSum", op("Mul", value, value, hint="squared"), [-1])
        least = self.em.constant(np.array(_LEAST_SQUARE, np.float32), "least")
        return op("Div", value, op("Sqrt", op("Add", square, least)), hint="unit")

    def by_sequence(self, value: ir.Value, tail: list[int]) -> ir.Value:
        """Return (B * T, ...) as (B, T, *tail), float32; others as they are."""
        if not self.is_flat:
            return value
        em, state = self.em, self.view.required("initial_state")
        batch = dim_of(state, 0)
        if isinstance(batch, int):
            shape = em.constant([batch, -1, *tail], "shape")
        else:
            count = em.op("Reshape", size(em, batch, state, 0), em.constant([1], "one"))
            rest = em.constant([-1, *tail], "rest")
            shape = em.op("Concat", count, rest, attributes={"axis": 0})
        return em.op("Reshape", value, shape, dtype=_D.FLOAT, hint="by_sequence")

    def state(self) -> ir.Value:
        """Return the first state: (B, KV, D, E)."""
        given, bounds = self.view.input("initial_state"), self.view.input("cu_seqlens")
        if given is not None:
            turned = {"perm": [0, 1, 3, 2]}
            return self.em.op("Transpose", given, attributes=turned, dtype=_D.FLOAT, hint="by_key")
        query = self.view.required("query")
        if bounds is None:
            return zero_state(self.em, query, dim_of(query, 0), self.heads)
        lying = sequences_of(self.em, bounds, query)
        known = dim_of(bounds, 0)
        batch = known - 1 if isinstance(known, int) else None
        return zero_state(self.em, lying.ends, batch, self.heads)


def _unfit(view: NodeView, what: str) -> Refusal:
    return Refusal("contrib-form", f"of `{view.node.op_type}` {what}")
