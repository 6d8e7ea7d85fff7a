"""MoE and QMoE of `com.microsoft`: which experts a token chooses, and how they are weighted."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.expert_weights import width_of
from onnx_kvtool.contrib.experts import Experts, number
from onnx_kvtool.contrib.rule import Builder, only, refuse_input, refuse_value
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast, reduce, where
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import NodeView

__all__ = ["mixture_of_experts", "quantized_mixture_of_experts"]

_D = ir.DataType
_ELSEWHERE = tuple(f"fc{n}_{what}" for n in (1, 2) for what in (
    "global_scale", "act_scale", "act_block_scale"
))  # fmt: skip


def mixture_of_experts(view: NodeView, em: Emitter) -> Replacement:
    """Write MoE as Softmax, TopK, ScatterElements, and MatMul with the weights of all experts.

    What an expert computes for a token that did not choose it is left out of the sum, whatever it
    is. So a node of E experts of which a token chooses k takes E / k times the products, and holds
    one row of inner features for each expert and token at once. Where the number of tokens is known
    and they choose fewer than E experts together, as in a step of one token with `--dim`, the
    weights of those are gathered instead, and no other expert computes. Of experts that are equally
    probable the last are chosen, as in onnxruntime.

    Forms of which onnxruntime has a kernel on GPUs alone are written as its documentation says:
    experts of two products side by side (`swiglu_fusion` 0 and 2), `geglu`, `relu2`, and a limit
    behind the activation; and `use_sparse_mixer`, which it forgets on a CPU, as its kernel for GPUs
    has it: two experts, each weighted by the softmax of what comes within a fiftieth of it, without
    the first for the second, whatever `normalize_routing_weights` says. Refuses weights in the
    layout of its first releases.
    """
    router = cast(em, view.required("router_probs"), _D.FLOAT)
    op = Builder(em, _D.FLOAT)
    mixture = Experts.of(view, em)
    if view.integer("use_sparse_mixer"):
        return only(mixture.computed(*_sparse(mixture, router), 0.0))
    indices, gates = _best(mixture, op("Softmax", router, attributes={"axis": -1}))
    if view.integer("normalize_routing_weights"):
        gates = op("Div", gates, reduce(em, "ReduceSum", gates, [-1]), hint="gates")
    return only(mixture.computed(indices, gates, 0.0))


def quantized_mixture_of_experts(view: NodeView, em: Emitter) -> Replacement:
    """Write QMoE as TopK, Softmax, DequantizeLinear of the weights, and what MoE is written as.

    Experts are chosen by `router_probs`, and weighted by the softmax of those that are chosen, or
    by what `router_weights` has of them. A weight of 1e-8 or less, also a negative one, counts as
    0, as in onnxruntime. All weights are dequantized in each run, unless the number of tokens is
    known and small: see MoE. The bytes of stored weights are those of uint4 or uint8 tensors, and
    are not touched. `weights_prepacked` of -1 is read as on a CPU, where such weights are plain
    rows. `accuracy_level`, which lets a runtime round the input, is left out.

    Refuses what is refused of MoE; `normalize_routing_weights` of 0 without `router_weights`, which
    onnxruntime forgets on a CPU; weights that are no integers of 2, 4 or 8 bits; and weights that
    were packed for a kernel.
    """
    refuse_value(view, "quant_type", "int")
    refuse_value(view, "weights_prepacked", -1, 0)
    refuse_input(view, *_ELSEWHERE)
    for name in ("fc1", "fc2", "fc3"):
        if width_of(view, name) not in (2, 4, 8):
            raise Refusal(
                "contrib-form",
                f"the weights of `QMoE` have {width_of(view, name)} bits, expected 2, 4 or 8",
            )
    op, mixture = Builder(em, _D.FLOAT), Experts.of(view, em)
    router, given = cast(em, view.required("router_probs"), _D.FLOAT), view.input("router_weights")
    if view.integer("use_sparse_mixer"):
        refuse_input(view, "router_weights")
        return only(mixture.computed(*_sparse(mixture, router), 0.0))
    indices, best = _best(mixture, router)
    if given is None:
        refuse_value(view, "normalize_routing_weights", 1)
        gates = op("Softmax", best, attributes={"axis": -1})
    else:
        wide = cast(em, given, _D.FLOAT)
        gates = op("GatherElements", wide, indices, attributes={"axis": 1}, hint="gates")
        if view.integer("normalize_routing_weights"):
            total, zero = reduce(em, "ReduceSum", gates, [-1]), number(em, 0.0, _D.FLOAT)
            nothing = em.op("Equal", total, zero, dtype=_D.BOOL)
            gates = where(em, nothing, zero, op("Div", gates, total), "gates")
    return only(mixture.computed(indices, gates, 1e-8))


def _best(mixture: Experts, scores: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return which experts have the k greatest of (T, E) scores, and these: (T, k) each."""
    em, last = mixture.em, mixture.experts - 1
    # Of equal ones TopK takes the first, onnxruntime the last.
    turned = em.constant(np.arange(last, -1, -1, dtype=np.int64), "backwards")
    backwards = Builder(em, _D.FLOAT)("Gather", scores, turned, attributes={"axis": 1})
    count = em.constant([mixture.view.integer("k")], "k")
    found = em.multi("TopK", backwards, count, dtypes=(_D.FLOAT, _D.INT64))
    return em.op("Sub", em.constant(last, "last"), found[1], hint="experts"), found[0]


_JITTER = 0.02
"""Of a logit, or of the greatest one: how far behind an expert counts in the sparse mixer."""


def _sparse(mixture: Experts, logits: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the two experts of the sparse mixer, and their weights: (T, 2) each.

    The weight of an expert is the softmax over those whose logit is at most `_JITTER` of the
    greater of it and the expert's behind that; the first one does not count for the second.
    """
    em = mixture.em
    refuse_value(mixture.view, "k", 2)
    op, truth, last = Builder(em, _D.FLOAT), Builder(em, _D.BOOL), {"axis": 1}
    share, zero = number(em, _JITTER, _D.FLOAT), number(em, 0.0, _D.FLOAT)
    numbers = em.constant(np.arange(mixture.experts), "experts")
    rest, taken = logits, None
    chosen, gates = [], []
    for _ in range(2):
        top = reduce(em, "ReduceMax", rest, [1])
        chosen.append(em.op("ArgMax", rest, attributes={**last, "keepdims": 1}, dtype=_D.INT64))
        bound = op("Mul", op("Max", op("Abs", logits), top), share)
        behind = truth("Greater", op("Sub", top, logits), bound)
        out = behind if taken is None else truth("Or", behind, taken)
        powers = where(em, out, zero, op("Exp", op("Sub", logits, top)))
        gates.append(op("Reciprocal", reduce(em, "ReduceSum", powers, [1])))
        taken = truth("Equal", chosen[0], numbers)
        rest = where(em, taken, number(em, -np.inf, _D.FLOAT), logits, "rest")
    return (
        em.op("Concat", *chosen, attributes=last, dtype=_D.INT64, hint="experts"),
        op("Concat", *gates, attributes=last, hint="gates"),
    )
