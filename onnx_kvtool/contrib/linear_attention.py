"""LinearAttention of `com.microsoft`, which attends by a state that each token updates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.heads import dim_of, known_size
from onnx_kvtool.contrib.recurrence import Heads, Rows, recur, repeated, zero_state
from onnx_kvtool.contrib.rule import Builder, is_read, refuse_value
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import NodeView

__all__ = ["UPDATE_RULES", "Arranged", "gate", "linear_attention"]

_D = ir.DataType
UPDATE_RULES = ("linear", "gated", "delta", "gated_delta")


def linear_attention(view: NodeView, em: Emitter) -> Replacement:
    """Write LinearAttention as MatMul, Mul, Sub and Add in float32, in a Scan over the tokens.

    Where it is known that there is one token (`--dim`), without a Scan. The state stays an input
    and an output, of its own type. Fewer heads of keys or of queries than states are repeated.
    `chunk_size`, a hint, is left out. Refuses `state_window`, which onnxruntime has on GPUs alone.
    """
    refuse_value(view, "state_window", 0)
    query, key, value = (view.required(name) for name in ("query", "key", "value"))
    heads, asking, keyed = _heads(view, query, key, value)
    how = Arranged(em, heads, dim_of(query, 1) == 1)
    op, scale = Builder(em, _D.FLOAT), view.attribute("scale")
    factor = scale if isinstance(scale, float) and scale else heads.key_size**-0.5
    wide, states = cast(em, query, _D.FLOAT), heads.states
    if factor != 1:
        wide = op("Mul", wide, em.constant(np.array(factor, np.float32), "scale"), hint="scaled")
    decay, rate = gate(view, "decay"), gate(view, "beta")
    if decay is not None:
        one = known_size(decay, 2, f"the width of `{decay.name}`") // states
        decay = how.rows(op("Exp", cast(em, decay, _D.FLOAT), hint="kept"), [states, one, 1])
    if rate is not None:
        own = known_size(rate, 2, f"the width of `{rate.name}`")
        rate = how.rows(cast(em, rate, _D.FLOAT), [own, 1, 1])
    given = view.input("past_state")
    found = recur(
        em,
        zero_state(em, query, dim_of(query, 0), heads)
        if given is None
        else cast(em, given, _D.FLOAT),
        how.operands(wide, asking, cast(em, key, _D.FLOAT), keyed, cast(em, value, _D.FLOAT))
        .gated(decay, rate),
        heads,
        is_one=how.is_one,
    )  # fmt: skip
    width = states * heads.queries * heads.value_size
    output = cast(em, how.back(found.output, [width]), query.dtype or _D.UNDEFINED)
    if not is_read(view, 1):
        return Replacement((output, None)[: len(view.node.outputs)])
    declared = view.node.outputs[1].dtype if given is None else given.dtype
    return Replacement((output, cast(em, found.state, declared or query.dtype or _D.UNDEFINED)))


def gate(view: NodeView, name: str) -> ir.Value | None:
    """Return the input that the rule of a node asks for: `decay` or `beta`; None if it does not.

    Raises:
        Refusal: If the rule is another, or the input is absent.
    """
    refuse_value(view, "update_rule", *UPDATE_RULES)
    rule, given = view.string("update_rule"), view.input(name)
    if ("gated" if name == "decay" else "delta") not in rule:
        return None
    if given is None:
        raise Refusal(
            "contrib-form",
            f"`{name}` of `{view.node.op_type}` is absent, which the rule `{rule}` needs",
        )
    return given


@dataclass(frozen=True, slots=True)
class Arranged:
    """Tokens, (B, T, ...), as a recurrence takes them.

    Attributes:
        em: Where to build.
        heads: The sizes.
        is_one: Whether there is one token.
        is_packed: Whether those of several sequences lie behind each other: (N, ...).
    """

    em: Emitter
    heads: Heads
    is_one: bool
    is_packed: bool = False

    def rows(self, value: ir.Value, tail: list[int]) -> ir.Value:
        """Return tokens, float32, as (T, B, *tail), (N, 1, *tail), or of one as (B, *tail)."""
        op = Builder(self.em, _D.FLOAT)
        if self.is_packed:
            return op("Reshape", value, self.em.constant([0, 1, *tail], "shape"))
        if self.is_one:
            return op("Reshape", value, self.em.constant([0, *tail], "shape"))
        apart = op("Reshape", value, self.em.constant([0, 0, *tail], "shape"))
        order = [1, 0, *range(2, len(tail) + 2)]
        return op("Transpose", apart, attributes={"perm": order}, hint="by_token")

    def operands(
        self, query: ir.Value, asking: int, key: ir.Value, keyed: int, value: ir.Value
    ) -> Rows:
        """Return what tokens bring, without gates, of (B, T, ...) with so many heads each."""
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
        shape = self.em.constant([*lead, have, self.heads.key_size], "shape")
        apart = self.em.op("Reshape", rows, shape, dtype=_D.FLOAT)
        return repeated(self.em, apart, have, need // have)

    def back(self, output: ir.Value, tail: list[int]) -> ir.Value:
        """Return what was read as (B, T, *tail), or (N, *tail), each token KV * G * E elements."""
        op = Builder(self.em, _D.FLOAT)
        lead = [0] if self.is_packed else [0, 1] if self.is_one else [0, 0]
        if not self.is_packed and not self.is_one:
            order = {"perm": [1, 0, 2, 3, 4]}
            output = op("Transpose", output, attributes=order, hint="by_sequence")
        return op("Reshape", output, self.em.constant([*lead, *tail], "shape"))


def _heads(
    view: NodeView, query: ir.Value, key: ir.Value, value: ir.Value
) -> tuple[Heads, int, int]:
    """Return the sizes, and how many heads queries and keys have.

    Raises:
        Refusal: If a width is unknown, or does not fit the heads.
    """
    asking, states = view.integer("q_num_heads"), view.integer("kv_num_heads")
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
        raise Refusal(
            "contrib-form",
            f"`LinearAttention` has `q_num_heads` {asking} and `kv_num_heads` {states} for widths "
            f"of {widths[0]}, {widths[1]} and {widths[2]}, which do not fit each other",
        )
    return Heads(states, max(asking // states, 1), size, widths[2] // states), asking, keyed
