"""Split-18 with `num_outputs`, for opsets below 18."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.analysis.dims import dims_of
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.rewrite.emit import Emitter
from onnx_kvtool.rewrite.lowering.context import LoweringContext, Replacement
from onnx_kvtool.rewrite.refusal import Refusal

__all__ = ["lower_split_18"]


def lower_split_18(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Give Split its sizes: ceil(size / num_outputs) each, the rest for the last output.

    The sizes are an attribute below opset 13 and an input from 13 on, where they are computed at
    run time if the dimension is not a number.

    Refuses a dimension that is not a number below opset 13, and a Split that also gives `split`.
    """
    view = NodeView(node, context.opset_of(node))
    data, axis, count = view.required("input"), view.integer("axis"), len(node.outputs)
    declared = view.attribute("num_outputs")
    if view.input("split") is not None or declared != count:
        raise MalformedNode(
            "bad-split",
            f"`num_outputs` is {declared} with {count} outputs, or `split` is given too",
        )
    dims = dims_of(data)
    size = dims[axis] if dims is not None and -len(dims) <= axis < len(dims) else None
    dtypes = [data.dtype or ir.DataType.UNDEFINED] * count
    if isinstance(size, int):
        sizes = _sizes(size, count)
        if em.opset < 13:
            with_sizes: dict[str, int | list[int]] = {"axis": axis, "split": sizes}
            return Replacement(em.multi("Split", data, attributes=with_sizes, dtypes=dtypes))
        lengths = em.constant(sizes, "split")
    elif em.opset < 13:
        raise Refusal(
            "unknown-dimension",
            f"the size of `{data.name}` on axis {axis} is unknown, and Split takes its sizes as "
            "an attribute below opset 13",
            help="give the dimension a value, or choose opset 13 or higher",
            lowest_opset=13,
        )
    else:
        lengths = _computed(em, data, axis, count)
    attributes = {"axis": axis}
    return Replacement(em.multi("Split", data, lengths, attributes=attributes, dtypes=dtypes))


def _sizes(size: int, count: int) -> list[int]:
    each = -(-size // count)
    sizes = [each] * (count - 1) + [size - each * (count - 1)]
    if sizes[-1] < 0:
        raise MalformedNode(
            "bad-split", f"{size} elements cannot be split into {count} parts of {each}"
        )
    return sizes


def _computed(em: Emitter, data: ir.Value, axis: int, count: int) -> ir.Value:
    shape = em.op("Shape", data)
    size = em.op("Gather", shape, em.constant([axis], "axis"), hint="size")  # (1,)
    rounded = em.op("Add", size, em.constant([count - 1], "round_up"))
    each = em.op("Div", rounded, em.constant([count], "parts"), hint="part")
    rest = em.op("Sub", size, em.op("Mul", each, em.constant([count - 1], "round_up")), hint="rest")
    parts = [each] * (count - 1) + [rest]
    return em.op("Concat", *parts, attributes={"axis": 0}, hint="split")
