"""Mixtures of experts, with quantized weights or without."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.activation import swish_product
from onnx_kvtool.contrib.block_quantized import packed_values, packed_zero_points, reshaped
from onnx_kvtool.contrib.heads import known_size
from onnx_kvtool.contrib.rule import Site, known_type, no_form, refuse_input, refuse_value
from onnx_kvtool.emit.emitter import Emitter, Refusal
from onnx_kvtool.emit.forms import Term, cast, dtype_of, reduce, unsqueeze, where
from onnx_kvtool.symbolic.dimensions import dim_of, dims_of

# The experts of MoE and QMoE: MatMul over all of them, or over those that were chosen.


_D = ir.DataType
_GATED = ("swiglu", "geglu")


@dataclass(frozen=True, slots=True)
class Experts:
    """The experts that compute, each in its own slot: from H features over I back to H.

    Attributes:
        inner: I.
        hidden: H.
        count: Number of slots.
        chosen: The expert of each slot, (slots,), int64; None if slot n has expert n.
    """

    site: Site
    experts: int
    inner: int
    hidden: int
    count: int
    chosen: ir.Value | None = None

    @classmethod
    def of(cls, site: Site) -> Experts:
        """Read the sizes of a node, all of whose experts compute.

        Raises:
            Refusal: If the node has no standard form, or a size is unknown.
        """
        op_type, kind = site.node.op_type, site.string("activation_type")
        fusion, k = site.integer("swiglu_fusion"), site.integer("k")
        refuse_value(site, "use_sparse_mixer", 0, 1)
        kinds = ("identity", "relu", "relu2", "gelu", "silu", *_GATED)
        refuse_value(site, "activation_type", *kinds)
        refuse_value(site, "swiglu_fusion", *([1, 2] if kind == "geglu" else [0, 1, 2]))
        if kind != "swiglu":
            refuse_value(site, "swiglu_limit_after_activation", 0)
        if kind != "swiglu" or fusion:
            refuse_input(site, "fc3_experts_weights", "fc3_experts_bias")
        weights = site.required("fc1_experts_weights")
        experts = known_size(weights, 0, f"the number of experts of `{op_type}`")
        rows = known_size(weights, 1, f"the number of rows of `fc1_experts_weights` of `{op_type}`")
        hidden = known_size(site.required("input"), -1, f"the width of `input` of `{op_type}`")
        routed = dim_of(site.required("router_probs"), 1)
        if isinstance(routed, int) and routed != experts:
            raise no_form(
                f"`router_probs` of `{op_type}` has {routed} columns, expected one for each of "
                f"{experts} experts"
            )
        if not 1 <= k <= experts:
            raise no_form(f"`k` of `{op_type}` is {k}, expected 1 to {experts}")
        is_fused = kind in _GATED and fusion > 0
        return cls(site, experts, rows // 2 if is_fused else rows, hidden, experts)

    def computed(self, indices: ir.Value, gates: ir.Value, least: float) -> ir.Value:
        """Return the weighted sum of what the experts compute, in the shape of the input.

        Args:
            indices: The experts of each token: (T, k).
            gates: Their weights: (T, k), float32.
            least: Experts with this weight or less are left out of the sum.
        """
        site, op, x = self.site, self.site.op, self.site.required("input")
        dims, k = dims_of(x) or (), site.integer("k")
        rows = x if len(dims) == 2 else op("Reshape", x, [-1, self.hidden])
        tokens = prod(d for d in dims[:-1] if isinstance(d, int))
        count = tokens * k
        if count < self.experts and all(isinstance(dim, int) for dim in dims[:-1]):
            chosen = op("Reshape", indices, [count], hint="chosen")
            if tokens > 1 and k > 1:
                rows = op("Gather", rows, np.repeat(np.arange(tokens), k), hint="tokens")
            columns = reshaped(site, rows, (tokens if tokens == 1 else count, self.hidden, 1))
            slots = replace(self, count=count, chosen=chosen)
            found = slots._weighted(columns, reshaped(site, gates, (count, 1, 1)), least)
            apart = reshaped(site, found, (tokens, k, self.hidden))
            total = reduce(site, "ReduceSum", apart, [1], keepdims=False)
        else:  # every expert computes every token; tokens are columns
            columns = op("Transpose", rows, perm=[1, 0], hint="columns")
            zero = ir.Tensor(np.zeros(1, np.float32))
            none = op("ConstantOfShape", op("Shape", site.required("router_probs")), value=zero)
            spread = op("ScatterElements", none, indices, gates, axis=1, hint="gates")
            turned = unsqueeze(site, op("Transpose", spread, perm=[1, 0]), [1])
            found = self._weighted(columns, turned, least)
            total = reduce(site, "ReduceSum", found, [0], keepdims=False)
            total = op("Transpose", total, perm=[1, 0], hint="total")
        return total if len(dims) == 2 else op("Reshape", total, op("Shape", x), hint="mixed")

    def _weighted(self, columns: ir.Value, gates: ir.Value, least: float) -> ir.Value:
        """Return what the expert of each slot computes, times its weight: (slots, H, columns).

        Args:
            columns: (H, columns), or for each slot (slots, H, columns).
            gates: (slots, 1, columns), float32.
            least: As for `computed`.
        """
        site, op = self.site, self.site.op
        found = self._product("fc2", self._inner(columns), self.hidden, self.inner)
        weighted = op("Mul", found, cast(site, gates, dtype_of(found)), hint="weighted")
        # An expert that was not chosen may overflow: infinity times 0 would be NaN.
        return where(site, op("Greater", gates, least), weighted, 0.0, "counted")

    def _inner(self, columns: ir.Value) -> ir.Value:
        """Return the inner features: (slots, I, columns)."""
        site, inner, hidden = self.site, self.inner, self.hidden
        kind, fusion = site.string("activation_type"), site.integer("swiglu_fusion")
        if kind not in _GATED:
            return _activated(site, kind, self._product("fc1", columns, inner, hidden))
        if fusion == 0:
            gate, linear = (self._product(fc, columns, inner, hidden) for fc in ("fc1", "fc3"))
        else:
            both = self._product("fc1", columns, 2 * inner, hidden)
            if fusion == 2:
                gate, linear = site.multi("Split", both, [inner, inner], axis=1, count=2)
            else:
                gate, linear = (
                    site.op("Slice", both, [first], [2 * inner], [1], [2]) for first in (0, 1)
                )
        if kind == "geglu":
            return site.op("Mul", _activated(site, "gelu", gate), linear)
        return swish_product(
            site,
            gate,
            linear,
            alpha=site.real("activation_alpha"),
            beta=site.real("activation_beta"),
            limit=site.real_or_none("swiglu_limit"),
            is_later=site.integer("swiglu_limit_after_activation") != 0,
        )

    def _product(self, name: str, data: ir.Value, rows: int, columns: int) -> ir.Value:
        """Return a product of `data` with weights (slots, rows, columns), and its bias.

        Args:
            name: `fc1`, `fc2` or `fc3`.
            data: Of the type of the weights.
            rows: Number of features of the result.
            columns: Number of features of `data`.

        Raises:
            Refusal: If a shape is another, or unknown.
        """
        site, bits = self.site, width_of(self.site, name)
        packed = columns * (bits or 8) // 8
        given = demanded(site, f"{name}_experts_weights", self.experts, rows, packed)
        if bits is None:
            weights = self._of(given)
        else:
            weights = self._dequantized(given, name, rows, columns, bits)
        found = site.op("MatMul", weights, data, hint=name)
        if site.input(f"{name}_experts_bias") is None:
            return found
        bias = self._of(demanded(site, f"{name}_experts_bias", self.experts, rows))
        return site.op("Add", found, unsqueeze(site, bias, [2]), hint=f"{name}_biased")

    def _of(self, given: ir.Value) -> ir.Value:
        if self.chosen is None:
            return given
        return self.site.op("Gather", given, self.chosen, hint="chosen")

    def _dequantized(
        self, packed: ir.Value, name: str, rows: int, columns: int, bits: int
    ) -> ir.Value:
        """Return the dequantized values: (slots, rows, columns)."""
        site, experts, given = self.site, self.experts, self.site.number("block_size")
        block = given or columns
        if block < 1 or columns % block:
            raise no_form(
                f"`block_size` of `QMoE` is {block}, which does not divide the {columns} columns "
                f"of `{name}_experts_weights`"
            )
        blocks = columns // block
        along = (experts, rows, blocks) if given else (experts, rows)
        scales = demanded(site, f"{name}_scales", *along)
        if not given:
            scales = reshaped(site, scales, (experts, rows, 1))
        dtype = known_type(site.required("input"))
        if known_type(scales) != dtype:
            raise no_form(f"`{name}_scales` of `QMoE` is of type {scales.dtype}, expected {dtype}")
        quantized = packed_values(site, self._of(packed), bits, (self.count, rows, columns))
        zero = site.input(f"{name}_zero_points")
        if zero is None:
            whole = (self.count, rows, blocks)
            points = packed_zero_points(site, None, bits, dtype_of(quantized), whole)
        elif given and blocks == 1 and bits != 8:
            raise no_form(
                f"`{name}_zero_points` of `QMoE` has one block: onnxruntime reads a layout "
                "on the CPU that contradicts its documentation"
            )
        else:
            row = -(-along[-1] * bits // 8)
            demanded(site, f"{name}_zero_points", *along[:-1], row)
            whole = (experts, rows, blocks)
            points = packed_zero_points(site, zero, bits, dtype_of(quantized), whole, along)
            points = self._of(points)
        inputs = (quantized, self._of(scales), points)
        return site.op("DequantizeLinear", *inputs, axis=2, block_size=block, dtype=dtype)


def width_of(site: Site, name: str) -> int | None:
    """Return the bits of the quantized weights of one product; None if they are not quantized."""
    if site.node.op_type == "MoE":
        return None
    given = site.attribute(f"{name}_expert_weight_bits")
    return given if isinstance(given, int) else site.integer("expert_weight_bits")


def demanded(site: Site, name: str, *expected: int) -> ir.Value:
    """Return an input that the attributes of the node make necessary.

    Raises:
        Refusal: If it is absent, or has another shape than `expected`, or an unknown one.
    """
    value, op_type = site.input(name), site.node.op_type
    if value is None:
        raise no_form(f"`{op_type}` has no `{name}`, expected one")
    dims = dims_of(value)
    if dims is None or not all(isinstance(dim, int) for dim in dims):
        text = f"the shape of `{name}` of `{op_type}` is unknown"
        raise Refusal("unknown-size", text, help="declare it")
    if dims != expected:
        raise no_form(f"`{name}` of `{op_type}` has shape {dims}, expected {expected}")
    return value


def _activated(em: Emitter, kind: str, x: ir.Value) -> ir.Value:
    """Return an activation of one value."""
    op = em.op
    if kind == "gelu":
        return op("Gelu", x, approximate="tanh")
    if kind == "silu":
        return op("Mul", x, op("Sigmoid", x))
    if kind == "identity":
        return x
    positive = op("Relu", x)
    return op("Mul", positive, positive) if kind == "relu2" else positive


# MoE and QMoE of `com.microsoft`: the choice of experts for each token, and their weights.


_FLOAT_SCALES = [
    f"fc{n}_{name}" for n in (1, 2) for name in ("global_scale", "act_scale", "act_block_scale")
]
"""Inputs of weights that are floats of 4 or 8 bits, which run on GPUs only."""


def mixture_of_experts(site: Site) -> ir.Value:
    """Write MoE as Softmax, TopK, ScatterElements, and MatMul with the weights of all experts.

    Every expert computes every token; results for tokens that did not choose the expert are left
    out of the sum. So a node of E experts, where a token chooses k, computes E / k times as many
    products, and holds the inner features of all experts and tokens at once. If the number of
    tokens is known and they choose fewer than E experts together, as in a step of one token with
    `--dim`, the weights of the chosen experts are gathered instead. Of equally probable experts the
    last are chosen, as in onnxruntime.

    Forms that onnxruntime computes on GPUs only follow its documentation: two products side by side
    (`swiglu_fusion` 0 and 2), `geglu`, `relu2`, and a limit after the activation.
    `use_sparse_mixer`, which onnxruntime ignores on a CPU, follows its kernel for GPUs; see
    `_sparse`. Refuses weights in the layout of the first releases.
    """
    router = cast(site, site.required("router_probs"), _D.FLOAT)
    op = site.op
    mixture = Experts.of(site)
    if site.integer("use_sparse_mixer"):
        return mixture.computed(*_sparse(mixture, router), 0.0)
    indices, gates = _best(mixture, op("Softmax", router, axis=-1))
    if site.integer("normalize_routing_weights"):
        gates = op("Div", gates, reduce(site, "ReduceSum", gates, [-1]), hint="gates")
    return mixture.computed(indices, gates, 0.0)


def quantized_mixture_of_experts(site: Site) -> ir.Value:
    """Write QMoE as TopK, Softmax, DequantizeLinear of the weights, and the form of MoE.

    Experts are chosen by `router_probs`, and weighted by the softmax over the chosen ones, or by
    `router_weights`. A weight of 1e-8 or less, also a negative one, counts as 0, as in onnxruntime.
    All weights are dequantized in each run, unless the number of tokens is known and small: see
    MoE. The bytes of stored weights become uint4 or uint8 tensors, unchanged. `weights_prepacked`
    of -1 is read as on a CPU, where such weights are plain rows. `accuracy_level`, which lets a
    runtime round the input, is dropped.

    Refuses what MoE refuses; `normalize_routing_weights` of 0 without `router_weights`, which
    onnxruntime ignores on a CPU; weights that are no integers of 2, 4 or 8 bits; and weights that
    were packed for a kernel.
    """
    refuse_value(site, "quant_type", "int")
    refuse_value(site, "weights_prepacked", -1, 0)
    refuse_input(site, *_FLOAT_SCALES)
    for name in ("fc1", "fc2", "fc3"):
        if width_of(site, name) not in (2, 4, 8):
            raise no_form(
                f"the weights of `QMoE` have {width_of(site, name)} bits, expected 2, 4 or 8"
            )
    op, mixture = site.op, Experts.of(site)
    router, given = (
        cast(site, site.required("router_probs"), _D.FLOAT),
        site.input("router_weights"),
    )
    if site.integer("use_sparse_mixer"):
        refuse_input(site, "router_weights")
        return mixture.computed(*_sparse(mixture, router), 0.0)
    indices, best = _best(mixture, router)
    if given is None:
        refuse_value(site, "normalize_routing_weights", 1)
        gates = op("Softmax", best, axis=-1)
    else:
        wide = cast(site, given, _D.FLOAT)
        gates = op("GatherElements", wide, indices, axis=1, hint="gates")
        if site.integer("normalize_routing_weights"):
            total = reduce(site, "ReduceSum", gates, [-1])
            gates = where(site, op("Equal", total, 0.0), 0.0, op("Div", gates, total), "gates")
    return mixture.computed(indices, gates, 1e-8)


def _best(mixture: Experts, scores: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the experts with the k greatest of (T, E) scores, and these scores: (T, k) each."""
    em, last = mixture.site, mixture.experts - 1
    # Of equal scores TopK takes the first, onnxruntime the last.
    backwards = em.op("Gather", scores, np.arange(last, -1, -1, dtype=np.int64), axis=1)
    found = em.multi("TopK", backwards, [mixture.site.integer("k")], count=2)
    return em.op("Sub", last, found[1], hint="experts"), found[0]


_JITTER = 0.02
"""Experts count in the sparse mixer if they are no further behind, as a share of a logit."""


def _sparse(mixture: Experts, logits: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the two experts of the sparse mixer, and their weights: (T, 2) each.

    The weight of an expert is its softmax over the experts whose logits are close: the distance is
    at most `_JITTER` times the greater of the expert's logit and the magnitude of the other. The
    first expert does not count for the second. `normalize_routing_weights` has no effect.
    """
    em, op = mixture.site, mixture.site.op
    refuse_value(em, "k", 2)
    every = em.constant(np.arange(mixture.experts), "experts")
    rest = given = Term(em, logits)
    taken: Term | None = None
    chosen: list[Term] = []
    gates = []
    for _ in range(2):
        top = rest.reduce("ReduceMax", [1])
        chosen.append(rest.op("ArgMax", axis=1, keepdims=1))
        bound = abs(given).op("Max", top) * _JITTER
        behind = top - given > bound
        out = behind if taken is None else behind | taken
        powers = out.where(0.0, (given - top).op("Exp"))
        gates.append(powers.reduce("ReduceSum", [1]).op("Reciprocal"))
        taken = chosen[0].op("Equal", every)
        rest = taken.then(where, -np.inf, logits, "rest")
    return (
        op("Concat", *chosen, axis=1, hint="experts"),
        op("Concat", *gates, axis=1, hint="gates"),
    )
