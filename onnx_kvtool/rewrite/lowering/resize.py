"""Resize, with sizes of the file or of the run."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from onnx_kvtool.core.storage import fixed_tensor
from onnx_kvtool.emit.emitter import AttributeValue, Emitter, Operand, Refusal, Replacement
from onnx_kvtool.emit.forms import Term, cast, computed_in, dtype_of, known_dims, size, unsqueeze
from onnx_kvtool.emit.sampling import clip
from onnx_kvtool.ops.view import NodeView, counted_axis
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.rewrite.lowering.early.again import again, count_up
from onnx_kvtool.symbolic.dimensions import Dims, dims_of, fixed_sizes

# Places and shares that are computed when the model is lowered, as far as the file fixes them.


_D = ir.DataType
_MOST = 2**20
"""Elements of a table."""
_MOST_TAPS = 32
"""Most source rows that tables read for one row of the result."""


def _scattered(x: NDArray[Any], index: NDArray[np.int64], updates: NDArray[Any]) -> NDArray[Any]:
    result = x.copy()
    result[index] = updates
    return result


_COMPUTED: Mapping[str, Callable[..., Any]] = {
    "Abs": np.abs,
    "Add": np.add,
    "Cast": lambda x, to: x.astype(_D(to).numpy()),
    "Ceil": np.ceil,
    "Div": np.divide,
    "Floor": np.floor,
    "Gather": lambda x, index, axis=0: np.take(x, index, axis),
    "Greater": np.greater,
    "Less": np.less,
    "Max": lambda *operands: functools.reduce(np.maximum, operands),
    "Min": lambda *operands: functools.reduce(np.minimum, operands),
    "Mul": np.multiply,
    "Or": np.logical_or,
    "ReduceSum": lambda x, axes: x.sum(tuple(axes), keepdims=True),
    "Reshape": np.reshape,
    "ScatterElements": _scattered,
    "Sub": np.subtract,
    "Unsqueeze": lambda x, axes: np.expand_dims(x, tuple(axes)),
    "Where": np.where,
}
"""What the formulas below are made of."""


class _Early(Emitter):
    """An emitter that computes what is made of constants, and emits the rest."""

    def __init__(self, em: Emitter) -> None:
        vars(self).update(vars(em))

    def multi(
        self,
        op_type: str,
        *inputs: Operand,
        attributes: Mapping[str, AttributeValue] | None = None,
        **keywords: Any,
    ) -> tuple[ir.Value, ...]:
        operands = self._values(op_type, inputs)
        known = [constant_numbers(value) for value in operands]
        if op_type in _COMPUTED and not any(numbers is None for numbers in known):
            with np.errstate(all="ignore"), suppress(IndexError, ValueError):
                result = _COMPUTED[op_type](*known, **(attributes or {}))
                return (self.constant(np.asarray(result)),)
        return super().multi(op_type, *operands, attributes=attributes, **keywords)


def constant_numbers(value: ir.Value | None) -> NDArray[Any] | None:
    """Return the elements of a small constant; None for another value."""
    tensor = fixed_tensor(value)
    return None if tensor is None or tensor.size > _MOST else tensor.numpy()


# Where the rows of a Resize lie in its source.


_ABOUT = 1e-6
"""How far from a half a coordinate may be for onnxruntime 1.32.0 to round it as one."""


@dataclass(frozen=True, slots=True)
class _Line:
    """One axis that is resized; numbers are (), float32, but for `after`.

    Attributes:
        axis: Which one.
        before: Its size.
        after: The size that it gets: (), int64.
        length: That size before it is made a whole number.
        scale: The factor between them.
        region: Where it begins and ends, as shares of the size; for `tf_crop_and_resize` alone.
    """

    axis: int
    before: Term
    after: Term
    length: Term
    scale: Term
    region: tuple[Term, Term] | None


def _coordinates(view: NodeView, line: _Line, i: Term) -> Term:
    """Return the place in the source of each row of the result: (after,)."""
    ends = line.before - 1  # the last place of the source
    steps = (line.length - 1).op("Max", _ABOUT)  # of one row alone none is taken
    several = (line.length > 1).cast(_D.FLOAT)
    if line.region is not None:
        start, stop = line.region
        spread = start * ends + i * (stop - start) * ends / steps
        middle = (start + stop) * 0.5 * ends
        return spread * several + middle * (1 - several)
    mode = view.string("coordinate_transformation_mode")
    if mode == "asymmetric":
        x = i / line.scale
    elif mode == "align_corners":
        x = i * ends / steps
    elif mode == "half_pixel_symmetric":
        x = _symmetric(line, i)
    else:
        x = (i + 0.5) / line.scale
        if mode != "tf_half_pixel_for_nn":
            x -= 0.5
        if mode == "pytorch_half_pixel":
            x *= several
    # A row whose axis keeps its size is itself, whatever rounding makes of it.
    differs = (line.scale < 1) | (line.scale > 1)
    return differs.op("Reshape", [1]).where(x, i)


def _symmetric(line: _Line, i: Term) -> Term:
    """Return the places of `half_pixel_symmetric`: as in onnxruntime the sum is one of float64."""
    adjustment = line.after.cast(_D.FLOAT) / (line.scale * line.before)
    offset = line.before / 2 * (1 - adjustment)
    start, row, scale = (part.cast(_D.DOUBLE) for part in (offset, i, line.scale))
    return (start + (row + 0.5) / scale - 0.5).cast(_D.FLOAT)


def _beyond(x: Term, before: Term) -> Term:
    """Return where coordinates lie outside of the source: bool."""
    below = Term(x.em, x.em.op("Greater", 0, x))
    return below | (x > before - 1)


def _nearest(mode: str, x: Term) -> Term:
    """Return coordinates made whole, as a `nearest_mode` says."""
    if mode in ("floor", "ceil"):
        return x.op(mode.capitalize())
    return _rounded(x, up=mode == "round_prefer_ceil")


def _rounded(x: Term, *, up: bool) -> Term:
    """Return whole numbers, of what is about a half the upper or the lower one."""
    low = x.op("Floor")
    rest = x - low  # is exact
    return low + (rest > (0.5 - _ABOUT if up else 0.5 + _ABOUT)).cast(_D.FLOAT)


# Resize as weighted sums of rows.


_FLOATS = (_D.FLOAT, _D.DOUBLE, _D.FLOAT16)
"""Element types that are interpolated."""


def resized(view: Rewritten, em: Emitter) -> Replacement | None:
    """Resize axis after axis, each row a weighted sum of rows of the source.

    As in onnxruntime coordinates are numbers of float32, and sizes are scales times sizes in
    float32, cut off. So `nearest` chooses the rows that its kernel chooses, also where rounding
    decides. As in the cases of onnx, and not there, the resized length is not cut off, and what a
    scale or a region makes of rows counts where it makes as many as there were.

        y = Gather(x, place_0) * share_0 + Gather(x, place_1) * share_1 + ...

    One row for `nearest`, two for `linear`, four for `cubic`, as many as a scale spreads them over
    where there is antialiasing. What the file fixes of places and shares are tables.

    Returns:
        None for an unknown rank, and for numbers that are no floats unless the mode is `nearest`.
    """
    data, mode = view.required("X"), view.string("mode")
    dims, dtype = dims_of(data), data.dtype
    if dims is None or dtype is None or (mode != "nearest" and dtype not in _FLOATS):
        return None
    wide = dtype if mode == "nearest" else computed_in(dtype)
    result, outside, via = Term(em, cast(em, data, wide)), [], "tables"
    for line in _lines(view, _Early(em), data, dims):
        count = _count(line.after)
        via = via if constant_numbers(count.value) is not None else "run_time"
        x = _coordinates(view, line, count.cast(_D.FLOAT))  # (after,)
        if line.region is not None:
            outside.append((line, _beyond(x, line.before)))
        result = _resized(view, line, x, result, len(dims))
    result = result.cast(dtype)
    for line, mark in outside:
        place = mark.then(unsqueeze, [d for d in range(len(dims)) if d != line.axis])
        fill = np.array(view.real("extrapolation_value")).astype(dtype.numpy())
        result = place.where(em.constant(fill, "fill"), result)
    same = result.value is data
    return Replacement((em.op("Identity", data) if same else result.value,), via=via)


def _lines(view: Rewritten, em: Emitter, data: ir.Value, dims: Dims) -> list[_Line]:
    """Return the axes that may change their size."""
    axes = [counted_axis(axis, len(dims)) for axis in view.integers("axes") or range(len(dims))]

    def looked_up(name: str, place: int) -> Term:
        value = view.required(name)
        known = view.known(value)
        return Term(em, value if known is None else em.constant(known)).op("Gather", place)

    befores = [Term(em, size(em, data, axis)).cast(_D.FLOAT) for axis in axes]
    if view.input("sizes") is None:
        scales = [looked_up("scales", place) for place in range(len(axes))]
        lengths = [scale * before for scale, before in zip(scales, befores, strict=True)]
        afters = [length.cast(_D.INT64) for length in lengths]
    else:
        afters = [looked_up("sizes", place).cast(_D.INT64) for place in range(len(axes))]
        lengths = [after.cast(_D.FLOAT) for after in afters]
        scales = [length / before for length, before in zip(lengths, befores, strict=True)]
        policy = view.string("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            scale = scales[0].op("Min" if policy == "not_larger" else "Max", *scales[1:])
            scales = [scale] * len(axes)
            lengths = [scale * before for before in befores]
            afters = [_rounded(length, up=True).cast(_D.INT64) for length in lengths]
    crops = view.string("coordinate_transformation_mode") == "tf_crop_and_resize"
    lines = []
    for place, axis in enumerate(axes):
        region = None
        if crops:
            ends = (looked_up("roi", p) for p in (place, place + len(axes)))
            first, last = (end.cast(_D.FLOAT) for end in ends)
            region = first, last
        elif constant_numbers(scales[place].value) == 1:
            continue
        sizes = befores[place], afters[place], lengths[place]
        lines.append(_Line(axis, *sizes, scales[place], region))
    return lines


def _count(count: Term) -> Term:
    """Return 0, 1, ... up to below a number: (count,), int64."""
    em, known = count.em, constant_numbers(count.value)
    if known is not None and known <= _MOST:
        return Term(em, em.constant(np.arange(int(known))))
    if em.opset >= 11:
        return Term(em, em.op("Range", 0, count, 1))
    return count_up(em, count.op("Reshape", [1]))


def _resized(view: NodeView, line: _Line, x: Term, data: Term, rank: int) -> Term:
    axis, mode = line.axis, view.string("mode")

    def rows(places: Term) -> Term:
        return clip(places, 0, line.before - 1).cast(_D.INT64)

    if mode == "nearest":
        return data.op("Gather", rows(_nearest(view.string("nearest_mode"), x)), axis=axis)
    reach, cut = (1 if mode == "linear" else 2), view.integer("exclude_outside") != 0
    antialias = view.integer("antialias", 0) != 0
    scale = line.scale.op("Min", 1)
    span = (reach / scale).op("Ceil") if antialias else Term(x.em, x.em.constant(reach))
    taps = _count((span + span).cast(_D.INT64))
    known = constant_numbers(taps.value)
    most = 2 * reach if constant_numbers(x.value) is None else _MOST_TAPS
    are_few = known is not None and 0 < known.size <= most
    if not are_few:
        x = Term(data.em, x.value)  # no table
    column = x.then(unsqueeze, [1])
    # The row before comes first of the inner two, so that what is left of the way is in (0, 1].
    places = column.op("Ceil") - span.cast(_D.FLOAT) + taps.cast(_D.FLOAT)  # (after, taps)
    distance = abs(places - column)
    if antialias:
        distance *= scale
    if mode == "linear":
        shares = (1 - distance).op("Max", 0)
    else:
        shares = _keys(distance, view.real("cubic_coeff_a"))
    if cut:  # shares of places that the source does not have
        shares *= 1 - _beyond(places, line.before).cast(_D.FLOAT)
    if cut or antialias:
        shares /= shares.reduce("ReduceSum", [1])
    index, shares = rows(places), shares.cast(dtype_of(data.value))

    def spread(numbers: Term, axes: int) -> Term:
        behind = range(axes, axes + rank - axis - 1)
        return numbers.then(unsqueeze, behind) if behind else numbers

    if known is None or not are_few:
        found = data.op("Gather", index, axis=axis)  # (..., after, taps, ...)
        return (found * spread(shares, 2)).reduce("ReduceSum", [axis + 1], keepdims=False)
    places_shares = ((v.op("Gather", tap, axis=1) for v in (index, shares)) for tap in known)
    parts = (data.op("Gather", i, axis=axis) * spread(share, 1) for i, share in places_shares)
    return functools.reduce(operator.add, parts)


def _keys(distance: Term, a: float) -> Term:
    """Return the shares of Keys' cubic with coefficient `a`."""
    near = (distance * (a + 2) - (a + 3)) * distance * distance + 1
    far = ((distance * a - 5 * a) * distance + 8 * a) * distance - 4 * a
    return (distance > 2).where(0, (distance > 1).where(far, near))


# Resize-19, for opsets below 19 and below 13.


def lower_resize_19(view: Rewritten, em: Emitter) -> Replacement:
    """Spread sizes, scales and regions of some axes over all of them; fill in empty inputs.

    An axis that is not named keeps its size: its scale is 1, its region 0 to 1. Below 13 `roi` and
    `scales` are required, and empty ones stand for absent ones.

    Antialiasing, sizes that keep the aspect ratio (the scale is then that of one axis, which
    neither sizes nor scales can say) and `half_pixel_symmetric` are written as weighted sums of
    rows: by tables where scales or sizes and the sizes of the input are constant, else with places
    and shares that are computed when the model runs, as onnxruntime computes them.

    Refuses these of an unknown rank, and of integers unless the mode is `nearest`; `axes` for an
    unknown rank; and the mode `tf_half_pixel_for_nn`, which went with opset 13.
    """
    data = view.required("X")
    roi, scales, sizes = view.input("roi"), view.input("scales"), view.input("sizes")
    lacking = _lacking(view, em.opset)
    if lacking is not None:
        if (written := resized(view, em)) is None:
            raise lacking
        return written
    axes = view.integers("axes")
    if axes and em.opset < 18:
        rank = len(known_dims(data, "Resize has no `axes` before opset 18, and "))
        first, early = np.array(axes, np.int64) % rank, _Early(em)
        if sizes is not None:
            known, dims = view.known(sizes), fixed_sizes(dims_of(data))
            given = sizes if known is None else known.ravel()
            before = em.op("Shape", data) if dims is None else np.array(dims, np.int64)
            sizes = early.op("ScatterElements", before, first, given)
        if scales is not None:
            scales = early.op("ScatterElements", np.ones(rank, np.float32), first, scales)
        if roi is not None and roi.dtype is not None:
            whole = np.repeat(np.array([0, 1]), rank).astype(roi.dtype.numpy())
            roi = early.op("ScatterElements", whole, np.concatenate([first, first + rank]), roi)
    if em.opset < 13:
        nothing = em.constant(np.zeros(0, np.float32), "nothing")
        roi, scales = roi or nothing, scales or nothing
    return again(em, view.node, [data, roi, scales, sizes])


def _lacking(view: NodeView, opset: int) -> Refusal | None:
    """Return the refusal of an attribute that the target does not have; None if it has all."""
    if opset < 18 and view.integer("antialias", 0):
        return Refusal("attribute", "`antialias` does not exist before opset 18")
    policy = view.string("keep_aspect_ratio_policy", "stretch")
    if opset < 18 and policy != "stretch" and view.input("sizes") is not None:
        text = f"`keep_aspect_ratio_policy={policy}` does not exist before opset 18"
        return Refusal("attribute-value", text)
    mode = view.string("coordinate_transformation_mode")
    if opset < 19 and mode == "half_pixel_symmetric":
        text = f"`coordinate_transformation_mode={mode}` does not exist before opset 19"
        return Refusal("attribute-value", text)
    return None
