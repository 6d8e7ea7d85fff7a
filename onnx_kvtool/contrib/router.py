"""What says which experts of a mixture compute: routers in front of MoE and QMoE."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.gated import Swish
from onnx_kvtool.contrib.heads import known_size, parts
from onnx_kvtool.contrib.packed import known_type
from onnx_kvtool.contrib.rule import Builder, is_read, refuse_value
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast, reduce, unsqueeze, where
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.symbolic.dims import dims_of

__all__ = ["moe_group_router", "router_gate_up_proj"]

_D = ir.DataType


def moe_group_router(view: NodeView, em: Emitter) -> Replacement:
    """Write MoEGroupRouter as Sigmoid, Add, TopK of groups and of experts, and ScatterElements.

    Everything is float32. Of equal groups and experts the first are chosen, as in onnxruntime.
    Where the groups that are chosen have fewer experts than `top_k`, all of these are. With all
    scores as outputs it is Sigmoid and Add, behind MatMul if it has weights.
    """
    logits, bias = view.required("logits"), view.required("expert_bias")
    weight, op = view.input("projection_weight"), Builder(em, _D.FLOAT)
    is_chosen, is_full = is_read(view, 0), is_read(view, 1) or is_read(view, 2)
    if is_chosen and (is_full or weight is not None):
        raise Refusal(
            "contrib-form",
            "`MoEGroupRouter` has `router_probs` beside all scores or `projection_weight`",
        )
    experts = known_size(bias, 0, "the number of experts of `MoEGroupRouter`")
    rows, dims = cast(em, logits, _D.FLOAT), dims_of(logits)
    if weight is not None:
        turned = op("Transpose", cast(em, weight, _D.FLOAT), attributes={"perm": [1, 0]})
        rows = op("MatMul", rows, turned, hint="logits")
    elif dims is None or len(dims) != 2:
        rows = op("Reshape", rows, em.constant([-1, experts], "shape"), hint="logits")
    chances = op("Sigmoid", rows, hint="chances")
    scores = op("Add", chances, bias, hint="scores")
    count = len(view.node.outputs)
    if not is_chosen:
        return Replacement((None, scores, chances)[:count])
    return Replacement((_chosen(view, em, chances, scores, experts), None, None)[:count])


def _chosen(
    view: NodeView, em: Emitter, chances: ir.Value, scores: ir.Value, experts: int
) -> ir.Value:
    """Return the logarithm of the chances of the chosen experts, for others a sentinel: (T, E)."""
    op = Builder(em, _D.FLOAT)
    groups, kept, best, per_group = (
        view.integer(name) for name in ("n_group", "topk_group", "top_k", "group_topk")
    )
    is_whole = groups > 0 and experts % groups == 0 and 1 <= kept <= groups
    if not is_whole or per_group < 1 or not 1 <= best <= experts:
        raise Refusal(
            "contrib-form",
            f"`MoEGroupRouter` chooses {best} of {experts} experts in {kept} of {groups} groups, "
            f"which are ranked by {per_group} each",
        )
    size = experts // groups
    if kept < groups:
        apart = op("Reshape", scores, em.constant([-1, groups, size], "shape"), hint="groups")
        top = _top(em, apart, min(per_group, size))[0]
        _, found = _top(em, reduce(em, "ReduceSum", top, [2], keepdims=False), kept)
        numbers = em.constant(np.arange(groups), "groups")
        equal = em.op("Equal", unsqueeze(em, found, [2]), numbers, dtype=_D.BOOL)
        hits = reduce(em, "ReduceMax", cast(em, equal, _D.FLOAT), [1], keepdims=False)
        mine = cast(em, unsqueeze(em, hits, [2]), _D.BOOL)
        lowest = em.constant(np.array(-np.inf, np.float32), "lowest")
        masked = where(em, mine, apart, lowest, "masked")
        scores = op("Reshape", masked, em.constant([-1, experts], "shape"))
    _, found = _top(em, scores, min(best, kept * size))
    least = em.constant(np.array(1e-20, np.float32), "least")
    own = op("GatherElements", chances, found, attributes={"axis": 1})
    value = ir.Tensor(np.array([view.real("router_sentinel")], np.float32))
    front = dims_of(view.required("logits"))
    sizes = [dim for dim in (front or ())[:-1] if isinstance(dim, int)]
    if front is not None and len(sizes) == len(front) - 1:
        shape = em.constant([prod(sizes), experts], "shape")
    else:
        shape = em.op("Shape", chances)
    others = op("ConstantOfShape", shape, attributes={"value": value})
    updates = op("Log", op("Max", own, least))
    result = op("ScatterElements", others, found, updates, attributes={"axis": 1})
    return cast(em, result, known_type(view.required("logits")))


def _top(em: Emitter, scores: ir.Value, count: int) -> tuple[ir.Value, ...]:
    """Return the greatest numbers along the last axis, and where they stand."""
    return em.multi("TopK", scores, em.constant([count], "k"), dtypes=(_D.FLOAT, _D.INT64))


def router_gate_up_proj(view: NodeView, em: Emitter) -> Replacement:
    """Write RouterGateUpProj as MatMul, Split, and what SwiGLU is written as."""
    refuse_value(view, "activation", "swiglu")
    x, weight, first = view.required("X"), view.required("W"), view.integer("router_size")
    width = known_size(weight, -1, "the last dimension of `W` of `RouterGateUpProj`")
    inner, dtype = (width - first) // 2, known_type(x)
    if first < 1 or inner < 1 or first + 2 * inner != width:
        raise Refusal(
            "contrib-form",
            f"`W` of `RouterGateUpProj` is {width} wide, expected `router_size`, {first}, and an "
            "even number more",
        )
    product = Builder(em, dtype)("MatMul", x, weight, hint="projected")
    router, gate, up = parts(em, product, (first, inner, inner))
    return Replacement((router, Swish.of(view, round_to=dtype).gated(em, gate, up, dtype)))
