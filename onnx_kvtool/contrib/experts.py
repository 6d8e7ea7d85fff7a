"""Mixtures of experts, with quantized weights or without."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.activation import Swish
from onnx_kvtool.contrib.block_quantized import packed_values, packed_zero_points, reshaped
from onnx_kvtool.contrib.heads import dim_of, known_size
from onnx_kvtool.contrib.rule import Site, known_type, no_form, only, refuse_input, refuse_value
from onnx_kvtool.emit.emitter import Emitter, Refusal, Replacement
from onnx_kvtool.emit.forms import cast, dtype_of, reduce, unsqueeze, where
from onnx_kvtool.symbolic.dimensions import dims_of

# The weights of experts, quantized or not: of all experts, or of the chosen ones.


_D = ir.DataType


@dataclass(frozen=True, slots=True)
class Slots:
    """The experts that compute, each in its own slot.

    Attributes:
        site: The node.
        experts: Number of experts.
        chosen: The expert of each slot, (slots,), int64; None if slot n has expert n.
        count: Number of slots.
    """

    site: Site
    experts: int
    chosen: ir.Value | None
    count: int

    def weights(self, name: str, rows: int, columns: int) -> ir.Value:
        """Return the weights of one product: (slots, rows, columns), of the type of the input.

        Args:
            name: `fc1`, `fc2` or `fc3`.
            rows: Number of features of the result.
            columns: Number of features of the input.

        Raises:
            Refusal: If a shape is another, or unknown.
        """
        called, bits = f"{name}_experts_weights", width_of(self.site, name)
        given = demanded(self.site, called)
        demand_dims(self.site, called, self.experts, rows, columns * (bits or 8) // 8)
        if bits is None:
            return self._of(given)
        return self._dequantized(given, name, (self.experts, rows, columns), bits)

    def bias(self, name: str, rows: int) -> ir.Value | None:
        """Return the bias of one product: (slots, rows, 1); None if it has none."""
        given = self.site.input(f"{name}_experts_bias")
        if given is None:
            return None
        demand_dims(self.site, f"{name}_experts_bias", self.experts, rows)
        return unsqueeze(self.site, self._of(given), [2])

    def _of(self, given: ir.Value) -> ir.Value:
        if self.chosen is None:
            return given
        return self.site.op("Gather", given, self.chosen, hint="chosen")

    def _dequantized(
        self, packed: ir.Value, name: str, shape: tuple[int, int, int], bits: int
    ) -> ir.Value:
        """Return the dequantized values."""
        em, site, (experts, rows, columns) = self.site, self.site, shape
        block = site.attribute("block_size") or columns
        assert isinstance(block, int)
        if block < 1 or columns % block:
            raise no_form(
                f"`block_size` of `QMoE` is {block}, which does not divide the {columns} columns "
                f"of `{name}_experts_weights`"
            )
        blocks = columns // block
        scales = demanded(site, f"{name}_scales")
        if site.attribute("block_size"):
            demand_dims(site, f"{name}_scales", experts, rows, blocks)
        else:
            demand_dims(site, f"{name}_scales", experts, rows)
            scales = reshaped(em, scales, (experts, rows, 1))
        dtype = known_type(site.required("input"))
        if known_type(scales) != dtype:
            raise no_form(f"`{name}_scales` of `QMoE` is of type {scales.dtype}, expected {dtype}")
        quantized = packed_values(em, self._of(packed), bits, (self.count, rows, columns))
        zero = site.input(f"{name}_zero_points")
        points = self._points(name, zero, bits, quantized.dtype, (rows, blocks))
        attributes = {"axis": 2, "block_size": block}
        inputs = (quantized, self._of(scales), points)
        return em.op("DequantizeLinear", *inputs, attributes=attributes, dtype=dtype)

    def _points(
        self,
        name: str,
        zero: ir.Value | None,
        bits: int,
        dtype: ir.DataType | None,
        shape: tuple[int, int],
    ) -> ir.Value:
        """Return the zero point of each block: (slots, rows, blocks)."""
        rows, blocks = shape
        if zero is None:
            return packed_zero_points(self.site, None, bits, dtype, (self.count, rows, blocks))
        whole = (self.experts, rows, blocks)
        if not self.site.attribute("block_size"):
            demand_dims(self.site, f"{name}_zero_points", self.experts, -(-rows * bits // 8))
            along = (self.experts, rows)
            return self._of(packed_zero_points(self.site, zero, bits, dtype, whole, along))
        if blocks == 1 and bits != 8:
            raise no_form(
                f"`{name}_zero_points` of `QMoE` has one block: onnxruntime reads a layout "
                "on the CPU that contradicts its documentation"
            )
        packed = -(-blocks * bits // 8)
        demand_dims(self.site, f"{name}_zero_points", self.experts, rows, packed)
        return self._of(packed_zero_points(self.site, zero, bits, dtype, whole))


def width_of(site: Site, name: str) -> int | None:
    """Return the bits of the quantized weights of one product; None if they are not quantized."""
    if site.node.op_type == "MoE":
        return None
    given = site.attribute(f"{name}_expert_weight_bits")
    return given if isinstance(given, int) else site.integer("expert_weight_bits")


def demanded(site: Site, name: str) -> ir.Value:
    """Return an input that the attributes of the node make necessary.

    Raises:
        Refusal: If it is absent.
    """
    value = site.input(name)
    if value is None:
        raise no_form(f"`{site.node.op_type}` has no `{name}`, expected one")
    return value


def demand_dims(site: Site, name: str, *expected: int) -> None:
    """Demand that an input has a shape.

    Raises:
        Refusal: If it has another, or one that is unknown.
    """
    dims = dims_of(demanded(site, name))
    if dims is None or not all(isinstance(dim, int) for dim in dims):
        raise Refusal(
            "unknown-size",
            f"the shape of `{name}` of `{site.node.op_type}` is unknown",
            help="declare it",
        )
    if dims != expected:
        raise no_form(f"`{name}` of `{site.node.op_type}` has shape {dims}, expected {expected}")


# The experts of MoE and QMoE: MatMul over all of them, or over those that were chosen.


_GATED = ("swiglu", "geglu")


@dataclass(frozen=True, slots=True)
class Experts:
    """The sizes of a node: E experts, k of them compute, from H features over I back to H."""

    site: Site
    experts: int
    inner: int
    hidden: int

    @classmethod
    def of(cls, site: Site) -> Experts:
        """Read the sizes of a node.

        Raises:
            Refusal: If the node has no standard form, or a size is unknown.
        """
        op_type, kind, fusion = site.node.op_type, _activation(site), site.integer("swiglu_fusion")
        refuse_value(site, "use_sparse_mixer", 0, 1)
        if kind not in ("identity", "relu", "relu2", "gelu", "silu", *_GATED):
            raise no_form(
                f"`activation_type` of `{op_type}` is `{kind}`, which has no standard form"
            )
        refuse_value(site, "swiglu_fusion", 0, 1, 2)
        if kind == "geglu":
            refuse_value(site, "swiglu_fusion", 1, 2)
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
        if not 1 <= site.integer("k") <= experts:
            raise no_form(f"`k` of `{op_type}` is {site.integer('k')}, expected 1 to {experts}")
        is_fused = kind in _GATED and fusion > 0
        return cls(site, experts, rows // 2 if is_fused else rows, hidden)

    def computed(self, indices: ir.Value, gates: ir.Value, least: float) -> ir.Value:
        """Return the weighted sum of what the experts compute, in the shape of the input.

        Args:
            indices: The experts of each token: (T, k).
            gates: Their weights: (T, k), float32.
            least: Experts with this weight or less are left out of the sum.
        """
        em, x = self.site, self.site.required("input")
        op, dims = em.op, dims_of(x)
        assert dims is not None
        rows = x if len(dims) == 2 else op("Reshape", x, [-1, self.hidden])
        tokens = prod(d for d in dims[:-1] if isinstance(d, int))
        is_known = all(isinstance(dim, int) for dim in dims[:-1])
        if is_known and tokens * self.site.integer("k") < self.experts:
            total = self._of_chosen(rows, indices, gates, (least, tokens))
        else:
            total = self._of_all(rows, indices, gates, least)
        if len(dims) == 2:
            return total
        return op("Reshape", total, em.op("Shape", x), hint="mixed")

    def _of_all(self, rows: ir.Value, indices: ir.Value, gates: ir.Value, least: float) -> ir.Value:
        """Return (T, H), where every expert computes every token; tokens are columns."""
        em, op, router = self.site, self.site.op, self.site.required("router_probs")
        columns = op("Transpose", rows, perm=[1, 0], hint="columns")
        zero = ir.Tensor(np.zeros(1, np.float32))
        shape = em.op("Shape", router)
        none = em.op("ConstantOfShape", shape, value=zero)
        spread = op("ScatterElements", none, indices, gates, axis=1, hint="gates")
        turned = op("Transpose", spread, perm=[1, 0])
        slots = Slots(self.site, self.experts, None, self.experts)
        found = self._weighted(slots, columns, unsqueeze(em, turned, [1]), least)
        total = reduce(em, "ReduceSum", found, [0], keepdims=False)
        return op("Transpose", total, perm=[1, 0], hint="total")

    def _of_chosen(
        self,
        rows: ir.Value,
        indices: ir.Value,
        gates: ir.Value,
        limits: tuple[float, int],
    ) -> ir.Value:
        """Return (T, H), where each pair of a token and an expert that it chose has a slot."""
        em, k, (least, tokens) = self.site, self.site.integer("k"), limits
        count = tokens * k
        chosen = em.op("Reshape", indices, [count], hint="chosen")
        columns = rows
        if tokens > 1 and k > 1:
            columns = em.op("Gather", rows, np.repeat(np.arange(tokens), k), hint="tokens")
        shape = (tokens if tokens == 1 else count, self.hidden, 1)
        columns = reshaped(em, columns, shape)
        slots = Slots(self.site, self.experts, chosen, count)
        turned = reshaped(em, gates, (count, 1, 1))
        found = self._weighted(slots, columns, turned, least)
        apart = reshaped(em, found, (tokens, k, self.hidden))
        return reduce(em, "ReduceSum", apart, [1], keepdims=False)

    def _weighted(self, slots: Slots, columns: ir.Value, gates: ir.Value, least: float) -> ir.Value:
        """Return what the expert of each slot computes, times its weight: (slots, H, columns).

        Args:
            slots: The experts.
            columns: (H, columns), or for each slot (slots, H, columns).
            gates: (slots, 1, columns), float32.
            least: As for `computed`.
        """
        em, op = self.site, self.site.op
        inner = self._inner(slots, columns)
        found = self._product(slots, "fc2", inner, (self.hidden, self.inner))
        weighted = op("Mul", found, cast(em, gates, dtype_of(found)), hint="weighted")
        # An expert that was not chosen may overflow: infinity times 0 would be NaN.
        counts = op("Greater", gates, least)
        return where(em, counts, weighted, 0.0, "counted")

    def _product(
        self, slots: Slots, name: str, columns: ir.Value, shape: tuple[int, int]
    ) -> ir.Value:
        op = self.site.op
        found = op("MatMul", slots.weights(name, *shape), columns, hint=name)
        bias = slots.bias(name, shape[0])
        return found if bias is None else op("Add", found, bias, hint=f"{name}_biased")

    def _inner(self, slots: Slots, columns: ir.Value) -> ir.Value:
        """Return the inner features: (slots, I, columns)."""
        kind, fusion = _activation(self.site), self.site.integer("swiglu_fusion")
        inner, hidden, em = self.inner, self.hidden, self.site
        if kind not in _GATED:
            return _activated(em, kind, self._product(slots, "fc1", columns, (inner, hidden)))
        if fusion == 0:
            gate = self._product(slots, "fc1", columns, (inner, hidden))
            return self._gated(gate, self._product(slots, "fc3", columns, (inner, hidden)))
        both = self._product(slots, "fc1", columns, (2 * inner, hidden))
        if fusion == 2:
            return self._gated(*em.multi("Split", both, [inner, inner], axis=1, count=2))
        gate, linear = (em.op("Slice", both, [first], [2 * inner], [1], [2]) for first in (0, 1))
        return self._gated(gate, linear)

    def _gated(self, gate: ir.Value, linear: ir.Value) -> ir.Value:
        """Return SwiGLU or GEGLU of two products of one shape."""
        site = self.site
        if _activation(site) == "geglu":
            return self.site.op("Mul", _activated(self.site, "gelu", gate), linear)
        limit = site.attribute("swiglu_limit")
        swish = Swish(
            site.real("activation_alpha"),
            site.real("activation_beta"),
            limit if isinstance(limit, float) else None,
            is_later=site.integer("swiglu_limit_after_activation") != 0,
        )
        return swish.product(self.site, gate, linear)


def _activation(site: Site) -> str:
    return site.string("activation_type")


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


def mixture_of_experts(site: Site) -> Replacement:
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
        return only(mixture.computed(*_sparse(mixture, router), 0.0))
    indices, gates = _best(mixture, op("Softmax", router, axis=-1))
    if site.integer("normalize_routing_weights"):
        gates = op("Div", gates, reduce(site, "ReduceSum", gates, [-1]), hint="gates")
    return only(mixture.computed(indices, gates, 0.0))


def quantized_mixture_of_experts(site: Site) -> Replacement:
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
        return only(mixture.computed(*_sparse(mixture, router), 0.0))
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
    return only(mixture.computed(indices, gates, 1e-8))


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
    em = mixture.site
    refuse_value(mixture.site, "k", 2)
    op = em.op
    every = em.constant(np.arange(mixture.experts), "experts")
    rest, taken = logits, None
    chosen, gates = [], []
    for _ in range(2):
        top = reduce(em, "ReduceMax", rest, [1])
        chosen.append(op("ArgMax", rest, axis=1, keepdims=1))
        bound = op("Mul", op("Max", op("Abs", logits), top), _JITTER)
        behind = op("Greater", op("Sub", top, logits), bound)
        out = behind if taken is None else op("Or", behind, taken)
        powers = where(em, out, 0.0, op("Exp", op("Sub", logits, top)))
        gates.append(op("Reciprocal", reduce(em, "ReduceSum", powers, [1])))
        taken = op("Equal", chosen[0], every)
        rest = where(em, taken, -np.inf, logits, "rest")
    return (
        op("Concat", *chosen, axis=1, hint="experts"),
        op("Concat", *gates, axis=1, hint="gates"),
    )
