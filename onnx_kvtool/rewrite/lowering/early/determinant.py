"""Det-11, for opset 10."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import AttributeValue, Emitter
from onnx_kvtool.emit.forms import cast, reduce, squeeze, unsqueeze, where
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.lowering.early.again import (
    count_up,
    element_type,
    joined_sizes,
    known_rank,
    product,
)

__all__ = ["lower_det_11"]

_D = ir.DataType
_BOOL, _INT64 = _D.BOOL, _D.INT64


def lower_det_11(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Eliminate column after column in a Loop, by the row with the largest element in it.

    The determinant is the product of these elements, turned around for each odd number of rows
    that a chosen one passes. float16 is computed in float32.

    Refuses an unknown rank.
    """
    view = NodeView(node, context.opset_of(node))
    data = view.required("X")
    dtype = element_type(data, "Det", 11)
    dims = known_rank(data, "Det", 11)
    if len(dims) < 2:
        raise Refusal("unknown-rank", f"`{data.name}` is no matrix")
    wide = _D.DOUBLE if dtype == _D.DOUBLE else _D.FLOAT
    order, batch = product(em, data, dims, [len(dims) - 1]), range(len(dims) - 2)
    sizes = joined_sizes(em, data, dims, [batch, [len(dims) - 2], [len(dims) - 1]])
    matrices = em.op("Reshape", cast(em, data, wide), sizes, dtype=wide, hint="matrices")
    result = _Elimination(em, wide, product(em, data, dims, batch), order).run(matrices)
    shape = joined_sizes(em, data, dims, [[axis] for axis in batch])
    return Replacement((cast(em, em.op("Reshape", result, shape, dtype=wide), dtype),))


class _Elimination:
    """Elimination with a choice among the rows that were not chosen before.

    Args:
        em: Where to build.
        dtype: float32 or float64.
        count: Number of matrices: (1,), int64.
        order: Rows of each: (1,), int64.
    """

    def __init__(self, em: Emitter, dtype: ir.DataType, count: ir.Value, order: ir.Value) -> None:
        self._em, self._dtype, self._count, self._order = em, dtype, count, order
        self._rows = unsqueeze(em, count_up(em, order), [0])  # (1, n)
        self._first = em.op("Mul", count_up(em, count), order, hint="first_rows")  # (B,)

    def run(self, matrices: ir.Value) -> ir.Value:
        """Return the determinants of matrices: (B, n, n) to (B, 1)."""
        em, dtype = self._em, self._dtype
        one = ir.Tensor(np.ones(1, dtype.numpy()))
        zero = ir.Tensor(np.zeros(1, dtype.numpy()))
        single = em.op(
            "Concat", self._count, em.constant([1], "one"), attributes={"axis": 0}, hint="shape"
        )
        whole = em.op("Concat", self._count, self._order, attributes={"axis": 0}, hint="shape")
        start = em.op("ConstantOfShape", single, attributes={"value": one}, dtype=dtype)
        unused = em.op("ConstantOfShape", whole, attributes={"value": zero}, dtype=dtype)
        turn, goes = self._input("turn", _INT64, 0), self._input("goes_on", _BOOL, 0)
        state = [self._input(name, dtype, rank) for name, rank in _STATE]

        def build() -> list[ir.Value]:
            return [em.op("Identity", goes, dtype=_BOOL), *self._step(turn, *state)]

        attributes: dict[str, AttributeValue] = {
            "body": em.nested(build, [turn, goes, *state], hint="elimination")
        }
        rounds = em.op("Reshape", self._order, em.constant([], "scalar"), hint="rounds")
        given = [rounds, em.constant(np.array(True), "goes_on"), matrices, unused, start]
        return em.multi("Loop", *given, attributes=attributes, dtypes=[dtype] * 3)[2]

    def _input(self, name: str, dtype: ir.DataType, rank: int) -> ir.Value:
        fresh = self._em.scope.names.fresh(f"{self._em.prefix}/{name}")
        return ir.Value(name=fresh, type=ir.TensorType(dtype), shape=ir.Shape([None] * rank))

    def _op(self, op_type: str, *inputs: ir.Value) -> ir.Value:
        return self._em.op(op_type, *inputs, dtype=self._dtype)

    def _number(self, number: float) -> ir.Value:
        return self._em.constant(np.array(number, self._dtype.numpy()), "number")

    def _is(self, op_type: str, *inputs: ir.Value) -> ir.Value:
        return self._em.op(op_type, *inputs, dtype=_BOOL)

    def _step(
        self, turn: ir.Value, matrices: ir.Value, used: ir.Value, found: ir.Value
    ) -> list[ir.Value]:
        """Eliminate one column.

        Args:
            turn: The column: ().
            matrices: What is left of them: (B, n, n).
            used: 1 for each row that was chosen: (B, n).
            found: The product so far: (B, 1).
        """
        em, dtype = self._em, self._dtype
        column = em.op("Gather", matrices, turn, attributes={"axis": 2}, dtype=dtype)
        was_used = self._is("Greater", used, self._number(0.5))
        size = where(em, was_used, self._number(-1), self._op("Abs", column), "size")
        chosen = em.op("ArgMax", size, attributes={"axis": 1, "keepdims": 1}, hint="chosen")

        flat = em.op(
            "Reshape",
            matrices,
            em.op("Concat", em.constant([-1]), self._order, attributes={"axis": 0}),
            dtype=dtype,
            hint="rows",
        )
        number = em.op("Add", squeeze(em, chosen, [1]), self._first, hint="number")
        row = em.op("Gather", flat, number, attributes={"axis": 0}, dtype=dtype, hint="row")
        pivot = unsqueeze(
            em, em.op("Gather", row, turn, attributes={"axis": 1}, dtype=dtype), [1], "pivot"
        )
        before = cast(em, self._is("Less", self._rows, chosen), dtype)
        passed = reduce(em, "ReduceSum", self._op("Mul", before, self._left(used)), [1])
        pairs = self._op("Floor", self._op("Mul", passed, self._number(0.5)))
        odd = self._op("Sub", passed, self._op("Mul", pairs, self._number(2)))
        sign = self._op("Sub", self._number(1), self._op("Mul", odd, self._number(2)))
        product = self._op("Mul", self._op("Mul", found, pivot), sign)

        is_chosen = cast(em, self._is("Equal", self._rows, chosen), dtype)
        used = self._op("Add", used, is_chosen)
        zero = self._number(0)
        some = self._is("Or", self._is("Less", pivot, zero), self._is("Greater", pivot, zero))
        # Nothing is left in a column without a pivot, and the determinant is 0.
        divisor = self._op("Add", pivot, cast(em, self._is("Not", some), dtype))
        is_left = self._is("Less", used, self._number(0.5))
        share = where(em, is_left, self._op("Div", column, divisor), zero, "share")
        taken = self._op("Mul", unsqueeze(em, share, [2]), unsqueeze(em, row, [1]))
        return [self._op("Sub", matrices, taken), used, product]

    def _left(self, used: ir.Value) -> ir.Value:
        return self._op("Sub", self._number(1), used)


_STATE = (("matrices", 3), ("used", 2), ("determinant", 2))
"""What the Loop hands on, and the rank of each."""
