"""The experts of MoE and QMoE of `com.microsoft`, and which of them a token chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.activation import gelu_tanh_of, sigmoid_of
from onnx_kvtool.runtime.kernels.contrib.gated import swiglu_of
from onnx_kvtool.runtime.kernels.contrib.packed_bits import unpacked
from onnx_kvtool.runtime.kernels.contrib.refusal import refuse_value
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.layer import Reals, check_shape

__all__ = ["Gated", "best", "mixed", "numbers", "softmax", "sparse"]


@dataclass(frozen=True, slots=True)
class Gated:
    """What stands between the two products of an expert."""

    kind: str
    fusion: int
    alpha: float
    beta: float
    limit: float | None
    is_later: int

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
        bound = np.inf if self.limit is None else self.limit
        return swiglu_of(gate, linear, (self.alpha, self.beta, bound), is_later=self.is_later != 0)


def _relu(x: Reals) -> Reals:
    return np.maximum(x, 0)


_ACTIVATIONS: Mapping[str, Callable[[Reals], Reals]] = {
    "identity": lambda x: x,
    "relu": _relu,
    "relu2": lambda x: np.asarray(_relu(x) ** 2),
    "gelu": gelu_tanh_of,
    "silu": lambda x: np.asarray(x * sigmoid_of(x)),
}


def best(scores: Reals, k: int) -> tuple[Array, Reals]:
    """Return the places of the k greatest scores of each row, of equal ones the last, and them."""
    if not 1 <= k <= scores.shape[-1]:
        raise KernelError(f"`k` is {k}, expected 1 to {scores.shape[-1]}")
    last = scores.shape[-1] - 1
    chosen = last - np.argsort(-scores[:, ::-1], axis=-1, kind="stable")[:, :k]
    return chosen, np.take_along_axis(scores, chosen, axis=-1)


def sparse(logits: Reals, k: int) -> tuple[Array, Reals]:
    """Return the two experts of the sparse mixer, and their weights, as onnxruntime's on GPUs.

    Semantics are those of its kernel `sparse_mixer_top2`, and of Phi-3.5-MoE, which it is for: the
    weight of an expert is the softmax over the experts whose logit is behind by at most a fiftieth
    of the greater of it and the expert's. The first expert does not count for the second.

    Args:
        logits: (T, E).
        k: 2.

    Returns:
        (T, 2) twice.
    """
    refuse_value("k", k, 2)
    chosen = np.zeros((len(logits), 2), np.int64)
    gates = np.zeros((len(logits), 2), np.float32)
    for token, row in enumerate(logits):
        experts = list(range(len(row)))
        for place in range(2):
            first = max(experts, key=lambda expert: row[expert])
            near = [
                row[expert]
                for expert in experts
                if row[first] - row[expert] <= 0.02 * max(abs(row[expert]), row[first])
            ]
            chosen[token, place] = first
            gates[token, place] = 1 / sum(np.exp(logit - row[first]) for logit in near)
            experts.remove(first)
    return chosen, gates


def softmax(x: Reals) -> Reals:
    """Return the softmax along the last axis."""
    powers = np.exp(x - x.max(axis=-1, keepdims=True, initial=-np.inf))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def numbers(
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


def mixed(
    x: Array,
    chosen: Array,
    gates: Reals,
    products: Mapping[str, tuple[Reals, Array | None]],
    gated: Gated,
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
