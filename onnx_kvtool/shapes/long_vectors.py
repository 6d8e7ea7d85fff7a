"""Models that compute vectors of which onnx's inference would write down each element."""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray

from onnx_kvtool.core.messages.small_constants import (
    Sizes,
    every_node,
    is_told,
    op_types,
    small_constants,
)

__all__ = ["makes_long_vector"]

_LONGEST = 1 << 20
_MAKERS: Sizes = {
    "ConstantOfShape": ((0,), ()),
    "Expand": ((1,), ()),
    "OneHot": ((1,), ()),
    "Pad": ((1,), ("pads", "paddings")),
    "RandomNormal": ((), ("shape",)),
    "RandomUniform": ((), ("shape",)),
    "Range": ((0, 1), ()),
    "Resize": ((1, 2, 3), ()),
    "Tile": ((1, 2), ()),
    "Upsample": ((1,), ("scales",)),
}


def makes_long_vector(message: onnx.ModelProto) -> bool:
    """Return whether a node is told by a constant to make more than 2**20 elements along an axis.

    Told so by a size that is computed, it is not found.
    """
    if op_types(message).isdisjoint(_MAKERS):
        return False
    long: set[str] | None = None
    for node in every_node(message):
        sizes = _MAKERS.get(node.op_type)
        if sizes is None or node.domain not in ("", "ai.onnx"):
            continue
        if long is None:
            long = small_constants(message, _is_long)
        if is_told(node, sizes, long, _is_long):
            return True
    return False


def _is_long(numbers: NDArray[np.float64]) -> bool:
    return bool((np.abs(numbers) > _LONGEST).any())
