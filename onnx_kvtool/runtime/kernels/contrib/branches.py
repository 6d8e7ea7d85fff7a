"""Streams of features that lie side by side, of `com.microsoft`: normalized, mixed and gated.

Semantics are those of the text that onnxruntime 1.32.0 registers, and of its kernels for CPUs.
Everything is computed in float32, and rounded where the text says.
"""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.activation import sigmoid_of
from onnx_kvtool.runtime.kernels.elementwise.binary import narrowed, widened
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.layer import Reals, check_shape

__all__ = [
    "branchwise_rms_norm",
    "engram_gate",
    "hyper_connection_post_mix",
    "hyper_connection_pre_mix",
]


def branchwise_rms_norm(
    X: Array, scale: Array | None = None, *, epsilon: float, num_branches: int
) -> tuple[Array]:
    """Divide each branch by the root of its mean square, and scale it.

    Args:
        X: (..., C, H), or with `num_branches` (..., C * H).
        scale: (C * H,), (C, H) or (H,), of any type of float; None for 1.
        epsilon: Added to the mean square.
        num_branches: C of streams that lie side by side; 0 for separate ones.

    Returns:
        One array of the shape and type of `X`.

    Raises:
        KernelError: For another shape.
    """
    x = _apart("X", X, num_branches)
    with np.errstate(all="ignore"):
        y = _normalized(x, epsilon)
        if scale is not None:
            if scale.shape not in ((x.shape[-1],), x.shape[-2:], (x.shape[-2] * x.shape[-1],)):
                raise KernelError(f"`scale` has shape {scale.shape}, of branches {x.shape[-2:]}")
            y = y * (
                s if len(s := widened(scale).ravel()) == x.shape[-1] else s.reshape(x.shape[-2:])
            )
        return (narrowed(y.reshape(X.shape), X.dtype),)


def hyper_connection_pre_mix(
    streams: Array, pre_mix: Array, *, num_branches: int, reduction_scale: float
) -> tuple[Array]:
    """Add up branches, each times its gate.

    Args:
        streams: (..., C, H), or with `num_branches` (..., C * H).
        pre_mix: (..., C), (..., C, 1) or (..., C, H), or with `num_branches` (..., C * H), of any
            type of float.
        num_branches: C of streams that lie side by side; 0 for separate ones.
        reduction_scale: Factor of the sum.

    Returns:
        (..., H), of the type of `streams`.

    Raises:
        KernelError: For another shape.
    """
    x = _apart("streams", streams, num_branches)
    with np.errstate(all="ignore"):
        gates = np.broadcast_to(_gates("pre_mix", pre_mix, x, num_branches > 0), x.shape)
        total = np.einsum("...ch,...ch->...h", x, gates) * np.float32(reduction_scale)
        return (narrowed(np.asarray(total), streams.dtype),)


def hyper_connection_post_mix(
    streams: Array,
    block_output: Array,
    post_mix: Array,
    stream_mix: Array | None = None,
    *,
    num_branches: int,
) -> tuple[Array]:
    """Mix branches with each other, and add the output of a block to each, times its gate.

    Args:
        streams: (..., C, H), or with `num_branches` (..., C * H).
        block_output: (..., H).
        post_mix: (..., C), (..., C, 1) or (..., C, H), of any type of float.
        stream_mix: (..., C, C), of which column k says what branch k is made of; None to leave
            branches as they are.
        num_branches: C of streams that lie side by side; 0 for separate ones.

    Returns:
        One array of the shape and type of `streams`.

    Raises:
        KernelError: For another shape.
    """
    x = _apart("streams", streams, num_branches)
    check_shape("block_output", block_output.shape, (*x.shape[:-2], x.shape[-1]), "(..., H)")
    with np.errstate(all="ignore"):
        y = x
        if stream_mix is not None:
            square = (*x.shape[:-1], x.shape[-2])
            check_shape("stream_mix", stream_mix.shape, square, "(..., C, C)")
            y = np.einsum("...ck,...ch->...kh", widened(stream_mix), x)
        gates = _gates("post_mix", post_mix, x, False)
        y = y + gates * widened(block_output)[..., None, :]
        return (narrowed(np.asarray(y.reshape(streams.shape)), streams.dtype),)


def engram_gate(
    key: Array,
    query: Array,
    value: Array,
    key_norm_scale: Array,
    query_norm_scale: Array,
    conv_norm_scale: Array | None = None,
    *,
    epsilon: float,
) -> tuple[Array, ...]:
    """Multiply a value with a gate of how much keys and queries are alike.

    Args:
        key: (B, L, C, H).
        query: Of the shape of `key`.
        value: (B, L, H).
        key_norm_scale: (C, H).
        query_norm_scale: (C, H).
        conv_norm_scale: (C, H), the scale of the second output; None where nobody asks for it.
        epsilon: Added to each mean square.

    Returns:
        (B, L, C, H), and the same normalized where there is a scale for it; of the type of `key`.

    Raises:
        KernelError: For another shape.
    """
    if key.ndim != 4:
        raise KernelError(f"`key` has shape {key.shape}, expected (B, L, C, H)")
    check_shape("query", query.shape, key.shape, "that of `key`")
    check_shape("value", value.shape, (*key.shape[:2], key.shape[3]), "(B, L, H)")
    with np.errstate(all="ignore"):
        k = _normalized(widened(key), epsilon) * widened(key_norm_scale)
        q = _normalized(widened(query), epsilon) * widened(query_norm_scale)
        dot = np.einsum("blch,blch->blc", k, q) / np.sqrt(np.float32(key.shape[-1]))
        root = np.copysign(np.sqrt(np.maximum(np.abs(dot), np.float32(1e-6))), dot)
        gate = sigmoid_of(np.where(dot == 0, np.float32(0), root))
        gated = gate[..., None] * widened(value)[:, :, None]
        found = (narrowed(np.asarray(gated), key.dtype),)
        if conv_norm_scale is None:
            return found
        normed = _normalized(gated, epsilon) * widened(conv_norm_scale)
        return (*found, narrowed(np.asarray(normed), key.dtype))


def _apart(name: str, x: Array, branches: int) -> Reals:
    """Return streams in float32: (..., C, H)."""
    if branches == 0 and x.ndim > 1:
        return widened(x)
    if branches < 1 or x.ndim < 1 or x.shape[-1] % branches:
        raise KernelError(f"`{name}` has shape {x.shape}, which is not that of {branches} branches")
    return widened(x).reshape(*x.shape[:-1], branches, x.shape[-1] // branches)


def _gates(name: str, given: Array, x: Reals, is_flat: bool) -> Reals:
    """Return gates that broadcast to streams (..., C, H)."""
    *front, branches, width = x.shape
    if given.shape == (*front, branches):
        return widened(given)[..., None]
    if is_flat and given.shape == (*front, branches * width):
        return widened(given).reshape(x.shape)
    if given.shape not in ((*front, branches, 1), x.shape):
        raise KernelError(f"`{name}` has shape {given.shape}, of streams {x.shape}")
    return widened(given)


def _normalized(x: Reals, epsilon: float) -> Reals:
    """Return what lies along the last axis, divided by the root of its mean square."""
    squares = np.einsum("...h,...h->...", x, x)[..., None] / np.float32(x.shape[-1])
    return np.asarray(x / np.sqrt(squares + np.float32(epsilon)))
