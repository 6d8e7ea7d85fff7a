"""Slice-10 with what it takes as inputs, for opset 9."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import NodeView, counted_axis
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.lowering.early.again import (
    clamped,
    count_up,
    element_type,
    from_front,
    known_rank,
    product,
)
from onnx_kvtool.symbolic.dimensions import Dim

__all__ = ["lower_slice_10"]

_INT64 = ir.DataType.INT64
_LONG = int(np.iinfo(np.int32).max)
_Bounds = tuple[ir.Value, ir.Value, int | ir.Value]
"""Where a slice begins and ends, and its step."""


def lower_slice_10(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Write constant bounds as attributes; gather what other bounds and steps name.

    Along an axis, for a step of one sign, with both bounds inside of the axis:

        n     = max(ceil((end - start) / step), 0)
        index = start + NonZero(ones of n) * step

    Of axes that are known at run time only, each axis takes the bounds and the step of the entry
    that names it, or all of its places.

    Refuses run-time bounds of an unknown number.
    """
    view = NodeView(node, context.opset_of(node))
    data = view.required("data")
    dtype = element_type(data, "Slice", 10)
    known = {n: context.folder.integers(view.input(n)) for n in ("starts", "ends", "axes", "steps")}
    dims = known_rank(data, "Slice", 10)
    count = _count(view, known)
    listed = _listed(view, "axes", known, list(range(count)))
    steps = _listed(view, "steps", known, [1] * count)
    starts, ends = known["starts"], known["ends"]
    axes = None if listed is None else [counted_axis(axis, len(dims)) for axis in listed]
    ones = steps is not None and all(step == 1 for step in steps)
    if starts is not None and ends is not None and axes is not None and ones:
        attributes = {
            "axes": axes,
            "starts": [int(n) for n in starts.ravel()],
            "ends": [int(n) for n in ends.ravel()],
        }
        if not axes:
            return Replacement((em.op("Identity", data, dtype=dtype),))
        return Replacement((em.op("Slice", data, attributes=attributes, dtype=dtype),))
    return Replacement((_gathered(em, view, dims, axes, steps, count),))


def _gathered(
    em: Emitter,
    view: NodeView,
    dims: tuple[Dim, ...],
    axes: list[int] | None,
    steps: list[int] | None,
    count: int,
) -> ir.Value:
    """Gather the places of each axis; axes and steps are None where they are run-time inputs."""
    data = view.required("data")
    dtype = data.dtype or ir.DataType.UNDEFINED
    far = em.constant([-_LONG], "far"), em.constant([_LONG], "far")

    def entries(name: str) -> list[ir.Value]:
        value = cast(em, view.required(name), _INT64)
        places = [em.constant([place], "place") for place in range(count)]
        return [em.op("Gather", value, place, hint="bound") for place in places]

    # They may be as far out as int64 goes, where adding or subtracting would wrap.
    starts, ends = ([clamped(em, one, *far) for one in entries(n)] for n in ("starts", "ends"))
    strides: list[int | ir.Value] = list(steps or ())
    if steps is None:
        strides = [clamped(em, one, *far) for one in entries("steps")]
    bounds = list(zip(starts, ends, strides, strict=True))
    if axes is None:
        rank = em.constant([len(dims)], "rank")
        named = [from_front(em, axis, rank) for axis in entries("axes")]
        lengths = [product(em, data, dims, [axis]) for axis in range(len(dims))]
        bounds = [_chosen(em, named, bounds, axis, size) for axis, size in enumerate(lengths)]
        axes = list(range(len(dims)))
    for axis, (begin, end, step) in zip(axes, bounds, strict=True):
        index = _index(em, begin, end, product(em, view.required("data"), dims, [axis]), step)
        data = em.op("Gather", data, index, attributes={"axis": axis}, dtype=dtype)
    return data


def _listed(
    view: NodeView, name: str, known: dict[str, np.ndarray | None], absent: list[int]
) -> list[int] | None:
    """Return the integers of an input; None where they are known at run time only."""
    numbers = known[name]
    if view.input(name) is None:
        return absent
    return None if numbers is None else [int(number) for number in numbers.ravel()]


def _chosen(
    em: Emitter,
    named: list[ir.Value],
    bounds: list[_Bounds],
    axis: int,
    length: ir.Value,
) -> _Bounds:
    """Return the bounds and the step of the entry that names an axis; the whole axis of none."""
    begin = em.constant([0], "zero")
    end, step = length, em.constant([1], "one")
    for place, (first, last, stride) in zip(named, bounds, strict=True):
        is_meant = em.op("Equal", place, em.constant([axis], "axis"), dtype=ir.DataType.BOOL)
        value = em.constant([stride], "step") if isinstance(stride, int) else stride
        begin = em.op("Where", is_meant, first, begin, hint="begin")
        end = em.op("Where", is_meant, last, end, hint="end")
        step = em.op("Where", is_meant, value, step, hint="step")
    return begin, end, step


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


def _index(
    em: Emitter, begin: ir.Value, end: ir.Value, length: ir.Value, step: int | ir.Value
) -> ir.Value:
    """Return the places that a slice of an axis takes: (n,), int64.

    Args:
        em: Where to build.
        begin: Its first bound, no further out than int32: (1,).
        end: Its second bound, likewise.
        length: Size of the axis: (1,).
        step: Not 0; where it is a value: (1,).
    """
    zero, one = em.constant([0], "zero"), em.constant([1], "one")
    last = em.op("Sub", length, one, hint="last")
    begin, end = (from_front(em, bound, length) for bound in (begin, end))
    # An end below every place takes all of them backwards; -1 stands for it.
    before = em.constant([-1], "before")
    if isinstance(step, int):
        least, most = (zero, length) if step > 0 else (before, last)
        rounding = em.constant([step - (1 if step > 0 else -1)], "rounding")
        stride = em.constant([step], "step")
    else:
        forward = em.op("Less", zero, step, dtype=ir.DataType.BOOL, hint="is_forward")
        least = em.op("Where", forward, zero, before, hint="least")
        most = em.op("Where", forward, length, last, hint="most")
        rounding = em.op("Sub", step, em.op("Sign", step), hint="rounding")
        stride = step
    begin, end = clamped(em, begin, zero, most), clamped(em, end, least, most)
    way = em.op("Sub", end, begin, hint="way")
    count = em.op("Div", em.op("Add", way, rounding), stride, hint="count")
    count = clamped(em, count, zero, em.constant([_LONG], "most"))
    return em.op("Add", em.op("Mul", count_up(em, count), stride), begin, hint="places")
