"""MelWeightMatrix-17, for opsets below 17."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import DTypeLike, NDArray

from onnx_kvtool.core.misdeclared import held
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext

__all__ = ["lower_mel_weight_matrix_17"]

_LARGEST = 1 << 24
"""Most elements of the matrix."""


def lower_mel_weight_matrix_17(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Compute the matrix, which constant inputs fix.

    Refuses inputs that are not constant, since rounding decides to which bins a frequency belongs:
    constants are refused as well where float32 and float64 disagree about that.
    """
    view = NodeView(node, context.opset_of(node))
    counts = [_one(view, name) for name in ("num_mel_bins", "dft_length", "sample_rate")]
    edges = [_one(view, name) for name in ("lower_edge_hertz", "upper_edge_hertz")]
    bins, length, rate = (int(count) for count in counts)
    if min(bins, length, rate) <= 0:
        raise MalformedNode("bad-length", "bins, length and rate must be at least 1")
    rows, other = (_bins(bins, length, rate, edges, d) for d in (np.float64, np.float32))
    if not np.array_equal(rows, other):
        text = "rounding decides to which bin a frequency of MelWeightMatrix belongs"
        raise Refusal("dynamic-input", text, lowest_opset=17)
    size = length // 2 + 1
    if rows.min() < 0 or rows.max() >= size:
        text = f"the frequencies reach bin {rows.max()}, of {size}"
        raise MalformedNode("bad-frequency", text)
    if size * bins > _LARGEST:
        text = f"MelWeightMatrix has more than {_LARGEST} elements"
        raise Refusal("too-large", text, lowest_opset=17)
    dtype = ir.DataType(view.integer("output_datatype"))
    matrix = em.constant(_triangles(rows, size).astype(dtype.numpy()), "mel")
    return Replacement((em.op("Identity", matrix, dtype=dtype),))


def _one(view: NodeView, name: str) -> float:
    value = view.required(name)
    tensor = None if value.is_graph_input() else held(value)
    if tensor is None or tensor.size != 1:
        raise Refusal(
            "dynamic-input",
            f"`{name}` is not constant, and rounding decides to which bin a frequency belongs",
            help="make the inputs constant",
            lowest_opset=17,
        )
    return float(tensor.numpy().astype(np.float64).ravel()[0])


def _bins(
    bins: int, length: int, rate: int, edges: list[float], dtype: DTypeLike
) -> NDArray[np.int64]:
    """Return the bin of the transform in which each triangle begins, and the last two end."""
    scale, corner = np.array(2595, dtype), np.array(700, dtype)
    low, high = (scale * np.log10(1 + np.array(edge, dtype) / corner) for edge in edges)
    step = (high - low) / np.array(bins + 2, dtype)
    mel = np.arange(bins + 2).astype(dtype) * step + low
    hertz = corner * (np.power(np.array(10, dtype), mel / scale) - 1)
    rows: NDArray[np.float64] = np.array(length + 1, dtype) * hertz / np.array(rate, dtype)
    return np.floor(rows).astype(np.int64)


def _triangles(rows: NDArray[np.int64], size: int) -> NDArray[np.float64]:
    """Return a triangle for each bin of mel, up to 1 in the middle: (size, bins)."""
    matrix = np.zeros((size, len(rows) - 2))
    for column, (start, middle, end) in enumerate(zip(rows, rows[1:], rows[2:], strict=False)):
        places = np.arange(start, middle + 1)
        matrix[places, column] = (places - start) / (middle - start) if middle > start else 1
        places = np.arange(middle, end)
        matrix[places, column] = (end - places) / max(end - middle, 1)
    return matrix
