"""Models that compute vectors of which onnx's inference would write down each element."""

from __future__ import annotations

import functools

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
from onnx_kvtool.ops.schema import op_history
from onnx_kvtool.ops.traits import Trait, having, traits_of

__all__ = ["makes_long_vector"]

_LONGEST = 1 << 20


@functools.cache
def _makers() -> Sizes:
    """Return where operators are told sizes whose result may be longer than their inputs."""
    makers = {}
    for op_type in sorted(having()):
        kinds = traits_of(op_type)
        if kinds.sizes and not kinds.any(Trait.VIEW, Trait.PART):
            places = {
                place
                for facts in op_history(op_type)
                for place, formal in enumerate(facts.inputs)
                if formal.name in kinds.sizes
            }
            makers[op_type] = (tuple(sorted(places)), kinds.sizes)
    return makers


def makes_long_vector(message: onnx.ModelProto) -> bool:
    """Return whether a node is told by a constant to make more than 2**20 elements along an axis.

    Told so by a size that is computed, it is not found.
    """
    if op_types(message).isdisjoint(_makers()):
        return False
    long: set[str] | None = None
    for node in every_node(message):
        sizes = _makers().get(node.op_type)
        if sizes is None or node.domain not in ("", "ai.onnx"):
            continue
        if long is None:
            long = small_constants(message, _is_long)
        if is_told(node, sizes, long, _is_long):
            return True
    return False


def _is_long(numbers: NDArray[np.float64]) -> bool:
    return bool((np.abs(numbers) > _LONGEST).any())
