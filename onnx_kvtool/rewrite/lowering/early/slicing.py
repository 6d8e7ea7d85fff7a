"""Slice-10 and TopK-10 with what they take as inputs, for opset 9."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.ops.view import NodeView, counted_axis
from onnx_kvtool.rewrite.engine.emit import Emitter
from onnx_kvtool.rewrite.engine.forms import cast
from onnx_kvtool.rewrite.engine.rule import LoweringContext, Refusal, Replacement
from onnx_kvtool.rewrite.lowering.early.again import (
    again,
    clamped,
    count_up,
    element_type,
    from_front,
    known_rank,
    product,
)

__all__ = ["lower_slice_10", "lower_top_k_10"]

_INT64 = ir.DataType.INT64
_LONG = int(np.iinfo(np.int32).max)


def lower_slice_10(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Write constant bounds as attributes; gather what other bounds and steps name.

    Along an axis, for a step of one sign, with both bounds inside of the axis:

        n     = max(ceil((end - start) / step), 0)
        index = start + NonZero(ones of n) * step

    Refuses axes and steps that are known at run time only, and such bounds of an unknown number.
    """
    view = NodeView(node, context.opset_of(node))
    data = view.required("data")
    dtype = element_type(data, "Slice", 10)
    known = {n: context.folder.integers(view.input(n)) for n in ("starts", "ends", "axes", "steps")}
    for name in ("axes", "steps"):
        if view.input(name) is not None and known[name] is None:
            raise Refusal(
                "dynamic-input",
                f"Slice cannot be written before opset 10 where `{name}` is not constant",
                lowest_opset=10,
            )
    dims = known_rank(data, "Slice", 10)
    count = _count(view, known)
    axes = range(count) if known["axes"] is None else [int(a) for a in known["axes"].ravel()]
    axes = [counted_axis(axis, len(dims)) for axis in axes]
    steps = [1] * count if known["steps"] is None else [int(s) for s in known["steps"].ravel()]
    starts, ends = known["starts"], known["ends"]
    if starts is not None and ends is not None and all(step == 1 for step in steps):
        attributes = {
            "axes": axes,
            "starts": [int(n) for n in starts.ravel()],
            "ends": [int(n) for n in ends.ravel()],
        }
        if not axes:
            return Replacement((em.op("Identity", data, dtype=dtype),))
        return Replacement((em.op("Slice", data, attributes=attributes, dtype=dtype),))
    result = data
    bounds = [cast(em, view.required(name), _INT64) for name in ("starts", "ends")]
    for place, (axis, step) in enumerate(zip(axes, steps, strict=True)):
        begin, end = (
            em.op("Gather", bound, em.constant([place], "place"), hint="bound") for bound in bounds
        )
        length = product(em, data, dims, [axis])
        index = _index(em, begin, end, length, step)
        result = em.op("Gather", result, index, attributes={"axis": axis}, dtype=dtype)
    return Replacement((result,))


def _count(view: NodeView, known: dict[str, np.ndarray | None]) -> int:
    for name in ("starts", "ends", "axes", "steps"):
        value, numbers = view.input(name), known[name]
        if numbers is not None:
            return int(numbers.size)
        if value is not None and value.shape is not None and len(value.shape) == 1:
            size = value.shape[0]
            if isinstance(size, int):
                return size
    raise Refusal(
        "unknown-dimension",
        "Slice cannot be written before opset 10 where the number of its bounds is unknown",
        lowest_opset=10,
    )


def _index(em: Emitter, begin: ir.Value, end: ir.Value, length: ir.Value, step: int) -> ir.Value:
    """Return the places that a slice of an axis takes: (n,), int64."""
    zero, one = em.constant([0], "zero"), em.constant([1], "one")
    last = em.op("Sub", length, one, hint="last")
    # Bounds may be as far out as int64 goes, where adding or subtracting would wrap.
    far = em.constant([-_LONG], "far"), em.constant([_LONG], "far")
    begin, end = (from_front(em, clamped(em, bound, *far), length) for bound in (begin, end))
    if step > 0:
        begin, end = clamped(em, begin, zero, length), clamped(em, end, zero, length)
    else:
        # An end below every place takes all of them; -1 stands for it, and is `last` of none.
        before = em.constant([-1], "before")
        begin, end = clamped(em, begin, zero, last), clamped(em, end, before, last)
    way = em.op("Sub", end, begin, hint="way")
    rounding = em.constant([step - (1 if step > 0 else -1)], "rounding")
    stride = em.constant([step], "step")
    count = em.op("Div", em.op("Add", way, rounding), stride, hint="count")
    count = clamped(em, count, zero, em.constant([_LONG], "most"))
    return em.op("Add", em.op("Mul", count_up(em, count), stride), begin, hint="places")


def lower_top_k_10(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Write a constant number as an attribute.

    Refuses one that is known at run time only.
    """
    view = NodeView(node, context.opset_of(node))
    data, known = view.required("X"), context.folder.integers(view.required("K"))
    if known is None or known.size != 1:
        raise Refusal(
            "dynamic-input",
            "TopK cannot be written before opset 10 where `K` is not constant",
            lowest_opset=10,
        )
    axis = view.integer("axis")
    if axis < 0:
        axis = counted_axis(axis, len(known_rank(data, "TopK with a negative axis", 10)))
    return again(em, node, inputs=[data], attributes={"axis": axis, "k": int(known.ravel()[0])})
