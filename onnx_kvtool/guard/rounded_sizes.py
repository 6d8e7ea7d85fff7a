"""Sizes times scales, which onnx's inference rounds otherwise than runtimes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx
from onnx import numpy_helper

from onnx_kvtool.core.domains import DEFAULT_DOMAINS
from onnx_kvtool.guard.fault import Fault
from onnx_kvtool.guard.hiding import infer_hiding
from onnx_kvtool.guard.small_constants import SMALL_BYTES, Contents

FAULT = Fault(
    library="onnx",
    seen="1.23.2",
    what="multiplies a size exactly by the scale of a Resize or Upsample, where onnxruntime rounds"
    " the product to float32 first: 10 times 1.3 is 12 for one and 13 for the other",
    instead="hides a node where the two differ from inference",
)

SCALED = frozenset({"Resize", "Upsample"})


def scaled(size: int, scale: float) -> int | None:
    """Return a size times a scale, rounded down; None where runtimes do not agree on it.

    The product is exact in the text of Resize, in onnx's inference and in its reference;
    onnxruntime 1.32 rounds it to float32 first.
    """
    with np.errstate(over="ignore"):
        product = float(np.float32(size) * np.float32(scale))
    if not math.isfinite(product) or math.floor(product) != math.floor(size * scale):
        return None
    return math.floor(product)


def infer_past_rounded_sizes(
    contents: Contents, infer: Callable[[Contents], onnx.ModelProto]
) -> onnx.ModelProto:
    """Return `infer(contents)`, with nothing known of nodes whose sizes runtimes do not agree on.

    Nodes in bodies and functions are not looked at.
    """
    graph = contents.message.graph
    scales = _scales(graph)
    nodes = [n for n in graph.node if n.op_type in SCALED and n.domain in DEFAULT_DOMAINS]
    # What the file declares comes first, since a strict inference would fail on it.
    hidden = _doubtful(nodes, scales, graph)
    result = infer_hiding(contents, infer, hidden) if hidden else infer(contents)
    found = _doubtful(nodes, scales, result.graph)
    if all(any(node is other for other in hidden) for node in found):
        return result
    return infer_hiding(contents, infer, found)


def _scales(graph: onnx.GraphProto) -> dict[str, list[float]]:
    """Return the small constants of type float32 by name."""
    tensors = [(t.name, t) for t in graph.initializer]
    for node in graph.node:
        if node.op_type == "Constant" and node.domain in DEFAULT_DOMAINS:
            tensors += [(node.output[0], a.t) for a in node.attribute if a.name == "value"]
    return {
        name: numpy_helper.to_array(tensor).ravel().tolist()
        for name, tensor in tensors
        if tensor.data_type == onnx.TensorProto.FLOAT
        and tensor.ByteSize() <= SMALL_BYTES
        and tensor.data_location != onnx.TensorProto.EXTERNAL
    }


def _doubtful(
    nodes: list[onnx.NodeProto], scales: dict[str, list[float]], graph: onnx.GraphProto
) -> list[onnx.NodeProto]:
    """Return the nodes with a doubtful size, by the types that a graph declares."""
    declared = (*graph.input, *graph.value_info, *graph.output)
    shapes = {value.name: value.type.tensor_type.shape.dim for value in declared}
    found = []
    for node in nodes:
        given = next((list(a.floats) for a in node.attribute if a.name == "scales"), None)
        axes = next((list(a.ints) for a in node.attribute if a.name == "axes"), None)
        for name in node.input[1:3]:
            given = given or scales.get(name)
        dims = shapes.get(node.input[0], ()) if node.input else ()
        if not given or not dims:
            continue
        pairs = zip(axes or range(len(dims)), given, strict=False)
        if any(
            -len(dims) <= axis < len(dims)
            and dims[axis].HasField("dim_value")
            and scaled(dims[axis].dim_value, scale) is None
            for axis, scale in pairs
        ):
            found.append(node)
    return found
