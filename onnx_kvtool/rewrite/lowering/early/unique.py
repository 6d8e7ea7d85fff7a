"""Unique-11, for opset 10."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import cast, reduce, squeeze, unsqueeze
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.element_type import FLOAT_TYPES
from onnx_kvtool.ops.view import NodeView, counted_axis
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.lowering.early.again import (
    count_up,
    element_type,
    joined_sizes,
    known_rank,
    product,
)
from onnx_kvtool.symbolic.dimensions import dims_of

__all__ = ["lower_unique_11"]

_D = ir.DataType
_BOOL, _INT32, _INT64, _FLOAT = _D.BOOL, _D.INT32, _D.INT64, _D.FLOAT
_NARROW = frozenset({_D.BOOL, _D.INT8, _D.UINT8, _D.INT16, _D.UINT16})


def lower_unique_11(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Compare every element, or slice along the axis, with every other one.

    The first of its kind is one that equals none before it. Its place in the result is the number
    of firsts that are less, or, not sorted, that are before it. What is no number equals its like
    and is behind all others, as numpy has it. The comparisons take n * n numbers of memory.

    Refuses types that have no order, and with an axis an unknown rank.
    """
    view = NodeView(node, context.opset_of(node))
    data, axis = view.required("X"), view.attribute("axis")
    dtype = element_type(data, "Unique", 11)
    if not (dtype in FLOAT_TYPES or dtype.is_integer() or dtype == _BOOL):
        text = f"Unique of {dtype.name} cannot be written before opset 11"
        raise Refusal("element-type", text, lowest_opset=11)
    if axis is None:
        source = em.op("Reshape", data, em.constant([-1], "shape"), dtype=dtype, hint="flat")
        rows, along = unsqueeze(em, source, [1]), 0
        count, width = _size(em, data), None
    else:
        assert isinstance(axis, int)
        dims = known_rank(data, "Unique", 11)
        source, along = data, counted_axis(axis, len(dims))
        others = [place for place in range(len(dims)) if place != along]
        turned = em.op("Transpose", data, attributes={"perm": [along, *others]}, dtype=dtype)
        shape = joined_sizes(em, data, dims, [[along], others])
        rows = em.op("Reshape", turned, shape, dtype=dtype, hint="rows")
        count, width = product(em, data, dims, [along]), product(em, data, dims, others)
    less = _less(em, rows, dtype, width)
    found = _Groups(em, less, count, view.integer("sorted") != 0)
    order = found.order
    wanted = [bool(output.name) for output in node.outputs]
    results: list[ir.Value | None] = [
        em.op("Gather", source, order, attributes={"axis": along}, dtype=dtype)
    ]
    if any(wanted[1:]):
        results += [em.op("Identity", order), found.place, found.counts()]
    return Replacement(
        tuple(value if is_read else None for value, is_read in zip(results, wanted, strict=False))
    )


def _size(em: Emitter, value: ir.Value) -> ir.Value:
    """Return the number of elements of a value, whose rank may be unknown: (1,), int64."""
    dims = dims_of(value)
    if dims is not None:
        return product(em, value, dims, range(len(dims)))
    return em.op("Reshape", em.op("Size", value), em.constant([1], "one"), hint="count")


def _less(em: Emitter, rows: ir.Value, dtype: ir.DataType, width: ir.Value | None) -> ir.Value:
    """Return whether each row is less than each other one: (n, n), bool.

    Args:
        em: Where to build.
        rows: (n, m).
        dtype: Their type.
        width: The number m: (1,), int64; None for 1.
    """
    wide = {_D.FLOAT16: _FLOAT, _D.UINT32: _INT64}.get(dtype, _INT32 if dtype in _NARROW else dtype)
    rows = cast(em, rows, wide)
    one, other = unsqueeze(em, rows, [1]), unsqueeze(em, rows, [0])

    def op(op_type: str, *inputs: ir.Value) -> ir.Value:
        return em.op(op_type, *inputs, dtype=_BOOL)

    less = op("Less", one, other)  # (n, n, m)
    if wide in FLOAT_TYPES:
        is_none = [op("IsNaN", value) for value in (one, other)]
        less = op("Or", less, op("And", op("Not", is_none[0]), is_none[1]))
    if width is None:
        return squeeze(em, less, [2])
    # The first place where two rows differ decides: each place has a number above those behind it.
    weights = cast(em, em.op("Sub", width, count_up(em, width)), _FLOAT, hint="weights")
    marked = em.op("Mul", cast(em, less, _FLOAT), weights, dtype=_FLOAT, hint="marked")
    first = reduce(em, "ReduceMax", marked, [2], keepdims=False)
    turned = em.op("Transpose", first, attributes={"perm": [1, 0]}, dtype=_FLOAT)
    return op("Greater", first, turned)


class _Groups:
    """Which rows are equal, and in which order each is meant once.

    Args:
        em: Where to build.
        less: Whether each row is less than each other one: (n, n), bool.
        count: The number n: (1,), int64.
        is_sorted: Whether the result is sorted, else in the order of the input.

    Attributes:
        place: Where the row stands in the result, of each row of the input: (n,), int64.
        order: Which row of the input each of the result is: (u,), int64.
    """

    def __init__(self, em: Emitter, less: ir.Value, count: ir.Value, is_sorted: bool) -> None:
        def op(op_type: str, *inputs: ir.Value) -> ir.Value:
            return em.op(op_type, *inputs, dtype=_BOOL)

        self._em = em
        greater = em.op("Transpose", less, attributes={"perm": [1, 0]}, dtype=_BOOL)
        self._equal = op("Not", op("Or", less, greater))
        every = count_up(em, count)
        behind = op("Less", unsqueeze(em, every, [1]), unsqueeze(em, every, [0]))
        earlier = op("And", self._equal, behind)  # of the row before, and of the one behind it
        is_first = op("Less", self._total(earlier, 0), em.constant([1], "one"))  # (n,)
        firsts = squeeze(em, em.op("NonZero", cast(em, is_first, _INT64), hint="firsts"), [0])
        column = unsqueeze(em, is_first, [1])
        if is_sorted:
            self.place = self._total(op("And", column, less), 0)
            places = em.op("Gather", self.place, firsts, hint="places")
            self.order = em.op("Scatter", firsts, places, firsts, attributes={"axis": 0})
        else:
            ahead = self._total(op("And", column, behind), 0)  # firsts before each row
            own = cast(em, op("And", column, self._equal), _INT64)  # the first that a row equals
            counted = em.op("Mul", own, unsqueeze(em, ahead, [1]), hint="counted")
            self.place = self._sum(counted, 0)
            self.order = firsts

    def counts(self) -> ir.Value:
        """Return how often each row of the result is in the input: (u,), int64."""
        return self._em.op("Gather", self._total(self._equal, 0), self.order, hint="counts")

    def _total(self, marks: ir.Value, axis: int) -> ir.Value:
        """Return how often it is so, along an axis: (n,), int64."""
        return self._sum(cast(self._em, marks, _INT64), axis)

    def _sum(self, numbers: ir.Value, axis: int) -> ir.Value:
        return reduce(self._em, "ReduceSum", numbers, [axis], keepdims=False)
