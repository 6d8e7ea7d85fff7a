"""Removing from a function body what is decided once its types and attributes are known."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnx_ir.passes.common as common_passes

from onnx_kvtool.analysis.constants import Folder, const_tensor
from onnx_kvtool.ops.traits import FLOAT_TYPES, WHOLE_TYPES
from onnx_kvtool.rewrite.engine.branches import decide_branches

__all__ = ["simplify"]


def simplify(model: ir.Model) -> None:
    """Fold integer constants, drop Casts that change nothing and nodes that nobody reads.

    In place, main graph only: the bodies of If and Loop in it stay as they are, but for an If
    whose condition is decided, which its branch replaces. Constant nodes become initializers.
    Results do not change in any bit.
    """
    graph, folder = model.graph, Folder()
    decide_branches(model, folder)
    for node in graph:
        if node.domain != "" or len(node.outputs) != 1:
            continue
        output = node.outputs[0]
        if output.is_graph_output():
            continue
        if _changes_nothing(node) and node.inputs[0] is not None:
            output.replace_all_uses_with(node.inputs[0])
        elif (tensor := _constant(node, folder)) is not None:
            constant = ir.Value(
                name=f"{output.name}",
                type=ir.TensorType(tensor.dtype),
                shape=ir.Shape(tensor.numpy().shape),
                const_value=tensor,
            )
            output.name = f"{output.name}_folded"
            graph.register_initializer(constant)
            output.replace_all_uses_with(constant)
    common_passes.RemoveUnusedNodesPass()(model)


def _changes_nothing(node: ir.Node) -> bool:
    """Return whether the output of a node is its input.

    onnx_ir's own pass is not used: it also takes the Identity out of a branch that returns an
    outer value, which leaves the branch without a producer for its output (onnx-ir 1.1.0).
    """
    data = node.inputs[0] if node.inputs else None
    if data is None:
        return False
    if node.op_type == "Identity":
        return True
    return node.op_type == "Cast" and data.dtype is not None and data.dtype == node.outputs[0].dtype


def _constant(node: ir.Node, folder: Folder) -> ir.TensorProtocol | None:
    output = node.outputs[0]
    if node.op_type == "Constant":
        return const_tensor(output)
    if node.op_type == "Cast" and output.dtype in FLOAT_TYPES:
        return _cast(node.inputs[0], output.dtype)
    if output.dtype not in WHOLE_TYPES:
        return None
    numbers = folder.integers(output)
    return None if numbers is None else ir.tensor(numbers.astype(output.dtype.numpy()))


def _cast(data: ir.Value | None, to: ir.DataType) -> ir.TensorProtocol | None:
    """Return a constant floating-point number in another type that holds it exactly."""
    tensor = None if data is None else data.const_value
    if tensor is None or tensor.dtype not in FLOAT_TYPES or tensor.size != 1:
        return None
    given = tensor.numpy()
    with np.errstate(over="ignore"):
        found = given.astype(to.numpy())
    same = np.array_equal(found.astype(given.dtype), given)
    return ir.Tensor(found, dtype=to) if same else None
