"""Operators that rearrange, repeat or describe values without computing new elements.

Versions of Concat, Pad, Reshape, Split and Tile from opset 1 have no kernel here.
"""

from __future__ import annotations

from onnx_kvtool.runtime.kernels.kernel import Kernel
from onnx_kvtool.runtime.kernels.movement.choosing import (
    compress,
    constant_1,
    constant_11,
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
    reshape_14,
    shape_1,
    shape_15,
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
    pad_18,
    pad_19,
    slice_1,
    slice_10,
    split_2,
    split_13,
    split_18,
    trilu,
)

LINES: tuple[tuple[str, tuple[Kernel, ...]], ...] = (
    ("Compress", (Kernel(9, compress),)),
    ("Concat", (Kernel(4, concat),)),
    ("Constant", (Kernel(1, constant_1), Kernel(11, constant_11), Kernel(12, constant_12))),
    ("ConstantOfShape", (Kernel(9, constant_of_shape),)),
    ("Expand", (Kernel(8, expand),)),
    ("Flatten", (Kernel(1, flatten_1), Kernel(11, flatten_11))),
    ("Identity", (Kernel(1, identity),)),
    ("NonZero", (Kernel(9, non_zero),)),
    ("OneHot", (Kernel(9, one_hot_9), Kernel(11, one_hot_11))),
    ("Pad", (Kernel(2, pad_2), Kernel(11, pad_11), Kernel(18, pad_18), Kernel(19, pad_19))),
    ("Range", (Kernel(11, range_11), Kernel(27, range_27))),
    ("Reshape", (Kernel(5, reshape_5), Kernel(14, reshape_14))),
    ("Shape", (Kernel(1, shape_1), Kernel(15, shape_15))),
    ("Size", (Kernel(1, size),)),
    ("Slice", (Kernel(1, slice_1), Kernel(10, slice_10))),
    ("Split", (Kernel(2, split_2), Kernel(13, split_13), Kernel(18, split_18))),
    ("Squeeze", (Kernel(1, squeeze_1), Kernel(11, squeeze_11), Kernel(13, squeeze_13))),
    ("Tile", (Kernel(6, tile),)),
    ("Transpose", (Kernel(1, transpose),)),
    ("Trilu", (Kernel(14, trilu),)),
    ("Unique", (Kernel(11, unique),)),
    ("Unsqueeze", (Kernel(1, unsqueeze_1), Kernel(11, unsqueeze_11), Kernel(13, unsqueeze_13))),
    ("Where", (Kernel(9, where),)),
)
"""Operators of this family with their kernels, oldest first."""
