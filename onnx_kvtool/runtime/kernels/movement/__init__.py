"""Operators that rearrange, repeat or describe values without computing new elements.

Versions of Concat, Pad, Reshape, Split and Tile from opset 1 have no kernel here.
"""

from __future__ import annotations

from onnx_kvtool.runtime.kernels.kernel import Lines
from onnx_kvtool.runtime.kernels.movement.choosing import (
    compress,
    constant_1,
    constant_12,
    constant_of_shape,
    non_zero,
    one_hot_9,
    one_hot_11,
    range_11,
    range_27,
    unique,
    where,
)
from onnx_kvtool.runtime.kernels.movement.layout import (
    expand,
    flatten_1,
    flatten_11,
    identity,
    reshape_5,
    shape_1,
    size,
    squeeze_1,
    squeeze_11,
    squeeze_13,
    tile,
    transpose,
    unsqueeze_1,
    unsqueeze_11,
    unsqueeze_13,
)
from onnx_kvtool.runtime.kernels.movement.slicing import (
    concat,
    pad_2,
    pad_11,
    pad_19,
    slice_1,
    slice_10,
    split_2,
    split_13,
    split_18,
    trilu,
)

LINES: Lines = {
    "Compress": {9: compress},
    "Concat": {4: concat},
    "Constant": {1: constant_1, 12: constant_12},
    "ConstantOfShape": {9: constant_of_shape},
    "Expand": {8: expand},
    "Flatten": {1: flatten_1, 11: flatten_11},
    "Identity": {1: identity},
    "NonZero": {9: non_zero},
    "OneHot": {9: one_hot_9, 11: one_hot_11},
    "Pad": {2: pad_2, 11: pad_11, 19: pad_19},
    "Range": {11: range_11, 27: range_27},
    "Reshape": {5: reshape_5},
    "Shape": {1: shape_1},
    "Size": {1: size},
    "Slice": {1: slice_1, 10: slice_10},
    "Split": {2: split_2, 13: split_13, 18: split_18},
    "Squeeze": {1: squeeze_1, 11: squeeze_11, 13: squeeze_13},
    "Tile": {6: tile},
    "Transpose": {1: transpose},
    "Trilu": {14: trilu},
    "Unique": {11: unique},
    "Unsqueeze": {1: unsqueeze_1, 11: unsqueeze_11, 13: unsqueeze_13},
    "Where": {9: where},
}
"""Operators of this family with their kernels, oldest first."""
