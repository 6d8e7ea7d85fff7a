"""MoE and QMoE of `com.microsoft`: experts, of which each token chooses few."""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.contrib.experts import (
    Gated,
    best,
    mixed,
    numbers,
    softmax,
    sparse,
)
from onnx_kvtool.runtime.kernels.contrib.refusal import refuse_input, refuse_value
from onnx_kvtool.runtime.kernels.elementwise.binary import widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.layer import Reals

__all__ = ["mo_e", "q_mo_e"]


def mo_e(
    input: Array,
    router_probs: Array,
    fc1_experts_weights: Array,
    fc1_experts_bias: Array | None,
    fc2_experts_weights: Array,
    fc2_experts_bias: Array | None = None,
    fc3_experts_weights: Array | None = None,
    fc3_experts_bias: Array | None = None,
    *,
    activation_alpha: float,
    activation_beta: float,
    activation_type: str,
    k: int,
    normalize_routing_weights: int,
    swiglu_fusion: int,
    swiglu_limit: float | None,
    swiglu_limit_after_activation: int,
    use_sparse_mixer: int,
) -> tuple[Array]:
    """Add up what the k most probable experts compute for each token, weighted by probabilities.

    Semantics are those of docs/ContribOperators.md, and of onnxruntime 1.32.0 on a CPU where it has
    the form. Everything is computed in float32 and rounded once.

    Args:
        input: (T, H) or (B, L, H) tokens.
        router_probs: (T, E) logits, of which the softmax is the probability of each expert.
        fc1_experts_weights: (E, I, H), or (E, 2 * I, H) where two products are one.
        fc1_experts_bias: (E, I) or (E, 2 * I); None for zero.
        fc2_experts_weights: (E, H, I).
        fc2_experts_bias: (E, H); None for zero.
        fc3_experts_weights: (E, I, H), the second product of `swiglu` with a `swiglu_fusion` of 0.
        fc3_experts_bias: (E, I); None for zero.
        activation_alpha: Factor in the sigmoid of `swiglu`.
        activation_beta: Added to its second product.
        activation_type: identity, relu, relu2, gelu, silu, swiglu or geglu.
        k: 1 to E; of equally probable experts the last ones are chosen.
        normalize_routing_weights: Whether the weights of a token add up to 1.
        swiglu_fusion: Where two products stand: 1 in turns, 2 one behind the other, 0 apart.
        swiglu_limit: Bound of both, from above alone of the first; None for none.
        swiglu_limit_after_activation: Whether the first is bounded behind its activation.
        use_sparse_mixer: Whether experts are chosen as `sparse` does, which onnxruntime does on
            GPUs alone.

    Returns:
        One array of the shape and type of `input`.

    Raises:
        KernelError: For another shape, and what is refused.
    """
    refuse_value("use_sparse_mixer", use_sparse_mixer, 0, 1)
    limits = swiglu_limit, swiglu_limit_after_activation
    gated = Gated(activation_type, swiglu_fusion, activation_alpha, activation_beta, *limits)
    logits: Reals = widened(router_probs).astype(np.float32, copy=False)
    chosen, gates = sparse(logits, k) if use_sparse_mixer else best(softmax(logits), k)
    if normalize_routing_weights and not use_sparse_mixer:
        gates = gates / gates.sum(axis=-1, keepdims=True)
    products = {
        "fc1": (widened(fc1_experts_weights), fc1_experts_bias),
        "fc2": (widened(fc2_experts_weights), fc2_experts_bias),
    }
    if fc3_experts_weights is not None:
        products["fc3"] = (widened(fc3_experts_weights), fc3_experts_bias)
    return (mixed(input, chosen, np.where(gates > 0, gates, 0), products, gated),)


def q_mo_e(
    input: Array,
    router_probs: Array,
    fc1_experts_weights: Array,
    fc1_scales: Array | None,
    fc1_experts_bias: Array | None,
    fc2_experts_weights: Array,
    fc2_scales: Array | None = None,
    fc2_experts_bias: Array | None = None,
    fc3_experts_weights: Array | None = None,
    fc3_scales: Array | None = None,
    fc3_experts_bias: Array | None = None,
    fc1_zero_points: Array | None = None,
    fc2_zero_points: Array | None = None,
    fc3_zero_points: Array | None = None,
    router_weights: Array | None = None,
    fc1_global_scale: Array | None = None,
    fc2_global_scale: Array | None = None,
    fc1_act_scale: Array | None = None,
    fc2_act_scale: Array | None = None,
    fc1_act_block_scale: Array | None = None,
    fc2_act_block_scale: Array | None = None,
    *,
    accuracy_level: int,
    activation_alpha: float,
    activation_beta: float,
    activation_type: str,
    block_size: int | None,
    expert_weight_bits: int,
    fc1_expert_weight_bits: int | None,
    fc2_expert_weight_bits: int | None,
    fc3_expert_weight_bits: int | None,
    k: int,
    normalize_routing_weights: int,
    quant_type: str,
    swiglu_fusion: int,
    swiglu_limit: float | None,
    swiglu_limit_after_activation: int,
    use_sparse_mixer: int,
    weights_prepacked: int,
) -> tuple[Array]:
    """Add up what the k best experts compute for each token, with weights of 2, 4 or 8 bits.

    As `mo_e`, but what experts are weighted with is the softmax of the logits that were chosen, or
    what `router_weights` has of them; up to 1e-8 it counts as 0. Weights are (code - zero point) *
    scale, at every `accuracy_level`, which is a least one.

    Args:
        input: (T, H) or (B, L, H) tokens.
        router_probs: (T, E).
        fc1_experts_weights: As in `mo_e`, the last axis packed, the first elements in the low bits.
        fc1_scales: (E, rows), or (E, rows, blocks) with a `block_size`.
        fc1_experts_bias: As in `mo_e`.
        fc2_experts_weights: Likewise.
        fc2_scales: Likewise.
        fc2_experts_bias: As in `mo_e`.
        fc3_experts_weights: Likewise.
        fc3_scales: Likewise.
        fc3_experts_bias: As in `mo_e`.
        fc1_zero_points: As the scales, the last axis packed; None for the middle of the codes.
        fc2_zero_points: Likewise.
        fc3_zero_points: Likewise.
        router_weights: (T, E); None for the softmax.
        fc1_global_scale: None, and so the five that follow.
        fc2_global_scale: None.
        fc1_act_scale: None.
        fc2_act_scale: None.
        fc1_act_block_scale: None.
        fc2_act_block_scale: None.
        accuracy_level: Not looked at.
        activation_alpha: As in `mo_e`, and so all that are not described here.
        activation_beta: As in `mo_e`.
        activation_type: As in `mo_e`.
        block_size: Columns of one scale; None and 0 for all.
        expert_weight_bits: 2, 4 or 8.
        fc1_expert_weight_bits: For one product; None for `expert_weight_bits`.
        fc2_expert_weight_bits: Likewise.
        fc3_expert_weight_bits: Likewise.
        k: As in `mo_e`.
        normalize_routing_weights: Whether `router_weights` are divided by their sum; 1 without.
        quant_type: int.
        swiglu_fusion: As in `mo_e`.
        swiglu_limit: As in `mo_e`.
        swiglu_limit_after_activation: As in `mo_e`.
        use_sparse_mixer: As in `mo_e`; without `router_weights`.
        weights_prepacked: -1 or 0.

    Returns:
        One array of the shape and type of `input`.

    Raises:
        KernelError: For another shape, and what is refused.
    """
    for name, value in {
        "fc1_global_scale": fc1_global_scale,
        "fc2_global_scale": fc2_global_scale,
        "fc1_act_scale": fc1_act_scale,
        "fc2_act_scale": fc2_act_scale,
        "fc1_act_block_scale": fc1_act_block_scale,
        "fc2_act_block_scale": fc2_act_block_scale,
    }.items():
        refuse_input(name, value)
    refuse_value("quant_type", quant_type, "int")
    refuse_value("weights_prepacked", weights_prepacked, -1, 0)
    refuse_value("use_sparse_mixer", use_sparse_mixer, 0, 1)
    limits = swiglu_limit, swiglu_limit_after_activation
    gated = Gated(activation_type, swiglu_fusion, activation_alpha, activation_beta, *limits)
    logits: Reals = widened(router_probs).astype(np.float32, copy=False)
    chosen, gates = sparse(logits, k) if use_sparse_mixer else best(logits, k)
    if use_sparse_mixer:
        refuse_input("router_weights", router_weights)
    elif router_weights is None:
        refuse_value("normalize_routing_weights", normalize_routing_weights, 1)
        gates = softmax(gates)
    else:
        rows = np.arange(len(chosen))[:, None]
        gates = widened(router_weights).astype(np.float32)[rows, chosen]
        if normalize_routing_weights:
            total = gates.sum(axis=-1, keepdims=True)
            gates = np.divide(gates, total, out=np.zeros_like(gates), where=total != 0)
    packed = {
        "fc1": (fc1_experts_weights, fc1_scales, fc1_zero_points, fc1_expert_weight_bits),
        "fc2": (fc2_experts_weights, fc2_scales, fc2_zero_points, fc2_expert_weight_bits),
        "fc3": (fc3_experts_weights, fc3_scales, fc3_zero_points, fc3_expert_weight_bits),
    }
    biases = {"fc1": fc1_experts_bias, "fc2": fc2_experts_bias, "fc3": fc3_experts_bias}
    products = {}
    for name, (codes, scales, zeros, bits) in packed.items():
        if codes is None:
            continue
        if scales is None:
            raise KernelError(f"`{name}_scales` is absent, expected one")
        held = numbers(name, codes, scales, zeros, bits or expert_weight_bits, block_size or 0)
        products[name] = (held, biases[name])
    return (mixed(input, chosen, np.where(gates > 1e-8, gates, 0), products, gated),)
