"""Values of weights in copies."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir

from onnx_kvtool.core.domains import canonical_domain

__all__ = ["READ", "Quantised", "code_bits", "drawn", "hides", "quantised_of"]

READ = 1 << 16
"""Bytes; a weight that keeps its shape and takes at most so many keeps its values."""

_PLACES = {
    ("", "DequantizeLinear"): ((0, 1),),
    ("", "QuantizeLinear"): ((0, 1),),
    ("com.microsoft", "GatherBlockQuantized"): ((0, 2),),
    ("com.microsoft", "MatMulNBits"): ((1, 2),),
    ("com.microsoft", "QMoE"): ((2, 3), (5, 6), (8, 9)),
}
"""By operator, the inputs that are quantised values and their scales."""

_BITS = {
    "GatherBlockQuantized": "bits",
    "MatMulNBits": "bits",
    "QMoE": "expert_weight_bits",
}
"""By operator of onnxruntime, the attribute that says how many bits a value has."""

_OF_A_RUN = 1 / 32
"""The scale of what a run computes: int8 has room for four standard deviations, and rounds them to
a thirtieth of one; float8 keeps three bits at any magnitude."""


@dataclass(frozen=True, slots=True)
class Quantised:
    """What weights are for quantised products.

    Attributes:
        values: Names of weights that are quantised values.
        scales: Weights that are scales, with the magnitude of theirs that leaves a product as large
            as what is multiplied.
    """

    values: frozenset[str]
    scales: Mapping[str, float]


def quantised_of(message: onnx.ModelProto, dims: Mapping[str, list[int]]) -> Quantised:
    """Return which weights of the main graph are quantised values, and which are scales.

    Args:
        message: The model.
        dims: The shapes that its weights have in the copy, by name.
    """
    types = {tensor.name: ir.DataType(tensor.data_type) for tensor in message.graph.initializer}
    values: set[str] = set()
    scales: dict[str, float] = {}
    for node in message.graph.node:
        for value, scale in _pairs(node):
            if value in types:
                values.add(value)
            if scale not in types:
                continue
            if value not in types:
                scales[scale] = _OF_A_RUN
            elif node.domain:
                scales[scale] = _magnitude_of_codes(node, dims[value], types[value])
            else:
                dtype = types[value]
                bits = dtype.bitwidth if dtype.is_integer() else None
                scales[scale] = _magnitude(dims[value], bits)
    return Quantised(frozenset(values), scales)


def code_bits(node: onnx.NodeProto) -> int | None:
    """Return the bits of the codes that an operator of onnxruntime reads; None for any other."""
    name = _BITS.get(node.op_type) if node.domain else None
    return next((a.i for a in node.attribute if a.name == name), 4) if name else None


def _pairs(node: onnx.NodeProto) -> Iterator[tuple[str, str]]:
    """Yield the names of quantised values that a node reads, each with that of their scales."""
    for value, scale in _PLACES.get((canonical_domain(node.domain), node.op_type), ()):
        if scale < len(node.input) and node.input[value] and node.input[scale]:
            yield node.input[value], node.input[scale]


def _magnitude_of_codes(node: onnx.NodeProto, shape: list[int], dtype: ir.DataType) -> float:
    """Return the scale of codes for an operator of onnxruntime, which packs them into bytes."""
    bits = code_bits(node) or 8
    # Of MatMulNBits (N, blocks, bytes), of experts (E, N, bytes), and each expert is a product.
    rows = shape[1:] if node.op_type == "QMoE" else shape
    packed = 8 // bits if dtype == ir.DataType.UINT8 else 1
    return _magnitude([*rows, packed], bits)


def _magnitude(shape: list[int], bits: int | None) -> float:
    """Return the scale of drawn quantised values of a shape; None for the bits of floats."""
    if bits is None:
        return 1.0  # they are drawn as any others
    deviation = 2.0**bits / math.sqrt(12)
    return 1 / (deviation * math.sqrt(_terms(shape)))


def _terms(shape: list[int]) -> float:
    """Return about how many terms the sums of a product with a weight have.

    The shape does not tell which of its sizes are summed; the mean of both leaves what goes up to
    another width and down again as large as it was.
    """
    return math.sqrt(max(math.prod(shape), 1))


def hides(kept: ir.TensorProtocol, name: str, quantised: Quantised) -> bool:
    """Return whether the values of a weight say nothing of what stands before it.

    What is multiplied by nothing but zeros is zero, and so is the difference of two models in it:
    adapters before their training, models that were never trained.
    """
    is_quantised = name in quantised.scales or name in quantised.values
    # Other integers are zero points, and one number may well be an addend.
    if not is_quantised and (kept.dtype.is_integer() or kept.size < 2):
        return False
    return not np.any(kept.numpy())


def drawn(
    tensor: ir.TensorProtocol,
    shape: list[int],
    name: str,
    seed: int,
    quantised: Quantised,
) -> np.ndarray:
    """Draw values for a weight by its name: of such a size that products keep that of an operand.

    What one layer adds to the others is then as large as they are, and a fault in it shows.

    Args:
        tensor: The real weight, for its type.
        shape: The shape of the copy.
        name: Its name.
        seed: Seed of all weights.
        quantised: What is quantised in the models.
    """
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    if tensor.dtype.is_integer():
        low, high = int(tensor.dtype.min), int(tensor.dtype.max)
        return rng.integers(low, high, shape, endpoint=True).astype(tensor.dtype.numpy())
    if name in quantised.scales:
        values = rng.uniform(0.5, 1.5, shape) * quantised.scales[name]
    elif len(shape) < 2:
        values = 1 + 0.1 * rng.standard_normal(shape)  # it scales or shifts
    else:
        values = rng.standard_normal(shape) / math.sqrt(_terms(shape))
    return values.astype(tensor.dtype.numpy())
