"""Operators that rearrange, repeat or describe values without computing new elements.

Versions of Concat, Pad, Reshape, Split and Tile from opset 1 have no kernel here.
"""

from __future__ import annotations

from onnx_kvtool.runtime.kernels.kernel import Kernel
from onnx_kvtool.runtime.kernels.movement.concat import concat
from onnx_kvtool.runtime.kernels.movement.constant import (
    constant_1,
    constant_11,
    constant_12,
    constant_of_shape,
)
from onnx_kvtool.runtime.kernels.movement.expand import expand, tile
from onnx_kvtool.runtime.kernels.movement.identity import identity
from onnx_kvtool.runtime.kernels.movement.one_hot import one_hot_9, one_hot_11
from onnx_kvtool.runtime.kernels.movement.pad import pad_2, pad_11, pad_18, pad_19
from onnx_kvtool.runtime.kernels.movement.range import range_11, range_27
from onnx_kvtool.runtime.kernels.movement.reshape import (
    flatten_1,
    flatten_11,
    reshape_5,
    reshape_14,
)
from onnx_kvtool.runtime.kernels.movement.selection import compress, non_zero
from onnx_kvtool.runtime.kernels.movement.shape import shape_1, shape_15, size
from onnx_kvtool.runtime.kernels.movement.slice import slice_1, slice_10
from onnx_kvtool.runtime.kernels.movement.split import split_2, split_13, split_18
from onnx_kvtool.runtime.kernels.movement.squeeze import (
    squeeze_1,
    squeeze_11,
    squeeze_13,
    unsqueeze_1,
    unsqueeze_11,
    unsqueeze_13,
)
from onnx_kvtool.runtime.kernels.movement.transpose import transpose
from onnx_kvtool.runtime.kernels.movement.trilu import trilu
from onnx_kvtool.runtime.kernels.movement.unique import unique
from onnx_kvtool.runtime.kernels.movement.where import where

__all__ = ["LINES"]

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
