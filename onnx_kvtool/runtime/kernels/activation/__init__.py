"""Activations, element by element."""

from __future__ import annotations

from onnx_kvtool.runtime.kernels.activation.exponential import celu_12, elu_1, selu_1
from onnx_kvtool.runtime.kernels.activation.piecewise import (
    hard_sigmoid_1,
    hard_swish_14,
    shrink_9,
)
from onnx_kvtool.runtime.kernels.activation.rectified import (
    leaky_relu_1,
    p_relu_1,
    p_relu_7,
    relu_1,
    thresholded_relu_10,
)
from onnx_kvtool.runtime.kernels.activation.smooth import (
    gelu_20,
    mish_18,
    sigmoid_1,
    softplus_1,
    softsign_1,
    swi_glu_28,
    swish_24,
)
from onnx_kvtool.runtime.kernels.kernel import Kernel

__all__ = ["LINES"]

LINES: tuple[tuple[str, tuple[Kernel, ...]], ...] = (
    ("Celu", (Kernel(12, celu_12),)),
    ("Elu", (Kernel(1, elu_1),)),
    ("Gelu", (Kernel(20, gelu_20),)),
    ("HardSigmoid", (Kernel(1, hard_sigmoid_1),)),
    ("HardSwish", (Kernel(14, hard_swish_14),)),
    ("LeakyRelu", (Kernel(1, leaky_relu_1),)),
    ("Mish", (Kernel(18, mish_18),)),
    ("PRelu", (Kernel(1, p_relu_1), Kernel(7, p_relu_7))),
    ("Relu", (Kernel(1, relu_1),)),
    ("Selu", (Kernel(1, selu_1),)),
    ("Shrink", (Kernel(9, shrink_9),)),
    ("Sigmoid", (Kernel(1, sigmoid_1),)),
    ("Softplus", (Kernel(1, softplus_1),)),
    ("Softsign", (Kernel(1, softsign_1),)),
    ("SwiGLU", (Kernel(28, swi_glu_28),)),
    ("Swish", (Kernel(24, swish_24),)),
    ("ThresholdedRelu", (Kernel(10, thresholded_relu_10),)),
)
"""Operators of this family with their kernels, oldest first."""
