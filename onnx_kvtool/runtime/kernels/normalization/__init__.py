"""Softmax and its kin, and the normalizations."""

from __future__ import annotations

from onnx_kvtool.runtime.kernels.kernel import Kernel
from onnx_kvtool.runtime.kernels.normalization.batch import (
    batch_normalization_7,
    batch_normalization_14,
    lp_normalization_1,
    lrn_1,
    mean_variance_normalization_9,
)
from onnx_kvtool.runtime.kernels.normalization.layer import (
    group_normalization_18,
    group_normalization_21,
    instance_normalization_1,
    layer_normalization_17,
    rms_normalization_23,
)
from onnx_kvtool.runtime.kernels.normalization.softmax import (
    hardmax_1,
    hardmax_13,
    log_softmax_1,
    log_softmax_13,
    softmax_1,
    softmax_13,
)

LINES: tuple[tuple[str, tuple[Kernel, ...]], ...] = (
    ("BatchNormalization", (Kernel(7, batch_normalization_7), Kernel(14, batch_normalization_14))),
    (
        "GroupNormalization",
        (Kernel(18, group_normalization_18), Kernel(21, group_normalization_21)),
    ),
    ("Hardmax", (Kernel(1, hardmax_1), Kernel(13, hardmax_13))),
    ("InstanceNormalization", (Kernel(1, instance_normalization_1),)),
    ("LRN", (Kernel(1, lrn_1),)),
    ("LayerNormalization", (Kernel(17, layer_normalization_17),)),
    ("LogSoftmax", (Kernel(1, log_softmax_1), Kernel(13, log_softmax_13))),
    ("LpNormalization", (Kernel(1, lp_normalization_1),)),
    ("MeanVarianceNormalization", (Kernel(9, mean_variance_normalization_9),)),
    ("RMSNormalization", (Kernel(23, rms_normalization_23),)),
    ("Softmax", (Kernel(1, softmax_1), Kernel(13, softmax_13))),
)
"""Operators of this family with their kernels, oldest first."""
