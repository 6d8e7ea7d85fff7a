"""Routers in front of experts, of `com.microsoft`: MoEGroupRouter and RouterGateUpProj."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.activation import sigmoid_of
from onnx_kvtool.runtime.kernels.contrib.gated import swi_glu
from onnx_kvtool.runtime.kernels.contrib.refusal import refuse_value
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array, Context
from onnx_kvtool.runtime.kernels.normalization.layer import Reals, check_shape

__all__ = ["mo_e_group_router", "router_gate_up_proj"]


def mo_e_group_router(
    logits: Array,
    expert_bias: Array,
    projection_weight: Array | None = None,
    *,
    group_topk: int,
    n_group: int,
    router_sentinel: float,
    top_k: int,
    topk_group: int,
    context: Context,
) -> tuple[Array | None, ...]:
    """Choose experts by a sigmoid and a bias, within the groups whose best experts are best.

    Semantics are those of docs/ContribOperators.md and of onnxruntime 1.32.0 on a CPU: of equal
    groups and experts the first are chosen.

    Args:
        logits: (..., E); with `projection_weight` (T, W).
        expert_bias: (E,), added to the sigmoid for the choice alone.
        projection_weight: (E, W), of which logits are the product.
        group_topk: How many of the best experts of a group rank it, all where it has fewer.
        n_group: Groups of E / n_group experts.
        router_sentinel: What stands for an expert that is not chosen.
        top_k: How many experts are chosen, all of the groups where these have fewer.
        topk_group: How many groups they are chosen of.
        context: Says which outputs the node has.

    Returns:
        router_probs, (T, E) logarithms of the sigmoid, of 1e-20 where it is less; or
        selection_scores and router_weights, the sigmoid with and without the bias, in float32.

    Raises:
        KernelError: For another shape, numbers that do not go together, and `router_probs` beside
            other outputs or a projection.
    """
    experts = len(expert_bias)
    x = widened(logits)
    if projection_weight is not None:
        x = x @ widened(projection_weight).T
    if x.shape[-1:] != (experts,):
        raise KernelError(f"`expert_bias` has shape {expert_bias.shape}, of logits {x.shape}")
    chances = sigmoid_of(x.reshape(-1, experts))
    scores = chances + expert_bias
    if context.outputs > 1:
        return None, scores, chances
    if projection_weight is not None:
        raise KernelError("`projection_weight` is given, which `router_probs` does not have")
    whole = n_group > 0 and experts % n_group == 0 and 1 <= topk_group <= n_group
    if not whole or group_topk < 1 or not 1 <= top_k <= experts:
        raise KernelError(
            f"`top_k` is {top_k} of {experts} experts, `topk_group` {topk_group} of {n_group} "
            f"groups and `group_topk` {group_topk}, which do not go together"
        )
    size = experts // n_group
    found = np.full(scores.shape, np.float32(router_sentinel))
    for token, row in enumerate(scores):
        ranks = [np.sort(row[at : at + size])[::-1][:group_topk].sum()
                 for at in range(0, experts, size)]  # fmt: skip
        kept = _best(np.array(ranks), topk_group)
        mine = [expert for expert in range(experts) if expert // size in kept]
        chosen = [mine[place] for place in _best(row[mine], top_k)]
        found[token, chosen] = np.log(np.maximum(chances[token, chosen], np.float32(1e-20)))
    return (narrowed(found, logits.dtype),)


def _best(scores: Reals, count: int) -> list[int]:
    """Return where the greatest numbers stand, of equal ones the first."""
    return sorted(range(len(scores)), key=lambda at: -scores[at])[:count]


def router_gate_up_proj(
    X: Array,
    W: Array,
    *,
    activation: str,
    activation_alpha: float,
    activation_beta: float,
    limit: float,
    router_size: int,
) -> tuple[Array, Array]:
    """Return the first columns of a product, and SwiGLU of the others, as `swi_glu` does.

    Args:
        X: (..., K).
        W: (K, router_size + 2 * I).
        activation: swiglu.
        activation_alpha: As in `swi_glu`, and so the next two.
        activation_beta: As in `swi_glu`.
        limit: As in `swi_glu`.
        router_size: How many columns are logits of a router.

    Returns:
        (..., router_size) and (..., I), of the type of `X`.

    Raises:
        KernelError: For another shape or activation.
    """
    refuse_value("activation", activation, "swiglu")
    check_shape("W", W.shape[:1], X.shape[-1:], "as many rows as `X` has columns")
    if W.ndim != 2 or not 0 < router_size < W.shape[1]:
        raise KernelError(f"`W` has shape {W.shape}, of which {router_size} columns are a router's")
    with np.errstate(all="ignore"):
        product = narrowed(np.asarray(np.matmul(widened(X), widened(W))), X.dtype)
    (activated,) = swi_glu(
        product[..., router_size:],
        activation_alpha=activation_alpha,
        activation_beta=activation_beta,
        limit=limit,
        round_activation=0,
    )
    return np.ascontiguousarray(product[..., :router_size]), activated
