"""Softmax and its kin, and the normalizations."""

from __future__ import annotations

from onnx_kvtool.runtime.kernels.kernel import Lines
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
    both_forms,
    hardmax,
    log_softmax,
    softmax,
)

LINES: Lines = {
    "BatchNormalization": {7: batch_normalization_7, 14: batch_normalization_14},
    "GroupNormalization": {18: group_normalization_18, 21: group_normalization_21},
    "Hardmax": both_forms(hardmax),
    "InstanceNormalization": {1: instance_normalization_1},
    "LRN": {1: lrn_1},
    "LayerNormalization": {17: layer_normalization_17},
    "LogSoftmax": both_forms(log_softmax),
    "LpNormalization": {1: lp_normalization_1},
    "MeanVarianceNormalization": {9: mean_variance_normalization_9},
    "RMSNormalization": {23: rms_normalization_23},
    "Softmax": both_forms(softmax),
}
"""Operators of this family with their kernels, oldest first."""
