"""Activations, with a bias or a gate beside them."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.contrib.heads import known_size
from onnx_kvtool.contrib.rule import (
    Site,
    given,
    is_read,
    known_rank,
    known_type,
    no_form,
    refuse_value,
)
from onnx_kvtool.emit.emitter import Emitter, Replacement
from onnx_kvtool.emit.forms import cast, dtype_of, halves, outputs_of
from onnx_kvtool.ops.view import counted_axis
from onnx_kvtool.symbolic.dimensions import dim_of, dims_of

# The Gelus, Dropout and Softmax of `com.microsoft`.


def gelu(site: Site) -> ir.Value:
    """Write Gelu as the Gelu-20 of ONNX."""
    return site.op("Gelu", site.required("X"))


def bias_gelu(site: Site) -> ir.Value:
    """Write BiasGelu as Add and Gelu-20."""
    return site.op("Gelu", site.op("Add", *site.operands("A", "B")))


def fast_gelu(site: Site) -> ir.Value:
    """Write FastGelu as Add, where it has a bias, and Gelu-20 of `tanh`."""
    return _biased_gelu(site, site.required("X"))


def quick_gelu(site: Site) -> ir.Value:
    """Write QuickGelu as x * Sigmoid(alpha * x)."""
    x, alpha, op = site.required("X"), site.real("alpha"), site.op
    scaled = x if alpha == 1.0 else op("Mul", x, alpha, hint="scaled")
    return op("Mul", x, op("Sigmoid", scaled))


def gemm_fast_gelu(site: Site) -> ir.Value:
    """Write GemmFastGelu as MatMul, Add, where it has a bias, and Gelu-20 of `tanh`."""
    return _biased_gelu(site, site.op("MatMul", *site.operands("X", "W")))


def _biased_gelu(site: Site, x: ir.Value) -> ir.Value:
    bias = site.input("bias")
    return site.op("Gelu", x if bias is None else site.op("Add", x, bias), approximate="tanh")


def bias_softmax(site: Site) -> ir.Value:
    """Write BiasSoftmax as Add and Softmax-13; the sum goes over all axes from `axis` on.

    The bias broadcasts as in the Add that the optimiser has fused, whatever `is_inner_broadcast`
    says.
    """
    x, bias = site.operands("data", "bias")
    total, rank = site.op("Add", x, bias), known_rank(site, x)
    axis = counted_axis(site.integer("axis"), rank, "axis")
    if axis == rank - 1:
        return site.op("Softmax", total, axis=-1)
    return softmax_from(site, total, axis, x)


def softmax_from(em: Emitter, scores: ir.Value, axis: int, like: ir.Value) -> ir.Value:
    """Return the softmax over all axes from `axis` on, in the shape of `like`."""
    op = em.op
    flat = op("Softmax", op("Flatten", scores, axis=axis), axis=-1)
    return op("Reshape", flat, op("Shape", like))


def bias_split_gelu(site: Site) -> ir.Value:
    """Write BiasSplitGelu as Add, and the first half of the last axis times Gelu of the second."""
    first, second = halves(site, site.op("Add", *site.operands("X", "bias")))
    return site.op("Mul", first, site.op("Gelu", second))


def bias_dropout(site: Site) -> Replacement:
    """Write BiasDropout as Add, Dropout-13 where it may do something, and Add of the residual."""
    x, residual = site.required("data"), site.input("residual")
    ratio, training = site.input("ratio"), site.input("training_mode")
    result, mask = site.op("Add", x, site.required("bias")), None
    if training is not None or is_read(site, 1):
        seed = given(site, "seed")
        result, mask = site.multi("Dropout", result, ratio, training, attributes=seed, count=2)
    if residual is not None:
        result = site.op("Add", result, residual)
    return outputs_of(site.node, result, mask)


# Gates of recent decoders: what a product, a sum or a normalization is multiplied by.


_D = ir.DataType


def scaled_silu(site: Site) -> ir.Value:
    """Write ScaledSiLU as Mul, Sigmoid and Mul, each rounded to the type of `X`.

    A factor that has another type, or more digits, is multiplied in float32.
    """
    x, scale, alpha = site.required("X"), site.input("scale"), site.real("alpha")
    dtype, op = known_type(x), site.op
    is_constant = scale is None
    if scale is not None:
        is_narrow = known_type(scale) == dtype
        if dims_of(scale) not in (None, ()):
            raise no_form(f"`scale` of `ScaledSiLU` has shape {dims_of(scale)}, expected a scalar")
    else:
        is_narrow = float(dtype.numpy().type(alpha)) == alpha
        scale = site.constant(np.array(alpha, (dtype if is_narrow else _D.FLOAT).numpy()), "alpha")
    if is_constant and alpha == 1.0:
        scaled = x
    elif is_narrow:
        scaled = op("Mul", x, scale, hint="scaled")
    else:
        wide = op("Mul", cast(site, x, _D.FLOAT), cast(site, scale, _D.FLOAT))
        scaled = cast(site, wide, dtype, "scaled")
    return op("Mul", scaled, op("Sigmoid", scaled))


def gated_add(site: Site) -> ir.Value:
    """Write GatedAdd as Mul and Add.

    With `gate_weight` (onnxruntime has a kernel only for bfloat16 on GPUs) the gate is the sigmoid
    of a MatMul, computed in float32 and rounded where the documentation says.
    """
    x, y, gate = site.operands("X", "Y", "gate")
    op, dtype, weight = site.op, known_type(x), site.input("gate_weight")
    if weight is not None:
        if dtype != _D.BFLOAT16:
            raise no_form(
                f"`gate_weight` of `GatedAdd` is given beside {dtype.name}, which onnxruntime "
                "has for bfloat16 alone"
            )
        product = op("MatMul", cast(site, gate, _D.FLOAT), cast(site, weight, _D.FLOAT))
        rounded = cast(site, cast(site, product, dtype), _D.FLOAT)
        gate = cast(site, op("Sigmoid", rounded), dtype, "gate")
    return op("Add", x, op("Mul", y, gate, hint="gated"))


def gated_rms_norm(site: Site) -> ir.Value:
    """Write GatedRMSNorm as RMSNormalization-23, Sigmoid and Mul, all in float32.

    A last axis of several groups as wide as `scale` is divided for the normalization.
    """
    refuse_value(site, "activation", "silu", "swish", "sigmoid")
    x, scale, op = site.required("X"), site.required("scale"), site.op
    width = known_size(scale, 0, "the width of `scale` of `GatedRMSNorm`")
    whole = known_size(x, -1, "the last dimension of `X` of `GatedRMSNorm`")
    if width < 1 or whole % width:
        raise no_form(
            f"`X` of `GatedRMSNorm` is {whole} wide, expected a multiple of {width}, the width of "
            "`scale`"
        )
    front = [0] * (len(dims_of(x) or ()) - 1)
    rows = cast(site, x, _D.FLOAT)
    if whole != width:
        rows = op("Reshape", rows, [*front, whole // width, width])
    rows = op(
        "RMSNormalization", rows, cast(site, scale, _D.FLOAT), axis=-1, epsilon=site.real("epsilon")
    )
    if whole != width:
        rows = op("Reshape", rows, [*front, whole])
    gate = cast(site, site.required("gate"), _D.FLOAT)
    factor = op("Sigmoid", gate)
    if site.string("activation") != "sigmoid":
        factor = op("Mul", gate, factor, hint="silu")
    return cast(site, op("Mul", rows, factor), known_type(x))


def swiglu(site: Site) -> ir.Value:
    """Write SwiGLU of `com.microsoft` as Clip, Sigmoid and Mul in float32.

    Without `up` the last axis is split in halves first.
    """
    gate, up = site.required("gate"), site.input("up")
    dtype = known_type(gate)
    if up is None:
        last = dim_of(gate, -1)
        if isinstance(last, int) and last % 2:
            raise no_form(
                f"`gate` of `SwiGLU` without `up` is {last} wide, expected an even number"
            )
        gate, up = halves(site, gate)
    limit, is_rounded = site.real("limit"), site.number("round_activation")
    found = swish_product(
        site,
        cast(site, gate, _D.FLOAT),
        cast(site, up, _D.FLOAT),
        alpha=site.real("activation_alpha"),
        beta=site.real("activation_beta"),
        limit=limit if limit > 0 else None,
        round_to=dtype if is_rounded else None,
    )
    return cast(site, found, dtype, "gated")


def swish_product(
    em: Emitter,
    gate: ir.Value,
    linear: ir.Value,
    *,
    alpha: float,
    beta: float,
    limit: float | None,
    is_later: bool = False,
    round_to: ir.DataType | None = None,
) -> ir.Value:
    """Return gate * sigmoid(alpha * gate) * (linear + beta), the clamped SwiGLU of onnxruntime.

    `limit` bounds both halves, but the gate only from above. `is_later`: the gate is bounded after
    its activation. The activation is rounded to `round_to` before the last product.
    """
    op = em.op
    # Not Min and Max: of float16 they spoil other values in onnxruntime 1.17.3 to 1.19.2. With
    # both bounds: 1.19.2 takes 0 for one of float16 that is absent.
    if limit is not None:
        linear = op("Clip", linear, -limit, limit)
        if not is_later:
            gate = op("Clip", gate, -np.inf, limit)
    turned = gate if alpha == 1.0 else op("Mul", gate, alpha)
    swish = op("Mul", gate, op("Sigmoid", turned))
    if limit is not None and is_later:
        swish = op("Clip", swish, -np.inf, limit)
    if round_to is not None:
        swish = cast(em, cast(em, swish, round_to), dtype_of(gate))
    return op("Mul", swish, op("Add", linear, beta) if beta else linear, hint="gated")
