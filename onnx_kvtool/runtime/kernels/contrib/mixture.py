"""MoE and QMoE of `com.microsoft`: experts, of which each token chooses few."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.activation.apply import sigmoid_of
from onnx_kvtool.runtime.kernels.activation.smooth import gelu_tanh_of
from onnx_kvtool.runtime.kernels.contrib.packed_bits import unpacked
from onnx_kvtool.runtime.kernels.contrib.refusal import refuse_input, refuse_value
from onnx_kvtool.runtime.kernels.elementwise.precision import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.checks import check_shape
from onnx_kvtool.runtime.kernels.normalization.precision import Reals

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
        use_sparse_mixer: 0.

    Returns:
        One array of the shape and type of `input`.

    Raises:
        KernelError: For another shape, and what is refused.
    """
    refuse_value("use_sparse_mixer", use_sparse_mixer, 0)
    gated = _Gated(
        activation_type,
        swiglu_fusion,
        activation_alpha,
        activation_beta,
        swiglu_limit,
        swiglu_limit_after_activation != 0,
    )
    logits: Reals = widened(router_probs).astype(np.float32, copy=False)
    chances = _softmax(logits)
    chosen, gates = _best(chances, k)
    if normalize_routing_weights:
        gates = gates / gates.sum(axis=-1, keepdims=True)
    products = {
        "fc1": (widened(fc1_experts_weights), fc1_experts_bias),
        "fc2": (widened(fc2_experts_weights), fc2_experts_bias),
    }
    if fc3_experts_weights is not None:
        products["fc3"] = (widened(fc3_experts_weights), fc3_experts_bias)
    return (_mixed(input, chosen, np.where(gates > 0, gates, 0), products, gated),)


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
        use_sparse_mixer: 0.
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
    refuse_value("use_sparse_mixer", use_sparse_mixer, 0)
    gated = _Gated(
        activation_type,
        swiglu_fusion,
        activation_alpha,
        activation_beta,
        swiglu_limit,
        swiglu_limit_after_activation != 0,
    )
    chosen, gates = _best(widened(router_probs).astype(np.float32, copy=False), k)
    if router_weights is None:
        refuse_value("normalize_routing_weights", normalize_routing_weights, 1)
        gates = _softmax(gates)
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
        numbers = _numbers(name, codes, scales, zeros, bits or expert_weight_bits, block_size or 0)
        products[name] = (numbers, biases[name])
    return (_mixed(input, chosen, np.where(gates > 1e-8, gates, 0), products, gated),)


@dataclass(frozen=True, slots=True)
class _Gated:
    """What stands between the two products of an expert."""

    kind: str
    fusion: int
    alpha: float
    beta: float
    limit: float | None
    is_later: bool

    def of(self, x: Reals, products: Sequence[Callable[[Reals], Reals]]) -> Reals:
        """Return the inner features (T, I) of tokens (T, H)."""
        first = products[0](x)
        if self.kind not in ("swiglu", "geglu"):
            refuse_value("activation_type", self.kind, *_ACTIVATIONS)
            return _ACTIVATIONS[self.kind](first)
        refuse_value("swiglu_fusion", self.fusion, *((1, 2) if self.kind == "geglu" else (0, 1, 2)))
        if self.fusion == 1:
            gate, linear = first[:, ::2], first[:, 1::2]
        elif self.fusion == 2:
            gate, linear = np.split(first, 2, axis=1)
        else:
            gate, linear = first, products[1](x)
        if self.kind == "geglu":
            return np.asarray(gelu_tanh_of(gate) * linear)
        bound = np.float32(np.inf if self.limit is None else self.limit)
        linear = np.clip(linear, -bound, bound)
        if not self.is_later:
            gate = np.minimum(gate, bound)
        swish = gate * sigmoid_of(np.float32(self.alpha) * gate)
        return np.asarray(np.minimum(swish, bound) if self.is_later else swish) * (
            linear + np.float32(self.beta)
        )


def _relu(x: Reals) -> Reals:
    return np.maximum(x, 0)


_ACTIVATIONS: Mapping[str, Callable[[Reals], Reals]] = {
    "identity": lambda x: x,
    "relu": _relu,
    "relu2": lambda x: np.asarray(_relu(x) ** 2),
    "gelu": gelu_tanh_of,
    "silu": lambda x: np.asarray(x * sigmoid_of(x)),
}


def _best(scores: Reals, k: int) -> tuple[Array, Reals]:
    """Return the places of the k greatest scores of each row, of equal ones the last, and them."""
    if not 1 <= k <= scores.shape[-1]:
        raise KernelError(f"`k` is {k}, expected 1 to {scores.shape[-1]}")
    last = scores.shape[-1] - 1
    chosen = last - np.argsort(-scores[:, ::-1], axis=-1, kind="stable")[:, :k]
    return chosen, np.take_along_axis(scores, chosen, axis=-1)


def _softmax(x: Reals) -> Reals:
    powers = np.exp(x - x.max(axis=-1, keepdims=True, initial=-np.inf))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def _numbers(
    name: str, packed: Array, scales: Array, zeros: Array | None, bits: int, block: int
) -> Reals:
    """Return what codes stand for: (E, rows, columns)."""
    refuse_value("expert_weight_bits", bits, 2, 4, 8)
    codes = unpacked(packed, bits).astype(np.float32)
    experts, rows, columns = codes.shape
    size = block or columns
    if columns % size:
        raise KernelError(f"`block_size` is {block}, which does not divide {columns}")
    blocks = columns // size
    expected = (experts, rows, blocks) if block else (experts, rows)
    check_shape(f"{name}_scales", scales.shape, expected, "one for each block")
    if zeros is None:
        points = np.full((experts, rows, blocks), 2 ** (bits - 1), np.float32)
    else:
        last = expected[-1]
        packed_row = (*expected[:-1], -(-last * bits // 8))
        check_shape(f"{name}_zero_points", zeros.shape, packed_row, "packed as the weights")
        points = unpacked(zeros, bits)[..., :last].reshape(experts, rows, blocks)
        points = points.astype(np.float32)
    factors = widened(scales).astype(np.float32).reshape(experts, rows, blocks, 1)
    spread = codes.reshape(experts, rows, blocks, size) - points[..., None]
    return np.asarray((spread * factors).reshape(experts, rows, columns))


def _mixed(
    x: Array,
    chosen: Array,
    gates: Reals,
    products: Mapping[str, tuple[Reals, Array | None]],
    gated: _Gated,
) -> Array:
    """Return the weighted sum over the experts of each token, of the shape and type of `x`."""
    tokens = widened(x).astype(np.float32, copy=False).reshape(-1, x.shape[-1])
    second, bias = products["fc2"]
    total = np.zeros(tokens.shape, np.float32)
    if len(chosen) != len(tokens):
        raise KernelError(f"`router_probs` has {len(chosen)} rows, expected {len(tokens)}")
    for expert in range(len(second)):
        rows, places = np.nonzero((chosen == expert) & (gates != 0))
        if not len(rows):
            continue
        names = [name for name in ("fc1", "fc3") if name in products]
        inner = gated.of(tokens[rows], [_product(*products[name], expert) for name in names])
        found = _product(second, bias, expert)(inner)
        total[rows] += gates[rows, places][:, None] * found
    return narrowed(total.reshape(x.shape), x.dtype)


def _product(weights: Reals, bias: Array | None, expert: int) -> Callable[[Reals], Reals]:
    """Return the product of one expert, which adds its bias."""

    def product(x: Reals) -> Reals:
        with np.errstate(all="ignore"):
            found = np.asarray(x @ weights[expert].T.astype(np.float32, copy=False))
            return found if bias is None else found + widened(bias[expert])

    return product
