"""MatMulNBitsMlp and MatMulNBitsQkv of `com.microsoft`, as their documentation composes them.

onnxruntime 1.32.0 has them on GPUs alone. What is named there is rounded where the kernels of its
parts round.
"""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.activation import sigmoid_of
from onnx_kvtool.runtime.kernels.contrib.mat_mul_n_bits import mat_mul_n_bits
from onnx_kvtool.runtime.kernels.contrib.normalization import (
    simplified_layer_normalization,
    skip_simplified_layer_normalization,
)
from onnx_kvtool.runtime.kernels.contrib.refusal import refuse_value
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array, Context

__all__ = ["mat_mul_n_bits_mlp", "mat_mul_n_bits_qkv"]


def mat_mul_n_bits_mlp(
    A: Array,
    skip: Array | None,
    norm_scale: Array | None,
    gate_B: Array,
    gate_scales: Array,
    gate_bias: Array | None,
    up_B: Array,
    up_scales: Array,
    up_bias: Array | None = None,
    *,
    K: int,
    N: int,
    accuracy_level: int,
    activation: str,
    bits: int,
    block_size: int,
    epsilon: float,
    context: Context,
) -> tuple[Array | None, ...]:
    """Multiply the SiLU of one product with another, both of an input that may be normalized.

    Args:
        A: (..., K).
        skip: Of the shape of `A`, added before it is normalized; None for nothing.
        norm_scale: (K,); None where nothing is normalized.
        gate_B: As `B` of `mat_mul_n_bits`, and so the next two.
        gate_scales: Its scales.
        gate_bias: (N,); None for zero.
        up_B: Likewise, of the second product.
        up_scales: Its scales.
        up_bias: (N,); None for zero.
        K: As in `mat_mul_n_bits`, and so the next two.
        N: Columns of both products.
        accuracy_level: Not looked at.
        activation: silu.
        bits: 2, 4 or 8.
        block_size: A power of two from 16 on.
        epsilon: Added to the mean square.
        context: Says which outputs the node has.

    Returns:
        (..., N), and the sum that was normalized.

    Raises:
        KernelError: As for `mat_mul_n_bits`; for `skip` without a scale; for another activation.
    """
    refuse_value("activation", activation, "silu")
    x, total = _normalized(A, skip, norm_scale, epsilon, context.outputs > 1)
    sizes = {"K": K, "accuracy_level": 0, "bits": bits, "block_size": block_size}
    (gate,), (up,) = (
        mat_mul_n_bits(x, packed, scales, None, None, bias, N=N, weight_prepacked=0, **sizes)
        for packed, scales, bias in (
            (gate_B, gate_scales, gate_bias),
            (up_B, up_scales, up_bias),
        )
    )
    with np.errstate(all="ignore"):
        z = widened(gate)
        found = narrowed(np.asarray(z * sigmoid_of(z) * widened(up)), A.dtype)
    return found, total


def mat_mul_n_bits_qkv(
    A: Array,
    skip: Array | None,
    norm_scale: Array,
    q_B: Array,
    q_scales: Array,
    q_bias: Array | None,
    k_B: Array,
    k_scales: Array,
    k_bias: Array | None,
    v_B: Array,
    v_scales: Array,
    v_bias: Array | None = None,
    *,
    K: int,
    Nkv: int,
    Nq: int,
    accuracy_level: int,
    bits: int,
    block_size: int,
    epsilon: float,
    context: Context,
) -> tuple[Array | None, ...]:
    """Return query, key and value of an input that is normalized.

    Args:
        A: (..., K).
        skip: Of the shape of `A`, added before it is normalized; None for nothing.
        norm_scale: (K,).
        q_B: As `B` of `mat_mul_n_bits`, and so all that follow.
        q_scales: Its scales.
        q_bias: (Nq,); None for zero.
        k_B: Likewise, of the key.
        k_scales: Its scales.
        k_bias: (Nkv,); None for zero.
        v_B: Likewise, of the value.
        v_scales: Its scales.
        v_bias: (Nkv,); None for zero.
        K: Columns of `A`.
        Nkv: Columns of key and value.
        Nq: Columns of the query.
        accuracy_level: Not looked at.
        bits: 2, 4 or 8.
        block_size: A power of two from 16 on.
        epsilon: Added to the mean square.
        context: Says which outputs the node has.

    Returns:
        (..., Nq), (..., Nkv) twice, and the sum that was normalized.

    Raises:
        KernelError: As for `mat_mul_n_bits`.
    """
    x, total = _normalized(A, skip, norm_scale, epsilon, context.outputs > 3)
    sizes = {"K": K, "accuracy_level": 0, "bits": bits, "block_size": block_size}
    products = (
        mat_mul_n_bits(x, packed, scales, None, None, bias, N=n, weight_prepacked=0, **sizes)[0]
        for packed, scales, bias, n in (
            (q_B, q_scales, q_bias, Nq),
            (k_B, k_scales, k_bias, Nkv),
            (v_B, v_scales, v_bias, Nkv),
        )
    )
    return (*products, total)


def _normalized(
    x: Array, skip: Array | None, scale: Array | None, epsilon: float, is_summed: bool
) -> tuple[Array, Array | None]:
    """Return what is multiplied, and the sum that was normalized."""
    if skip is None:
        if is_summed:
            raise KernelError("the node has an output of a sum, but no `skip`")
        if scale is None:
            return x, None
        found = simplified_layer_normalization(x, scale, axis=-1, epsilon=epsilon, stash_type=1)
        return found[0], None
    if scale is None:
        raise KernelError("`skip` is given without `norm_scale`")
    y, _, _, total = skip_simplified_layer_normalization(x, skip, scale, epsilon=epsilon)
    return y, total
