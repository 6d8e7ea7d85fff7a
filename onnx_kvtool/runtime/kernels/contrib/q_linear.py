"""Operators on 8-bit codes, QLinear* of `com.microsoft`: numbers, the operator, codes.

onnxruntime 1.32 looks some of them up in tables or adds fixed-point numbers, and may be one code
away.
"""

from __future__ import annotations

import numpy as np

from onnx_kvtool.runtime.errors import KernelError
from onnx_kvtool.runtime.kernels.activation import sigmoid_of
from onnx_kvtool.runtime.kernels.axes import count_axis
from onnx_kvtool.runtime.kernels.contrib.codes import codes_of, numbers_of
from onnx_kvtool.runtime.kernels.kernel import Array
from onnx_kvtool.runtime.kernels.normalization.softmax import softmax_1, softmax_13
from onnx_kvtool.runtime.kernels.windows import (
    Sliding,
    average_pooled,
    convolved,
    in_front,
    to_the_end,
)

__all__ = [
    "q_linear_add",
    "q_linear_average_pool",
    "q_linear_concat",
    "q_linear_conv",
    "q_linear_global_average_pool",
    "q_linear_leaky_relu",
    "q_linear_mul",
    "q_linear_sigmoid",
    "q_linear_softmax",
    "q_linear_where",
]

_Ints = tuple[int, ...] | None


def q_linear_add(
    A: Array,
    A_scale: Array,
    A_zero_point: Array | None,
    B: Array,
    B_scale: Array,
    B_zero_point: Array | None,
    C_scale: Array,
    C_zero_point: Array | None = None,
) -> tuple[Array]:
    """Add numbers that broadcast to each other; zero points that are None are 0."""
    total = numbers_of(A, A_scale, A_zero_point, "A") + numbers_of(B, B_scale, B_zero_point, "B")
    return (codes_of(total, C_scale, C_zero_point, A.dtype, "C"),)


def q_linear_mul(
    A: Array,
    A_scale: Array,
    A_zero_point: Array | None,
    B: Array,
    B_scale: Array,
    B_zero_point: Array | None,
    C_scale: Array,
    C_zero_point: Array | None = None,
) -> tuple[Array]:
    """Multiply numbers that broadcast to each other; zero points that are None are 0."""
    product = numbers_of(A, A_scale, A_zero_point, "A") * numbers_of(B, B_scale, B_zero_point, "B")
    return (codes_of(product, C_scale, C_zero_point, A.dtype, "C"),)


def q_linear_sigmoid(
    X: Array,
    X_scale: Array,
    X_zero_point: Array | None,
    Y_scale: Array,
    Y_zero_point: Array | None = None,
) -> tuple[Array]:
    """Return 1 / (1 + exp(-x))."""
    y = sigmoid_of(numbers_of(X, X_scale, X_zero_point, "X"))
    return (codes_of(y, Y_scale, Y_zero_point, X.dtype, "Y"),)


def q_linear_leaky_relu(
    X: Array,
    X_scale: Array,
    X_zero_point: Array | None,
    Y_scale: Array,
    Y_zero_point: Array | None = None,
    *,
    alpha: float,
) -> tuple[Array]:
    """Return x, or alpha * x where that is negative."""
    x = numbers_of(X, X_scale, X_zero_point, "X")
    y = np.where(x >= 0, x, x * np.float32(alpha))
    return (codes_of(y, Y_scale, Y_zero_point, X.dtype, "Y"),)


def q_linear_softmax(
    X: Array,
    X_scale: Array,
    x_zero_point: Array | None,
    y_scale: Array,
    y_zero_point: Array,
    *,
    axis: int,
    opset: int,
) -> tuple[Array]:
    """Return the softmax along `axis`, or with an `opset` below 13 over all axes from it on."""
    x = numbers_of(X, X_scale, x_zero_point, "X")
    (y,) = softmax_13(x, axis=axis) if opset >= 13 else softmax_1(x, axis=axis)
    return (codes_of(y, y_scale, y_zero_point, X.dtype, "Y"),)


def q_linear_where(
    condition: Array,
    X: Array,
    x_scale: Array,
    x_zero_point: Array,
    Y: Array,
    y_scale: Array,
    y_zero_point: Array,
    z_scale: Array,
    z_zero_point: Array,
) -> tuple[Array]:
    """Choose between numbers that broadcast to each other."""
    yes, no = numbers_of(X, x_scale, x_zero_point, "X"), numbers_of(Y, y_scale, y_zero_point, "Y")
    return (codes_of(np.where(condition, yes, no), z_scale, z_zero_point, X.dtype, "Z"),)


def q_linear_concat(Y_scale: Array, Y_zero_point: Array, *inputs: Array, axis: int) -> tuple[Array]:
    """Join numbers.

    Args:
        Y_scale: Of the result.
        Y_zero_point: Of the result, whose type it has.
        inputs: Codes, scale and zero point of each part.
        axis: Along which they are joined.

    Raises:
        KernelError: If there are not three inputs for each part.
    """
    if len(inputs) % 3 or not inputs:
        raise KernelError(f"there are {len(inputs)} inputs behind the zero point, expected threes")
    threes = zip(inputs[::3], inputs[1::3], inputs[2::3], strict=True)
    parts = [numbers_of(*three, f"part {place}") for place, three in enumerate(threes)]
    joined = np.concatenate(parts, count_axis(axis, parts[0].ndim, of="inputs"))
    return (codes_of(joined, Y_scale, Y_zero_point, Y_zero_point.dtype, "Y"),)


def q_linear_global_average_pool(
    X: Array,
    x_scale: Array,
    x_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
    *,
    channels_last: int,
) -> tuple[Array]:
    """Return the mean of each channel: (N, C, 1, ...), or (N, 1, ..., C)."""
    x = numbers_of(X, x_scale, x_zero_point, "X")
    first = 1 if channels_last else 2
    mean = x.mean(axis=tuple(range(first, first + x.ndim - 2)), keepdims=True)
    return (codes_of(mean, y_scale, y_zero_point, X.dtype, "Y"),)


def q_linear_average_pool(
    X: Array,
    x_scale: Array,
    x_zero_point: Array | None,
    y_scale: Array,
    y_zero_point: Array | None = None,
    *,
    auto_pad: str,
    ceil_mode: int,
    channels_last: int,
    count_include_pad: int,
    kernel_shape: tuple[int, ...],
    pads: _Ints,
    strides: _Ints,
) -> tuple[Array]:
    """Return the mean of each window, channels at axis 1 or last."""
    x = numbers_of(X, x_scale, x_zero_point, "X")
    sliding = Sliding(auto_pad, None, pads, strides, ceil_mode != 0)
    counts = count_include_pad != 0
    if channels_last:
        mean = average_pooled(in_front(x), kernel_shape, sliding, counts_padding=counts)
        mean = to_the_end(mean)
    else:
        mean = average_pooled(x, kernel_shape, sliding, counts_padding=counts)
    return (codes_of(mean, y_scale, y_zero_point, X.dtype, "Y"),)


def q_linear_conv(
    x: Array,
    x_scale: Array,
    x_zero_point: Array,
    w: Array,
    w_scale: Array,
    w_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
    B: Array | None = None,
    *,
    auto_pad: str,
    channels_last: int,
    dilations: _Ints,
    group: int,
    kernel_shape: _Ints,
    pads: _Ints,
    strides: _Ints,
) -> tuple[Array]:
    """Convolve codes exactly, add an int32 bias, and scale.

    Args:
        x: (N, C, ...), or (N, ..., C) if `channels_last`; the padding is its zero point.
        x_scale: One element.
        x_zero_point: One element.
        w: (M, C / group, kernel...), in either case.
        w_scale: One element, or (M,).
        w_zero_point: Likewise.
        y_scale: One element.
        y_zero_point: One element, of the type of the result.
        B: (M,), of scale x_scale * w_scale; None for 0.
        auto_pad: See `Sliding`, as the rest.
        channels_last: Where the channels of `x` and the result are.
        dilations: For each axis.
        group: Groups of channels.
        kernel_shape: That of `w`; not looked at.
        pads: For each axis.
        strides: For each axis.

    Raises:
        KernelError: If shapes do not fit.
    """
    column = (-1, *[1] * (w.ndim - 1))
    front = in_front(x) if channels_last else x
    data = front.astype(np.float64) - float(x_zero_point.reshape(()))
    filters = w.astype(np.float64) - w_zero_point.astype(np.float64).reshape(column)
    total = convolved(data, filters, Sliding(auto_pad, dilations, pads, strides), group)
    per = (1, -1, *[1] * (w.ndim - 2))
    if B is not None:
        total = total + B.astype(np.float64).reshape(per)
    scaled = total * (w_scale.astype(np.float64).reshape(per) * float(x_scale.reshape(())))
    y = codes_of(scaled, y_scale, y_zero_point, y_zero_point.dtype, "y")
    return (to_the_end(y) if channels_last else y,)
