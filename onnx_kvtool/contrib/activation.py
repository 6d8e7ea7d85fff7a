"""Activations, with a bias or a gate beside them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.block_quantized import known_type
from onnx_kvtool.contrib.heads import dim_of, known_size
from onnx_kvtool.contrib.rule import is_read, known_rank, only, refuse_value
from onnx_kvtool.emit.emitter import Emitter, Refusal, Replacement
from onnx_kvtool.emit.forms import cast, dtype_of
from onnx_kvtool.ops.view import NodeView, counted_axis
from onnx_kvtool.symbolic.dimensions import dims_of

# The Gelus, Dropout and Softmax of `com.microsoft`.


def gelu(view: NodeView, em: Emitter) -> Replacement:
    """Write Gelu as the Gelu-20 of ONNX."""
    x = view.required("X")
    return only(em.op("Gelu", x))


def bias_gelu(view: NodeView, em: Emitter) -> Replacement:
    """Write BiasGelu as Add and Gelu-20."""
    return only(em.op("Gelu", em.op("Add", view.required("A"), view.required("B"))))


def fast_gelu(view: NodeView, em: Emitter) -> Replacement:
    """Write FastGelu as Add, where it has a bias, and Gelu-20 of `tanh`."""
    x, bias = view.required("X"), view.input("bias")
    op = em.op
    total = x if bias is None else op("Add", x, bias)
    return only(op("Gelu", total, approximate="tanh"))


def quick_gelu(view: NodeView, em: Emitter) -> Replacement:
    """Write QuickGelu as x * Sigmoid(alpha * x)."""
    x, alpha, op = view.required("X"), view.real("alpha"), em.op
    scaled = x if alpha == 1.0 else op("Mul", x, alpha, hint="scaled")
    return only(op("Mul", x, op("Sigmoid", scaled)))


def gemm_fast_gelu(view: NodeView, em: Emitter) -> Replacement:
    """Write GemmFastGelu as MatMul, Add, where it has a bias, and Gelu-20 of `tanh`."""
    x, bias = view.required("X"), view.input("bias")
    op = em.op
    total = op("MatMul", x, view.required("W"))
    total = total if bias is None else op("Add", total, bias)
    return only(op("Gelu", total, approximate="tanh"))


def bias_softmax(view: NodeView, em: Emitter) -> Replacement:
    """Write BiasSoftmax as Add and Softmax-13; all axes from `axis` on are one.

    The bias broadcasts as in ONNX, which is what the optimiser has made the operator of, whatever
    `is_inner_broadcast` says.
    """
    x = view.required("data")
    op = em.op
    total, rank = op("Add", x, view.required("bias")), known_rank(view, x)
    axis = counted_axis(view.integer("axis"), rank, "axis")
    if axis == rank - 1:
        return only(op("Softmax", total, axis=-1))
    flat = op("Flatten", total, axis=axis)
    flat = op("Softmax", flat, axis=-1)
    return only(op("Reshape", flat, em.op("Shape", x)))


def bias_split_gelu(view: NodeView, em: Emitter) -> Replacement:
    """Write BiasSplitGelu as Add, and the first half of the last axis times Gelu of the second."""
    x = view.required("X")
    op = em.op
    total = op("Add", x, view.required("bias"))
    halves = em.multi("Split", total, axis=-1, num_outputs=2, count=2)
    return only(op("Mul", halves[0], op("Gelu", halves[1])))


def bias_dropout(view: NodeView, em: Emitter) -> Replacement:
    """Write BiasDropout as Add, Dropout-13 where it may do something, and Add of the residual."""
    x, residual = view.required("data"), view.input("residual")
    op, training = em.op, view.input("training_mode")
    result, mask = op("Add", x, view.required("bias")), None
    if training is not None or is_read(view, 1):
        seed = view.attribute("seed")
        result, mask = em.multi(
            "Dropout",
            result,
            view.input("ratio"),
            training,
            attributes={} if seed is None else {"seed": seed},
            count=2,
        )
    if residual is not None:
        result = op("Add", result, residual)
    return only(result, *([mask] if len(view.node.outputs) > 1 else []))


# Gates of recent decoders: what a product, a sum or a normalization is multiplied by.


_D = ir.DataType


def scaled_silu(view: NodeView, em: Emitter) -> Replacement:
    """Write ScaledSiLU as Mul, Sigmoid and Mul, each rounded to the type of `X`.

    A factor that has another type, or more digits, is multiplied in float32.
    """
    x, given, alpha = view.required("X"), view.input("scale"), view.attribute("alpha")
    dtype = known_type(x)
    op = em.op
    assert isinstance(alpha, float)
    if given is not None:
        is_narrow = known_type(given) == dtype
        if dims_of(given) not in (None, ()):
            raise Refusal(
                "contrib-form",
                f"`scale` of `ScaledSiLU` has shape {dims_of(given)}, expected a scalar",
            )
        scale = given
    else:
        is_narrow = float(dtype.numpy().type(alpha)) == alpha
        scale = em.constant(np.array(alpha, (dtype if is_narrow else _D.FLOAT).numpy()), "alpha")
    if given is None and alpha == 1.0:
        scaled = x
    elif is_narrow:
        scaled = op("Mul", x, scale, hint="scaled")
    else:
        wide = op("Mul", cast(em, x, _D.FLOAT), cast(em, scale, _D.FLOAT))
        scaled = cast(em, wide, dtype, "scaled")
    return only(op("Mul", scaled, op("Sigmoid", scaled)))


def gated_add(view: NodeView, em: Emitter) -> Replacement:
    """Write GatedAdd as Mul and Add.

    With `gate_weight` (onnxruntime has a kernel only for bfloat16 on GPUs) the gate is
    the sigmoid of a MatMul, computed in float32 and rounded where the documentation says.
    """
    x, y, gate, weight = (view.required("X"), view.required("Y"), view.required("gate"),
                          view.input("gate_weight"))  # fmt: skip
    op, dtype = em.op, known_type(x)
    if weight is not None:
        if dtype != _D.BFLOAT16:
            raise Refusal(
                "contrib-form",
                f"`gate_weight` of `GatedAdd` is given beside {dtype.name}, which onnxruntime "
                "has for bfloat16 alone",
            )
        product = op("MatMul", cast(em, gate, _D.FLOAT), cast(em, weight, _D.FLOAT))
        rounded = cast(em, cast(em, product, dtype), _D.FLOAT)
        gate = cast(em, op("Sigmoid", rounded), dtype, "gate")
    return only(op("Add", x, op("Mul", y, gate, hint="gated")))


def gated_rms_norm(view: NodeView, em: Emitter) -> Replacement:
    """Write GatedRMSNorm as RMSNormalization-23, Sigmoid and Mul, all in float32.

    A last axis of several groups as wide as `scale` is divided for the normalization.
    """
    refuse_value(view, "activation", "silu", "swish", "sigmoid")
    x, scale, op = view.required("X"), view.required("scale"), em.op
    width = known_size(scale, 0, "the width of `scale` of `GatedRMSNorm`")
    whole = known_size(x, -1, "the last dimension of `X` of `GatedRMSNorm`")
    if width < 1 or whole % width:
        raise Refusal(
            "contrib-form",
            f"`X` of `GatedRMSNorm` is {whole} wide, expected a multiple of {width}, the width of "
            "`scale`",
        )
    front = [0] * (len(dims_of(x) or ()) - 1)
    rows = cast(em, x, _D.FLOAT)
    if whole != width:
        rows = op("Reshape", rows, [*front, whole // width, width])
    rows = op(
        "RMSNormalization", rows, cast(em, scale, _D.FLOAT), axis=-1, epsilon=view.real("epsilon")
    )
    if whole != width:
        rows = op("Reshape", rows, [*front, whole])
    gate = cast(em, view.required("gate"), _D.FLOAT)
    factor = op("Sigmoid", gate)
    if view.string("activation") != "sigmoid":
        factor = op("Mul", gate, factor, hint="silu")
    return only(cast(em, op("Mul", rows, factor), known_type(x)))


def swiglu(view: NodeView, em: Emitter) -> Replacement:
    """Write SwiGLU of `com.microsoft` as Clip, Sigmoid and Mul in float32.

    Without `up` the last axis is split in halves first.
    """
    gate, up = view.required("gate"), view.input("up")
    dtype = known_type(gate)
    if up is None:
        last = dim_of(gate, -1)
        if isinstance(last, int) and last % 2:
            raise Refusal(
                "contrib-form",
                f"`gate` of `SwiGLU` without `up` is {last} wide, expected an even number",
            )
        gate, up = em.multi("Split", gate, axis=-1, num_outputs=2, count=2)
    return only(Swish.of(view, round_to=dtype).gated(em, gate, up, dtype))


@dataclass(frozen=True, slots=True)
class Swish:
    """gate * sigmoid(alpha * gate) * (linear + beta), the clamped SwiGLU of onnxruntime.

    Attributes:
        alpha: Factor in the sigmoid.
        beta: What is added to the linear half.
        limit: Bound of both, of the gate from above alone; None for none.
        is_later: Whether the gate is bounded behind its activation.
        round_to: The type that the activation is rounded to before the last product; None for none.
    """

    alpha: float = 1.0
    beta: float = 0.0
    limit: float | None = None
    is_later: bool = False
    round_to: ir.DataType | None = None

    @classmethod
    def of(cls, view: NodeView, *, round_to: ir.DataType) -> Swish:
        """Read the attributes of SwiGLU, or of an operator that has them."""
        limit = view.real("limit")
        is_rounded = "round_activation" in view.facts.attributes and view.integer(
            "round_activation"
        )
        return cls(
            view.real("activation_alpha"),
            view.real("activation_beta"),
            limit if limit > 0 else None,
            round_to=round_to if is_rounded else None,
        )

    def gated(self, em: Emitter, gate: ir.Value, linear: ir.Value, result: ir.DataType) -> ir.Value:
        """Return the product of two values of one shape, computed in float32."""
        found = self.product(em, cast(em, gate, _D.FLOAT), cast(em, linear, _D.FLOAT))
        return cast(em, found, result, "gated")

    def product(self, em: Emitter, gate: ir.Value, linear: ir.Value) -> ir.Value:
        """Return the product of two values of one shape, computed in their type."""
        op = em.op
        # Not Min and Max: of float16 they spoil other values in onnxruntime 1.17.3 to 1.19.2. With
        # both bounds: 1.19.2 takes 0 for one of float16 that is absent.
        if self.limit is not None:
            linear = op("Clip", linear, -self.limit, self.limit)
            if not self.is_later:
                gate = op("Clip", gate, -np.inf, self.limit)
        turned = gate if self.alpha == 1.0 else op("Mul", gate, self.alpha)
        swish = op("Mul", gate, op("Sigmoid", turned))
        if self.limit is not None and self.is_later:
            swish = op("Clip", swish, -np.inf, self.limit)
        if self.round_to is not None:
            swish = cast(em, cast(em, swish, self.round_to), dtype_of(gate))
        shifted = op("Add", linear, self.beta) if self.beta else linear
        return op("Mul", swish, shifted, hint="gated")
