"""Split-18 with `num_outputs`, for opsets below 18, and run-time sizes, below 13."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.core.quantity import counted
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.result import Replacement
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["lower_split_18"]


def lower_split_18(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Give Split its sizes: ceil(size / num_outputs) each, the rest for the last output.

    The sizes are an attribute below opset 13 and an input from 13 on, where they are computed at
    run time if the dimension is not a number. Sizes that are known at run time only become one
    Slice per output below 13.

    Refuses a Split that gives both `num_outputs` and `split`, or more outputs than there are.
    """
    view = NodeView(node, context.opset_of(node))
    data, axis, count = view.required("input"), view.integer("axis"), len(node.outputs)
    given = view.input("split") if len(view.facts.inputs) > 1 else None
    declared = view.attribute("num_outputs") if "num_outputs" in view.facts.attributes else None
    if given is not None and declared is None:
        return Replacement(_slices(em, data, given, axis, count))
    if given is not None or declared != count:
        raise MalformedNode(
            "bad-split",
            f"`num_outputs` is {declared} with {counted(count, 'output')}, or `split` is given too",
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
        computed = _computed(em, data, axis, count)
        return Replacement(_slices(em, data, computed, axis, count))
    else:
        lengths = _computed(em, data, axis, count)
    attributes = {"axis": axis}
    return Replacement(em.multi("Split", data, lengths, attributes=attributes, dtypes=dtypes))


def _slices(
    em: Emitter, data: ir.Value, sizes: ir.Value, axis: int, count: int
) -> tuple[ir.Value, ...]:
    """Return the parts of `data` of the given sizes: (count,), which add up to the dimension."""
    dtype = data.dtype or ir.DataType.UNDEFINED
    end = em.constant([0], "start")
    parts = []
    for index in range(count):
        size = em.op("Gather", sizes, em.constant([index], "part"), hint="size")  # (1,)
        start, end = end, em.op("Add", end, size, hint="end")
        parts.append(em.op("Slice", data, start, end, em.constant([axis], "axes"), dtype=dtype))
    return tuple(parts)


def _sizes(size: int, count: int) -> list[int]:
    each = -(-size // count)
    sizes = [each] * (count - 1) + [size - each * (count - 1)]
    if sizes[-1] < 0:
        raise MalformedNode(
            "bad-split",
            f"{counted(size, 'element')} cannot be split into {counted(count, 'part')} of {each}",
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
