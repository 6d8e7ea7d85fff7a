"""Whether the runs of a model are known to end soon and to stay small."""

from __future__ import annotations

import math

import onnx
import onnx_ir as ir

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.guard.inference import infer_with_data
from onnx_kvtool.guard.long_vectors import makes_long_vector, may_run_out
from onnx_kvtool.guard.small_constants import op_types
from onnx_kvtool.guard.weightless import weightless

__all__ = ["is_bounded"]

_MOST_NODES = 128
"""Nodes up to which inference costs less than a process."""

_SIZE = 64
"""What a symbolic dimension counts for, which is more than is drawn for most."""

_BYTES = 16
"""The largest element there is."""

_WORK = 1e9
"""Elements that the windows of a node may look at: more takes the reference seconds."""

_SEARCHING = frozenset({"RegexFullMatch", "StringSplit", "TfIdfVectorizer"})
"""Operators whose time follows from what strings hold."""


def is_bounded(model: ir.Model, memory: int) -> bool:
    """Return whether no run of `model` can take long, or more than `memory` bytes for its values.

    That is known of a model of few nodes, without bodies and functions, whose values all have
    shapes by inference. What the model itself declares of values between inputs and outputs does
    not count, because it may be wrong. The model does not count its weights.

    Args:
        model: The model; no weight is read.
        memory: Bytes.
    """
    nodes = list(model.graph)
    if len(nodes) > _MOST_NODES or model.functions:
        return False
    if any(node.op_type in _SEARCHING or _has_body(node) for node in nodes):
        return False
    try:
        message = weightless(model)
        del message.graph.value_info[:]
        for value in message.graph.output:
            value.type.tensor_type.ClearField("shape")
        operators = op_types(message)
        if may_run_out(message, operators) or makes_long_vector(message, operators):
            return False
        inferred = infer_with_data(message).graph
    except (
        KvtoolError,
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
        RuntimeError,
        ValueError,
    ):
        return False
    sizes = {value.name: _elements(value) for value in (*inferred.value_info, *inferred.output)}
    made = [name for node in inferred.node for name in node.output if name]
    if sum(sizes.get(name, math.inf) for name in made) * _BYTES > memory:
        return False
    return all(
        sizes[node.output[0]] * _kernel(node) <= _WORK
        for node in inferred.node
        if node.output[:1] and node.output[0]
    )


def _kernel(node: onnx.NodeProto) -> int:
    """Return how many elements the window of a node has; 1 for a node without one."""
    return math.prod(
        size for a in node.attribute if a.name == "kernel_shape" for size in a.ints if size > 0
    )


def _has_body(node: ir.Node) -> bool:
    kinds = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    return any(attribute.type in kinds for attribute in node.attributes.values())


def _elements(value: onnx.ValueInfoProto) -> float:
    """Return how many elements a value has at the most; infinity where nobody knows."""
    type_ = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not type_.HasField("shape"):
        return math.inf
    return math.prod(_size(dim) for dim in type_.shape.dim)


def _size(dim: onnx.TensorShapeProto.Dimension) -> float:
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else math.inf
    return _SIZE if dim.dim_param and not dim.dim_param.startswith("unk__") else math.inf
