"""ScatterElements and ScatterND with a reduction, where the target lacks it."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.emit import AttributeValue, Emitter
from onnx_kvtool.rewrite.engine.rule import LoweringContext, Refusal, Replacement
from onnx_kvtool.symbolic.dims import dims_of

__all__ = ["lower_scatter_18"]

_ELEMENTWISE = {"add": "Add", "mul": "Mul", "max": "Max", "min": "Min"}
_SINCE = {"none": 11, "add": 16, "mul": 16, "max": 18, "min": 18}


def lower_scatter_18(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Combine what stands at the places with the updates, then scatter without a reduction.

    updates' = reduction(GatherND(data, indices), updates)

    Refuses indices that are not constant, or repeat a place: each place is combined once only.
    """
    view = NodeView(node, context.opset_of(node))
    data, indices, updates = (view.required(n) for n in ("data", "indices", "updates"))
    reduction, elements = view.string("reduction"), node.op_type == "ScatterElements"
    attributes: dict[str, AttributeValue] = {"axis": view.integer("axis")} if elements else {}
    dtype = data.dtype or ir.DataType.UNDEFINED
    if em.opset < _SINCE[reduction]:
        known = context.folder.integers(indices)
        if known is None or not _distinct(known, data, attributes.get("axis")):
            raise Refusal(
                "repeated-index",
                f"`reduction={reduction}` does not exist before opset {_SINCE[reduction]}, and "
                f"`{indices.name}` may name a place twice",
                help="make the indices constant",
                lowest_opset=_SINCE[reduction],
            )
        gather = "GatherElements" if elements else "GatherND"
        present = em.op(gather, data, indices, attributes=attributes, dtype=dtype)
        updates = em.op(_ELEMENTWISE[reduction], present, updates, dtype=dtype)
    elif reduction != "none":
        attributes["reduction"] = reduction
    scattered = em.op(node.op_type, data, indices, updates, attributes=attributes, dtype=dtype)
    return Replacement((scattered,))


def _distinct(indices: NDArray[np.int64], data: ir.Value, axis: object) -> bool:
    """Return whether no two indices certainly or possibly name one place."""
    dims = dims_of(data)
    if dims is None:
        return False
    if isinstance(axis, int):
        size = dims[axis]
        if not isinstance(size, int):
            return False
        lines = np.sort(np.moveaxis(indices % size, axis, -1), axis=-1)
        return not (lines[..., 1:] == lines[..., :-1]).any()
    sizes = dims[: indices.shape[-1]]
    numbers = [d for d in sizes if isinstance(d, int)]
    if len(numbers) != len(sizes):
        return False
    tuples = (indices % np.array(numbers, np.int64)).reshape(-1, len(numbers))
    return len(np.unique(tuples, axis=0)) == len(tuples)
