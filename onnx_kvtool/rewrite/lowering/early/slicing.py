"""Slices, reversed sequences and shapes."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Operand, Refusal, Replacement
from onnx_kvtool.emit.forms import Term, cast, known_dims, known_type
from onnx_kvtool.ops.traits import FLOAT_TYPES
from onnx_kvtool.ops.view import NodeView, counted_axis
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.rewrite.lowering.early.again import (
    again,
    as_attribute,
    clamped,
    count_up,
    from_front,
    joined_sizes,
    product,
    replaced_where,
)
from onnx_kvtool.rewrite.lowering.resize import resized
from onnx_kvtool.symbolic.dimensions import Dims, dims_of

# Slice-10 with what it takes as inputs, for opset 9.


_INT64 = ir.DataType.INT64
_LONG = int(np.iinfo(np.int32).max)
_Bounds = tuple[Term, Term, int | Term]
"""Where a slice begins and ends, and its step."""


def lower_slice_10(view: Rewritten, em: Emitter) -> ir.Value:
    """Write constant bounds as attributes; gather what other bounds and steps name.

    Along an axis, for a step of one sign, with both bounds inside of the axis:

        n     = max(ceil((end - start) / step), 0)
        index = start + NonZero(ones of n) * step

    Of axes that are known at run time only, each axis takes the bounds and the step of the entry
    that names it, or all of its places.

    Refuses run-time bounds of an unknown number.
    """
    data = view.required("data")
    known_type(data)
    inputs = [view.input(name) for name in ("starts", "ends", "axes", "steps")]
    known = [view.known(value) for value in inputs]
    dims, count = known_dims(data), _count(inputs, known)
    starts, ends, listed, steps = (
        absent if value is None else numbers if numbers is None else numbers.ravel().tolist()
        for value, numbers, absent in zip(
            inputs, known, (None, None, [*range(count)], [1] * count), strict=True
        )
    )
    axes = None if listed is None else [counted_axis(axis, len(dims)) for axis in listed]
    ones = steps is not None and all(step == 1 for step in steps)
    if starts is None or ends is None or axes is None or not ones:
        return _gathered(em, view, dims, axes, steps, count)
    if not axes:
        return em.op("Identity", data)
    return em.op("Slice", data, axes=axes, starts=starts, ends=ends)


def _gathered(
    em: Emitter,
    view: NodeView,
    dims: Dims,
    axes: list[int] | None,
    steps: list[int] | None,
    count: int,
) -> ir.Value:
    """Gather the places of each axis; axes and steps are None where they are run-time inputs."""
    data = view.required("data")
    far = [-_LONG], [_LONG]

    def entries(name: str) -> list[Term]:
        value = Term(em, cast(em, view.required(name), _INT64))
        return [value.op("Gather", [place]) for place in range(count)]

    # They may be as far out as int64 goes, where adding or subtracting would wrap.
    starts, ends = ([clamped(one, *far) for one in entries(n)] for n in ("starts", "ends"))
    strides: list[int | Term] = list(steps or ())
    if steps is None:
        strides = [clamped(one, *far) for one in entries("steps")]
    bounds: list[_Bounds] = list(zip(starts, ends, strides, strict=True))
    if axes is None:
        named = [from_front(axis, [len(dims)]) for axis in entries("axes")]
        lengths = [product(em, data, dims, [axis]) for axis in range(len(dims))]
        bounds = [_chosen(named, bounds, axis, size) for axis, size in enumerate(lengths)]
        axes = list(range(len(dims)))
    for axis, (begin, end, step) in zip(axes, bounds, strict=True):
        index = _index(begin, end, product(em, view.required("data"), dims, [axis]), step)
        data = em.op("Gather", data, index, axis=axis)
    return data


def _chosen(named: list[Term], bounds: list[_Bounds], axis: int, length: Term) -> _Bounds:
    """Return the bounds and the step of the entry that names an axis; the whole axis of none."""
    begin, step = (Term(length.em, length.em.constant([n])) for n in (0, 1))
    end = length
    for place, (first, last, stride) in zip(named, bounds, strict=True):
        is_meant = place.op("Equal", [axis])
        begin = is_meant.op("Where", first, begin)
        end = is_meant.op("Where", last, end)
        step = is_meant.op("Where", [stride] if isinstance(stride, int) else stride, step)
    return begin, end, step


def _count(inputs: list[ir.Value | None], known: list[np.ndarray | None]) -> int:
    for value, numbers in zip(inputs, known, strict=True):
        if numbers is not None:
            return int(numbers.size)
        dims = dims_of(value) or ()
        if len(dims) == 1 and isinstance(dims[0], int):
            return dims[0]
    raise Refusal(
        "unknown-dimension",
        "Slice cannot be lowered below opset 10 because the number of its bounds is unknown",
    )


def _index(begin: Term, end: Term, length: Term, step: int | Term) -> Term:
    """Return the places that a slice of an axis takes: (n,), int64; values are (1,), and int32."""
    last = length - [1]
    begin, end = (from_front(bound, length) for bound in (begin, end))
    # An end below every place takes all of them backwards; -1 stands for it.
    least: Operand
    if isinstance(step, int):
        least, most = ([0], length) if step > 0 else ([-1], last)
        rounding: Operand = [step - (1 if step > 0 else -1)]
        stride: Operand = [step]
    else:
        forward = Term(step.em, step.em.op("Less", [0], step))
        least, most = forward.op("Where", [0], [-1]), forward.op("Where", length, last)
        rounding, stride = step - step.op("Sign"), step
    begin, end = clamped(begin, [0], most), clamped(end, least, most)
    count = clamped((end - begin + rounding) / stride, [0], [_LONG])
    return count_up(count.em, count) * stride + begin


# ReverseSequence-10, for opset 9.


def lower_reverse_sequence_10(view: Rewritten, em: Emitter) -> ir.Value:
    """Gather the rows by their numbers, the first two dimensions made one.

        place = length - 1 - time where that is not negative, else time

    A length beyond the size of the axis names rows behind the last one, and fails.

    Refuses an unknown rank.
    """
    data, lengths = view.operands("input", "sequence_lens")
    known_type(data)
    dims = known_dims(data)
    time_first = view.integer("time_axis") == 0
    time_axis, batch_axis = (0, 1) if time_first else (1, 0)
    count, batch = product(em, data, dims, [time_axis]), product(em, data, dims, [batch_axis])
    along_time, along_batch = ([-1, 1], [1, -1]) if time_first else ([1, -1], [-1, 1])

    time = count_up(em, count).op("Reshape", along_time)
    last = Term(em, cast(em, lengths, _INT64)).op("Reshape", along_batch) - [1]
    back = last - time
    place = replaced_where(back, back < [0], time)
    number = count_up(em, batch).op("Reshape", along_batch)
    row = place * batch + number if time_first else number * count + place
    row = replaced_where(row, ~(place < count), product(em, data, dims, [0, 1]))
    shape = joined_sizes(em, data, dims, [[0, 1], *([axis] for axis in range(2, len(dims)))])
    return em.op("Gather", em.op("Reshape", data, shape), row, axis=0)


# Pad, DepthToSpace and Resize of opset 11, for opset 10.


_D = ir.DataType
_FLOATS = FLOAT_TYPES - {_D.BFLOAT16}


def lower_pad_11(view: Rewritten, em: Emitter) -> ir.Value:
    """Write the pads as an attribute, or gather rows and those that are added, axis by axis.

    The second where the pads are known at run time only, and for values that a float32 attribute
    does not hold. With `edge` and `reflect` the rows that are added are rows of the data.
    """
    data, mode = view.required("data"), view.string("mode")
    dtype = known_type(data)
    pads, fill = view.required("pads"), view.input("constant_value")
    known = view.known(pads)
    number = 0.0 if fill is None else as_attribute(fill)
    if known is not None and dtype in _FLOATS and (number is not None or mode != "constant"):
        numbers = [int(pad) for pad in known.ravel()]
        attributes: dict[str, AttributeValue] = {"mode": mode, "pads": numbers}
        attributes["value"] = number or 0.0
        return em.op("Pad", data, attributes=attributes)
    dims = known_dims(data)
    if fill is None:
        zero = "" if dtype == _D.STRING else 0
        fill = em.constant(np.array([zero], dtype.numpy()), "fill")
    wide = cast(em, pads, _D.INT64)
    result = data
    for axis in range(len(dims)):
        ends = (axis, axis + len(dims))
        if known is not None and not known.ravel()[list(ends)].any():
            continue
        value = fill if mode == "constant" else None
        result = _padded(em, result, dims, axis, wide, value, mode == "reflect")
        dims = (*dims[:axis], None, *dims[axis + 1 :])
    if result is data:
        result = em.op("Identity", data)
    return result


def _padded(
    em: Emitter,
    data: ir.Value,
    dims: Dims,
    axis: int,
    pads: ir.Value,
    fill: ir.Value | None,
    reflects: bool,
) -> ir.Value:
    """Return the data with rows added to, or taken from, both ends of an axis.

    One row of the fill is put behind the others, and whatever lies outside of them gathers it.
    Without a fill it gathers the row at that end, or the one as far inside as it is outside.
    """
    rank = len(dims)
    begin, end = (Term(em, em.op("Gather", pads, [place])) for place in (axis, axis + rank))
    length = product(em, data, dims, [axis])
    count = clamped(begin + length + end, [0], [_LONG])
    place = count_up(em, count) - begin
    if fill is None:
        last = length - [1]
        if reflects:
            turns = abs(place) % clamped(last + last, [1], [_LONG])
            place = last - abs(last - turns)
        return em.op("Gather", data, clamped(place, [0], last), axis=axis)
    target = joined_sizes(em, data, dims, [[] if d == axis else [d] for d in range(rank)])
    row = em.op("Expand", em.op("Reshape", fill, [1] * rank), target)
    more = em.op("Concat", data, row, axis=axis)
    index = replaced_where(place, (place < [0]) | (length < place), length)
    return em.op("Gather", more, index, axis=axis)


def lower_depth_to_space_11(view: Rewritten, em: Emitter) -> Replacement:
    """Bring the channels into the order of `mode=DCR`, the one that older opsets have.

    Refuses an unknown number of channels.
    """
    data, block = view.required("input"), view.integer("blocksize")
    if view.string("mode") != "CRD":
        return again(em, view.node)
    dims = known_dims(data)
    if len(dims) != 4 or not isinstance(dims[1], int):
        raise Refusal(
            "unknown-dimension",
            "`mode=CRD` before opset 11 depends on the number of channels, which is unknown",
        )
    order = np.arange(dims[1]).reshape(-1, block * block).T.ravel()
    sorted_ = em.op("Gather", data, [int(place) for place in order], axis=1)
    return again(em, view.node, [sorted_])


def lower_resize_11(view: Rewritten, em: Emitter) -> Replacement:
    """Write weighted sums of rows, as the coordinates are those of `asymmetric` in older opsets.

    By tables where scales or sizes and the sizes of the input are constant, else with places and
    shares that are computed when the model runs.

    Refuses an unknown rank, and integers unless the mode is `nearest`.
    """
    written = resized(view, em)
    if written is None:
        known_dims(view.required("X"))
        kind = known_type(view.required("X")).name
        text = f"Resize of {kind} with `mode={view.string('mode')}` needs opset 11"
        raise Refusal("element-type", text)
    return written


# Negative axes, which came with opset 11 for most operators that have any.


def lower_negative_axes_11(view: Rewritten, em: Emitter) -> Replacement:
    """Count the axes from the front.

    Refuses negative axes of a value whose rank is unknown.
    """
    name = "axes" if "axes" in view.facts.attributes else "axis"
    given = view.attribute(name)
    if given is None:
        return again(em, view.node)
    axes = [int(axis) for axis in (given if isinstance(given, tuple) else (given,))]
    if min(axes, default=0) >= 0:
        return again(em, view.node)
    data = view.node.inputs[0]
    assert data is not None
    rank = len(known_dims(data))
    if view.node.op_type == "Unsqueeze":
        rank += len(axes)
    front = [counted_axis(axis, rank, name) for axis in axes]
    return again(em, view.node, attributes={name: front if isinstance(given, tuple) else front[0]})
