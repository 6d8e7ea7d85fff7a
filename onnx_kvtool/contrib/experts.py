"""The experts of MoE and QMoE: MatMul over all of them, or over those that were chosen."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.expert_weights import Slots
from onnx_kvtool.contrib.gated import Swish
from onnx_kvtool.contrib.heads import dim_of, known_size
from onnx_kvtool.contrib.packed import known_type, reshaped
from onnx_kvtool.contrib.rule import Builder, refuse_input, refuse_value
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast, reduce, unsqueeze, where
from onnx_kvtool.emit.result import Refusal
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["Experts", "number"]

_D = ir.DataType
_GATED = ("swiglu", "geglu")


def number(em: Emitter, value: float, dtype: ir.DataType) -> ir.Value:
    """Return a number of an element type: ()."""
    return em.constant(np.array(value, dtype.numpy()), "number")


@dataclass(frozen=True, slots=True)
class Experts:
    """The sizes of a node: E experts, of which k compute, from H features over I back to H."""

    view: NodeView
    em: Emitter
    experts: int
    inner: int
    hidden: int

    @classmethod
    def of(cls, view: NodeView, em: Emitter) -> Experts:
        """Read the sizes of a node, and refuse what has no standard form.

        Raises:
            Refusal: If it is such, or a size is unknown.
        """
        op_type, kind, fusion = view.node.op_type, _activation(view), view.integer("swiglu_fusion")
        refuse_value(view, "use_sparse_mixer", 0, 1)
        if kind not in ("identity", "relu", "relu2", "gelu", "silu", *_GATED):
            raise Refusal(
                "contrib-form",
                f"`activation_type` of `{op_type}` is `{kind}`, which has no standard form",
            )
        refuse_value(view, "swiglu_fusion", 0, 1, 2)
        if kind == "geglu":
            refuse_value(view, "swiglu_fusion", 1, 2)
        if kind != "swiglu":
            refuse_value(view, "swiglu_limit_after_activation", 0)
        if kind != "swiglu" or fusion:
            refuse_input(view, "fc3_experts_weights", "fc3_experts_bias")
        weights = view.required("fc1_experts_weights")
        experts = known_size(weights, 0, f"the number of experts of `{op_type}`")
        rows = known_size(weights, 1, f"the number of rows of `fc1_experts_weights` of `{op_type}`")
        hidden = known_size(view.required("input"), -1, f"the width of `input` of `{op_type}`")
        routed = dim_of(view.required("router_probs"), 1)
        if isinstance(routed, int) and routed != experts:
            raise Refusal(
                "contrib-form",
                f"`router_probs` of `{op_type}` has {routed} columns, expected one for each of "
                f"{experts} experts",
            )
        if not 1 <= view.integer("k") <= experts:
            raise Refusal(
                "contrib-form",
                f"`k` of `{op_type}` is {view.integer('k')}, expected 1 to {experts}",
            )
        is_fused = kind in _GATED and fusion > 0
        return cls(view, em, experts, rows // 2 if is_fused else rows, hidden)

    def computed(self, indices: ir.Value, gates: ir.Value, least: float) -> ir.Value:
        """Return the sum of what experts compute, weighted, of the shape of the input.

        Args:
            indices: The experts of each token: (T, k).
            gates: Their weights: (T, k), float32.
            least: Up to which weight an expert counts for nothing.
        """
        em, x = self.em, self.view.required("input")
        op, dims = Builder(em, known_type(x)), dims_of(x)
        assert dims is not None
        rows = x if len(dims) == 2 else op("Reshape", x, em.constant([-1, self.hidden], "shape"))
        tokens = prod(d for d in dims[:-1] if isinstance(d, int))
        is_known = all(isinstance(dim, int) for dim in dims[:-1])
        if is_known and tokens * self.view.integer("k") < self.experts:
            total = self._of_chosen(op, rows, indices, gates, (least, tokens))
        else:
            total = self._of_all(op, rows, indices, gates, least)
        if len(dims) == 2:
            return total
        return op("Reshape", total, em.op("Shape", x), hint="mixed")

    def _of_all(
        self, op: Builder, rows: ir.Value, indices: ir.Value, gates: ir.Value, least: float
    ) -> ir.Value:
        """Return (T, H) of all experts with all tokens, which stand in columns."""
        em, router = self.em, self.view.required("router_probs")
        columns = op("Transpose", rows, attributes={"perm": [1, 0]}, hint="columns")
        zero = ir.Tensor(np.zeros(1, np.float32))
        shape = em.op("Shape", router)
        none = em.op("ConstantOfShape", shape, attributes={"value": zero}, dtype=_D.FLOAT)
        spread = Builder(em, _D.FLOAT)(
            "ScatterElements", none, indices, gates, attributes={"axis": 1}, hint="gates"
        )
        turned = Builder(em, _D.FLOAT)("Transpose", spread, attributes={"perm": [1, 0]})
        slots = Slots(self.view, em, self.experts, None, self.experts)
        found = self._weighted(op, slots, columns, unsqueeze(em, turned, [1]), least)
        total = reduce(em, "ReduceSum", found, [0], keepdims=False)
        return op("Transpose", total, attributes={"perm": [1, 0]}, hint="total")

    def _of_chosen(
        self,
        op: Builder,
        rows: ir.Value,
        indices: ir.Value,
        gates: ir.Value,
        limits: tuple[float, int],
    ) -> ir.Value:
        """Return (T, H) of a slot for each token and expert that it chose."""
        em, k, (least, tokens) = self.em, self.view.integer("k"), limits
        count = tokens * k
        chosen = em.op("Reshape", indices, em.constant([count], "shape"), hint="chosen")
        columns = rows
        if tokens > 1 and k > 1:
            places = em.constant(np.repeat(np.arange(tokens), k), "tokens")
            columns = op("Gather", rows, places, hint="tokens")
        shape = (tokens if tokens == 1 else count, self.hidden, 1)
        columns = reshaped(em, columns, shape)
        slots = Slots(self.view, em, self.experts, chosen, count)
        turned = reshaped(em, gates, (count, 1, 1))
        found = self._weighted(op, slots, columns, turned, least)
        apart = reshaped(em, found, (tokens, k, self.hidden))
        return reduce(em, "ReduceSum", apart, [1], keepdims=False)

    def _weighted(
        self, op: Builder, slots: Slots, columns: ir.Value, gates: ir.Value, least: float
    ) -> ir.Value:
        """Return what the expert of each slot computes, times its weight: (slots, H, columns).

        Args:
            op: Builds in the type of the input.
            slots: The experts.
            columns: (H, columns), or for each slot (slots, H, columns).
            gates: (slots, 1, columns), float32.
            least: Up to which weight an expert counts for nothing.
        """
        em = self.em
        inner = self._inner(op, slots, columns)
        found = self._product(op, slots, "fc2", inner, (self.hidden, self.inner))
        weighted = op("Mul", found, cast(em, gates, op.dtype), hint="weighted")
        # An expert that was not chosen may overflow, and nothing times 0 is nothing then.
        counts = em.op("Greater", gates, number(em, least, _D.FLOAT), dtype=_D.BOOL)
        return where(em, counts, weighted, number(em, 0.0, op.dtype), "counted")

    def _product(
        self, op: Builder, slots: Slots, name: str, columns: ir.Value, shape: tuple[int, int]
    ) -> ir.Value:
        found = op("MatMul", slots.weights(name, *shape), columns, hint=name)
        bias = slots.bias(name, shape[0])
        return found if bias is None else op("Add", found, bias, hint=f"{name}_biased")

    def _inner(self, op: Builder, slots: Slots, columns: ir.Value) -> ir.Value:
        """Return the inner features: (slots, I, columns)."""
        kind, fusion = _activation(self.view), self.view.integer("swiglu_fusion")
        inner, hidden, em = self.inner, self.hidden, self.em
        if kind not in _GATED:
            return _activated(op, kind, self._product(op, slots, "fc1", columns, (inner, hidden)))
        if fusion == 0:
            gate = self._product(op, slots, "fc1", columns, (inner, hidden))
            return self._gated(op, gate, self._product(op, slots, "fc3", columns, (inner, hidden)))
        both = self._product(op, slots, "fc1", columns, (2 * inner, hidden))
        if fusion == 2:
            parts = em.multi("Split", both, em.constant([inner, inner], "halves"),
                             attributes={"axis": 1}, dtypes=(op.dtype, op.dtype))  # fmt: skip
            return self._gated(op, parts[0], parts[1])
        gate, linear = (
            op("Slice", both, *(em.constant([at], "bound") for at in (first, 2 * inner, 1, 2)))
            for first in (0, 1)
        )
        return self._gated(op, gate, linear)

    def _gated(self, op: Builder, gate: ir.Value, linear: ir.Value) -> ir.Value:
        """Return SwiGLU or GEGLU of two products of one shape."""
        view = self.view
        if _activation(view) == "geglu":
            return op("Mul", _activated(op, "gelu", gate), linear)
        limit = view.attribute("swiglu_limit")
        swish = Swish(
            view.real("activation_alpha"),
            view.real("activation_beta"),
            limit if isinstance(limit, float) else None,
            is_later=view.integer("swiglu_limit_after_activation") != 0,
        )
        return swish.product(op, gate, linear)


def _activation(view: NodeView) -> str:
    return view.string("activation_type")


def _activated(op: Builder, kind: str, x: ir.Value) -> ir.Value:
    """Return an activation of one value."""
    if kind == "gelu":
        return op("Gelu", x, attributes={"approximate": "tanh"})
    if kind == "silu":
        return op("Mul", x, op("Sigmoid", x))
    if kind == "identity":
        return x
    positive = op("Relu", x)
    return op("Mul", positive, positive) if kind == "relu2" else positive
