"""Values of weights in copies."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir

__all__ = ["READ", "drawn", "scales_of"]

READ = 1 << 16
"""Bytes; a weight that keeps its shape and takes at most so many keeps its values."""

_QUANTISED = {
    ("", "DequantizeLinear"): (0, 1),
    ("", "QuantizeLinear"): (0, 1),
    ("com.microsoft", "MatMulNBits"): (1, 2),
}
"""By operator, the inputs that are quantised values and their scales."""

_FOUR_BITS = 8.0


def scales_of(message: onnx.ModelProto) -> dict[str, float]:
    """Return the weights that are scales, with the magnitude of what each of them scales."""
    types = {tensor.name: ir.DataType(tensor.data_type) for tensor in message.graph.initializer}
    found: dict[str, float] = {}
    for node in message.graph.node:
        places = _QUANTISED.get((node.domain.replace("ai.onnx", ""), node.op_type))
        if places is None or len(node.input) <= places[1] or node.input[places[1]] not in types:
            continue
        dtype = types.get(node.input[places[0]])
        is_wide = node.domain == "" and dtype is not None and dtype.is_integer()
        largest = float(2 ** (dtype.bitwidth - 1)) if is_wide and dtype else _FOUR_BITS
        found[node.input[places[1]]] = largest
    return found


def drawn(
    tensor: ir.TensorProtocol, dims: list[int], name: str, seed: int, scales: Mapping[str, float]
) -> np.ndarray:
    """Draw values for a weight by its name: small ones, so that nothing overflows.

    Args:
        tensor: The real weight, for its type.
        dims: The shape of the copy.
        name: Its name.
        seed: Seed of all weights.
        scales: Weights that are scales, with the magnitude of what they scale.
    """
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    if tensor.dtype.is_integer():
        low, high = int(tensor.dtype.min), int(tensor.dtype.max)
        return rng.integers(low, high, dims, endpoint=True).astype(tensor.dtype.numpy())
    if name in scales:
        values = rng.uniform(0.5, 1.5, dims) / (4 * scales[name])
    elif len(dims) < 2:
        values = 1 + 0.1 * rng.standard_normal(dims)  # it scales or shifts
    else:
        # Products keep the scale of their operand.
        values = rng.standard_normal(dims) / math.sqrt(max(min(dims, default=1), 1))
    return values.astype(tensor.dtype.numpy())
