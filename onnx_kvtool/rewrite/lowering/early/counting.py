"""CumSum, Range, Unique, TopK and their kin, by comparing all with all."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter, Refusal, Replacement
from onnx_kvtool.emit.forms import (
    Term,
    cast,
    known_dims,
    known_type,
    outputs_of,
    squeeze,
    terms,
    unsqueeze,
)
from onnx_kvtool.ops.traits import FLOAT_TYPES
from onnx_kvtool.ops.view import counted_axis
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.rewrite.lowering.arithmetic import accumulated_along
from onnx_kvtool.rewrite.lowering.early.again import (
    again,
    count_up,
    joined_sizes,
    product,
)
from onnx_kvtool.rewrite.lowering.early.indexing import gathered_elements
from onnx_kvtool.symbolic.dimensions import dims_of

# Range-11 and CumSum-11, for opset 10.


_D = ir.DataType
_INTEGERS = frozenset({_D.INT16, _D.INT32, _D.INT64})


def lower_range_11(view: Rewritten, em: Emitter) -> ir.Value:
    """Count up to the number of elements, which NonZero does, and take steps.

        n = max(ceil((limit - start) / delta), 0)
        y = start + NonZero(ones of n) * delta

    Integers are counted in int64, where the quotient is rounded up by adding `delta - sign(delta)`;
    of floats the quotient is taken in float64, as runtimes do.
    """
    given = [view.required(name) for name in ("start", "limit", "delta")]
    dtype = known_type(given[0])
    wide = _D.INT64 if dtype in _INTEGERS else dtype
    start, limit, delta = (x.cast(wide).op("Reshape", [1]) for x in terms(em, *given))
    way = limit - start
    if wide == _D.INT64:
        count = (way + (delta - delta.op("Sign"))) / delta
    else:
        quotient = way.cast(_D.DOUBLE) / delta.cast(_D.DOUBLE)
        count = quotient.cast(_D.INT64)  # cut off
        count += (count.cast(_D.DOUBLE) < quotient).cast(_D.INT64)
    count = (count < [0]).op("Where", [0], count)
    return (start + count_up(em, count).cast(wide) * delta).cast(dtype).value


def lower_cum_sum_11(view: Rewritten, em: Emitter) -> ir.Value:
    """Add up slice after slice along the axis, in a Scan.

    Along an axis that is known at run time only it is done for each axis, and the sum that is
    meant is cut out.

    Refuses an unknown rank.
    """
    # What is added to -0 stays what it is, zeros of both signs as well.
    return accumulated_along(
        view, em, "Add", np.full(1, 0.0 if view.integer("exclusive") else -0.0)
    )


# Unique-11, for opset 10.


_BOOL = ir.DataType.BOOL
_INT32 = ir.DataType.INT32
_INT64 = ir.DataType.INT64
_FLOAT = ir.DataType.FLOAT
_NARROW = frozenset({_D.BOOL, _D.INT8, _D.UINT8, _D.INT16, _D.UINT16})


def lower_unique_11(view: Rewritten, em: Emitter) -> Replacement:
    """Compare every element, or slice along the axis, with every other one.

    The first of its kind is one that equals none before it. Its place in the result is the number
    of firsts that are less, or, not sorted, that are before it. What is no number equals its like
    and is behind all others, as numpy has it. The comparisons take n * n numbers of memory.

    Refuses types that have no order, and with an axis an unknown rank.
    """
    data, axis = view.required("X"), view.attribute("axis")
    dtype = known_type(data)
    if not (dtype in FLOAT_TYPES or dtype.is_integer() or dtype == _BOOL):
        text = f"Unique of {dtype.name} cannot be lowered below opset 11"
        raise Refusal("element-type", text)
    if axis is None:
        source = em.op("Reshape", data, [-1])
        rows, along = unsqueeze(em, source, [1]), 0
        given, width = dims_of(data), None
        if given is None:
            count = Term(em, data).op("Size").op("Reshape", [1])
        else:
            count = product(em, data, given, range(len(given)))
    else:
        assert isinstance(axis, int)
        dims = known_dims(data)
        source, along = data, counted_axis(axis, len(dims))
        others = [place for place in range(len(dims)) if place != along]
        turned = em.op("Transpose", data, perm=[along, *others])
        shape = joined_sizes(em, data, dims, [[along], others])
        rows = em.op("Reshape", turned, shape)
        count, width = product(em, data, dims, [along]), product(em, data, dims, others)
    less = _less(Term(em, rows), dtype, width)
    place, order, counts = _groups(less, count, view.integer("sorted") != 0)
    found = em.op("Gather", source, order, axis=along)
    kinds = order.op("Identity"), place, counts.op("Gather", order)
    return outputs_of(view.node, found, *(kind.value for kind in kinds))


def _less(rows: Term, dtype: ir.DataType, width: Term | None) -> Term:
    """Return whether each row of (n, m) is less than each other: (n, n); `width` is m, or None."""
    wide = {_D.FLOAT16: _FLOAT, _D.UINT32: _INT64}.get(dtype, _INT32 if dtype in _NARROW else dtype)
    rows = rows.cast(wide)
    one, other = rows.then(unsqueeze, [1]), rows.then(unsqueeze, [0])

    less = one < other  # (n, n, m)
    if wide in FLOAT_TYPES:
        is_none, is_other_none = (value.op("IsNaN") for value in (one, other))
        less |= ~is_none & is_other_none
    if width is None:
        return less.then(squeeze, [2])
    # The first place where two rows differ decides: each place has a number above those behind it.
    weights = (width - count_up(width.em, width)).cast(_FLOAT)
    marked = less.cast(_FLOAT) * weights
    first = marked.reduce("ReduceMax", [2], keepdims=False)
    return first > first.op("Transpose", perm=[1, 0])


def _groups(less: Term, count: Term, is_sorted: bool) -> tuple[Term, Term, Term]:
    """Return equal rows as groups, sorted or in the order of the input.

    Returns:
        For each row of the input its place in the result: (n,); for each row of the result its
        place in the input: (u,); and how often each row of the input is in it: (n,). All int64.
    """

    def total(numbers: Term) -> Term:
        return numbers.cast(_INT64).reduce("ReduceSum", [0], keepdims=False)

    equal = ~(less | less.op("Transpose", perm=[1, 0]))
    every = count_up(less.em, count)
    behind = every.then(unsqueeze, [1]) < every.then(unsqueeze, [0])
    is_first = total(equal & behind) < [1]  # (n,): it equals none before it
    firsts = is_first.cast(_INT64).op("NonZero").then(squeeze, [0])
    column = is_first.then(unsqueeze, [1])
    if is_sorted:
        place = total(column & less)
        order = firsts.op("Scatter", place.op("Gather", firsts), firsts, axis=0)
    else:
        ahead = total(column & behind)  # firsts before each row
        own = (column & equal).cast(_INT64)  # the first that a row equals
        place, order = total(own * ahead.then(unsqueeze, [1])), firsts
    return place, order, total(equal)


# TopK-11 for opset 10, and TopK-10 for opset 9.


def lower_top_k_11(view: Rewritten, em: Emitter) -> Replacement:
    """Negate what has to come in ascending order; widen integers that float64 holds.

    Those of 64 bits are sorted by their halves, as TopK keeps the order of what is equal.

    Refuses these of an unknown rank.
    """
    data, count = view.operands("X", "K")
    dtype = known_type(data)
    is_float = dtype in FLOAT_TYPES
    axis, turned = view.integer("axis"), view.integer("largest") == 0
    if axis < 0:
        axis = counted_axis(axis, len(known_dims(data)))
    if not is_float and dtype.bitwidth == 64:
        return Replacement(_by_halves(em, data, count, axis, turned))
    wide = dtype if is_float else _D.DOUBLE if dtype.bitwidth == 32 else _D.FLOAT
    operand = _signed(em, cast(em, data, wide), turned)
    values, places = em.multi("TopK", operand, count, axis=axis, count=2)
    return Replacement((cast(em, _signed(em, values, turned), dtype), places))


def _by_halves(
    em: Emitter, data: ir.Value, count: ir.Value, axis: int, turned: bool
) -> tuple[ir.Value, ir.Value]:
    """Sort by the lower halves, and what comes of that by the upper ones, both in float64."""
    dims, base = known_dims(data), 1 << 16

    def cut(number: Term) -> tuple[Term, Term]:
        """Return the quotient by the base, rounded down, and the rest."""
        rest = number % base
        return (number - rest) / base, rest

    quotient, first = cut(Term(em, cast(em, data, _D.INT64)))
    upper, second = cut(quotient)
    lower = second * base + first
    if data.dtype == _D.UINT64:  # the upper half is cast to one with a sign
        quotient, rest = cut(upper)
        upper = quotient % base * base + rest
    by_lower, by_upper = (
        _signed(em, half.cast(_D.DOUBLE).value, turned) for half in (lower, upper)
    )
    every = product(em, data, dims, [axis])
    _, order = em.multi("TopK", by_lower, every, axis=axis, count=2)
    by_upper = gathered_elements(em, by_upper, dims, order, dims, axis)
    _, chosen = em.multi("TopK", by_upper, count, axis=axis, count=2)
    cut_dims = (*dims[:axis], None, *dims[axis + 1 :])
    places = gathered_elements(em, order, dims, chosen, cut_dims, axis)
    return gathered_elements(em, data, dims, places, cut_dims, axis), places


def _signed(em: Emitter, value: ir.Value, turned: bool) -> ir.Value:
    return em.op("Neg", value) if turned else value


def lower_top_k_10(view: Rewritten, em: Emitter) -> Replacement:
    """Write a constant number as an attribute; take the first of all elements for another one.

    Version 1 takes no 0, which is none of all.

    Refuses a number that is known at run time only where the size of the axis is unknown.
    """
    data, known = view.required("X"), view.known(view.required("K"))
    axis = view.integer("axis")
    if axis < 0:
        axis = counted_axis(axis, len(known_dims(data)))
    if known is not None and known.size == 1 and known.item() > 0:
        attributes = {"axis": axis, "k": known.item()}
        return again(em, view.node, [data], attributes)
    dims = dims_of(data)
    size = None if dims is None else dims[axis]
    if not isinstance(size, int) or not size:
        raise Refusal(
            "dynamic-input",
            "TopK cannot be lowered below opset 10 unless `K` is a constant above 0, or the size "
            "of the axis is known and above 0",
            help="fix the sizes of the input with `--dim`",
        )
    whole = again(em, view.node, [data], {"axis": axis, "k": size})
    first = count_up(em, em.op("Reshape", view.required("K"), [1]))
    outputs = whole.outputs
    return Replacement(tuple(x and em.op("Gather", x, first, axis=axis) for x in outputs))
