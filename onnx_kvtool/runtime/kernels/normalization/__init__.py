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
    hardmax,
    log_softmax,
    softmax,
)
from onnx_kvtool.runtime.kernels.reduction import forms_of_softmax

LINES: Lines = {
    "BatchNormalization": {7: batch_normalization_7, 14: batch_normalization_14},
    "GroupNormalization": {18: group_normalization_18, 21: group_normalization_21},
    "Hardmax": forms_of_softmax(hardmax),
    "InstanceNormalization": {1: instance_normalization_1},
    "LRN": {1: lrn_1},
    "LayerNormalization": {17: layer_normalization_17},
    "LogSoftmax": forms_of_softmax(log_softmax),
    "LpNormalization": {1: lp_normalization_1},
    "MeanVarianceNormalization": {9: mean_variance_normalization_9},
    "RMSNormalization": {23: rms_normalization_23},
    "Softmax": forms_of_softmax(softmax),
}
"""Operators of this family with their kernels, oldest first."""
