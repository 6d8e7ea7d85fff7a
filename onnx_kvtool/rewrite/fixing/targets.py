"""Sizes that are known of a result although its node is told them when the model runs.

    Expand(x, target), Reshape(x, target), ConstantOfShape(target)  ->  with a constant target
    Range(start, limit, delta)                                      ->  start + [0, delta, ...]
    Slice(x, start, end)                                            ->  Gather(x, start + [0, ..])

Inference knows them for every run that does not fail.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.constants import LARGEST, Folder
from onnx_kvtool.emit.emitter import Emitter, ScopedValues
from onnx_kvtool.emit.result import Replacement
from onnx_kvtool.ops.traits import SIZE_TYPES
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.rewrite.engine.edits import replace_node
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["told_by_constants"]

_TARGET = {"ConstantOfShape": 0, "Expand": 1, "Reshape": 1}
"""Input that says the shape of the result."""


def told_by_constants(node: ir.Node, opset: int, scope: ScopedValues, folder: Folder) -> bool:
    """Let a node be told by constants how large its result is, in place, where that is known.

    Args:
        node: The node; a Range or Slice is taken out of its graph.
        opset: Version of the default domain of the node.
        scope: The scope of its graph.
        folder: Knows which inputs are constant.

    Returns:
        Whether it was told otherwise before.
    """
    if node.domain != "" or len(node.outputs) != 1:
        return False
    dims = dims_of(node.outputs[0])
    if dims is None or not all(isinstance(dim, int) for dim in dims):
        return False
    sizes = [dim for dim in dims if isinstance(dim, int)]
    em = Emitter(scope, opset, node.name or node.op_type)
    try:
        if node.op_type in _TARGET:
            return _retarget(node, sizes, em, folder)
        if node.op_type == "Range":
            return _counted(node, sizes, em, folder)
        if node.op_type == "Slice":
            return _gathered(node, NodeView(node, opset), sizes, em, folder)
    except MalformedNode:
        return False
    return False


def _retarget(node: ir.Node, sizes: list[int], em: Emitter, folder: Folder) -> bool:
    index = _TARGET[node.op_type]
    given = node.inputs[index] if index < len(node.inputs) else None
    if given is None or folder.integers(given) is not None:
        return False
    if node.op_type == "Reshape" and 0 in sizes:
        return False  # where a 0 copies a size
    node.replace_input_with(index, em.constant(sizes, "sizes"))
    em.commit()
    return True


def _counted(node: ir.Node, sizes: list[int], em: Emitter, folder: Folder) -> bool:
    """Write a Range whose length is known as a sum; integers that wrap would do so in both."""
    output, (start, limit, delta) = node.outputs[0], node.inputs
    step = folder.integers(delta)
    if start is None or step is None or output.dtype not in SIZE_TYPES or sizes[0] > LARGEST:
        return False
    if folder.integers(start) is not None and folder.integers(limit) is not None:
        return False
    steps = np.arange(sizes[0]) * int(step.ravel()[0])
    counted = em.constant(steps.astype(output.dtype.numpy()), "steps")
    result = em.op("Add", start, counted, dtype=output.dtype)
    result.shape = output.shape
    replace_node(node, em, Replacement((result,)))
    return True


def _gathered(node: ir.Node, view: NodeView, sizes: list[int], em: Emitter, folder: Folder) -> bool:
    """Write a Slice of a known length along one axis as a Gather from where it starts."""
    if len(node.inputs) < 3:
        return False  # below opset 10, where the ends are attributes
    start = view.required("starts")
    data, axes, steps = view.required("data"), view.input("axes"), view.input("steps")
    known = None if axes is None else folder.integers(axes)
    stride = None if steps is None else folder.integers(steps)
    if folder.integers(start) is not None and folder.integers(view.required("ends")) is not None:
        return False
    if known is None or known.size != 1 or (steps is not None and (stride is None or stride != 1)):
        return False
    before, axis = dims_of(data), int(known.ravel()[0]) % max(len(sizes), 1)
    whole = None if before is None else before[axis]
    count = sizes[axis]
    if not isinstance(whole, int) or not 0 < count <= min(whole, LARGEST):
        return False
    # Slice clamps its ends. A start behind the last one that leaves room would give fewer rows than
    # are known to come out.
    dtype = start.dtype or ir.DataType.INT64
    steps_ = em.constant(np.arange(count).astype(dtype.numpy()), "steps")
    rows = em.op("Add", start, steps_, dtype=dtype)
    rows.shape = ir.Shape([count])
    element = node.outputs[0].dtype or ir.DataType.UNDEFINED
    result = em.op("Gather", data, rows, attributes={"axis": axis}, dtype=element)
    result.shape = node.outputs[0].shape
    replace_node(node, em, Replacement((result,)))
    return True
