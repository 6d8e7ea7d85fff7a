"""Einsum-12, for opset 11: diagonals, sums, and one MatMul per pair of operands."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from onnx_kvtool.emit.emitter import Emitter, Refusal
from onnx_kvtool.emit.forms import known_dims, known_type, positions
from onnx_kvtool.ops.operators import Labels, parse
from onnx_kvtool.rewrite.engine.rule import Rewritten
from onnx_kvtool.rewrite.lowering.reshape import never_empty, reshape_literally
from onnx_kvtool.symbolic.dimensions import dims_of, fixed_sizes

_MOST_OPERANDS = 64


def lower_einsum_12(view: Rewritten, em: Emitter) -> ir.Value:
    """Contract the operands from left to right.

    An index that stands twice in one operand keeps its diagonal; one that nothing else needs is
    summed at once. Of two operands, common indices that are still needed are batch dimensions of a
    MatMul, the other common ones are summed by it.

    Refuses operands of unknown rank.
    """
    values = [value for value in view.node.inputs if value is not None]
    if len(values) > _MOST_OPERANDS:
        raise Refusal(
            "too-many-operands", f"Einsum has {len(values)} operands, more than {_MOST_OPERANDS}"
        )
    ranks = [len(known_dims(value)) for value in values]
    terms, output = parse(view.string("equation"), ranks)
    dtype = known_type(values[0])
    work = _Contraction(em, dtype, all(never_empty(v) for v in values))
    result, labels = values[0], terms[0]
    for index, value in enumerate(values):
        needed = set(output).union(*terms[index + 1 :])
        part, names = work.diagonal(value, terms[index])
        if index == 0:
            result, labels = work.keep(part, names, needed)
            continue
        part, names = work.keep(part, names, needed | set(labels))
        result, labels = work.keep(result, labels, needed | set(names))
        result, labels = work.contract(result, labels, part, names, needed)
    return work.ordered(result, labels, output)


class _Contraction:
    """The steps of one Einsum; each returns a value and the index of each of its dimensions."""

    def __init__(self, em: Emitter, dtype: ir.DataType, full: bool) -> None:
        self.em = em
        self.dtype = dtype
        self.full = full

    def diagonal(self, value: ir.Value, labels: Labels) -> tuple[ir.Value, Labels]:
        """Keep the elements whose coordinates on a repeated index are equal."""
        source, dims = value, dims_of(value)
        while len(set(labels)) < len(labels):
            second = next(i for i, name in enumerate(labels) if name in labels[:i])
            first, rank = labels.index(labels[second]), len(labels)
            places = [
                positions(self.em, source, at, place=at, rank=rank, dim=dims[at] if dims else None)
                for at in (first, second)
            ]
            equal = self.em.op("Equal", *places)
            zero = self.em.constant(np.zeros((), self.dtype.numpy()), "zero")
            value = self.em.op("Where", equal, value, zero)
            value = self.em.op("ReduceSum", value, axes=[second], keepdims=0)
            if dims is not None:
                dims = dims[:second] + dims[second + 1 :]
            labels = labels[:second] + labels[second + 1 :]
            source = value
        return value, labels

    def keep(self, value: ir.Value, labels: Labels, needed: set[str]) -> tuple[ir.Value, Labels]:
        """Sum over the indices that nothing needs."""
        axes = [i for i, name in enumerate(labels) if name not in needed]
        if axes:
            value = self.em.op("ReduceSum", value, axes=axes, keepdims=0)
        return value, tuple(name for name in labels if name in needed)

    def ordered(self, value: ir.Value, labels: Labels, wanted: Labels) -> ir.Value:
        perm, dims = [labels.index(name) for name in wanted], dims_of(value)
        if labels == wanted:
            result = self.em.op("Identity", value)
        else:
            result = self.em.op("Transpose", value, perm=perm)
        result.shape = None if dims is None else ir.Shape([dims[axis] for axis in perm])
        return result

    def contract(
        self, left: ir.Value, a: Labels, right: ir.Value, b: Labels, needed: set[str]
    ) -> tuple[ir.Value, Labels]:
        """Multiply: (batch, rows, inner) by (batch, inner, columns)."""
        batch = tuple(name for name in a if name in b and name in needed)
        inner = tuple(name for name in a if name in b and name not in needed)
        rows = tuple(name for name in a if name not in b)
        columns = tuple(name for name in b if name not in a)
        left = self.ordered(left, a, batch + rows + inner)
        right = self.ordered(right, b, batch + inner + columns)
        sizes = [(len(batch), len(rows), len(inner)), (len(batch), len(inner), len(columns))]
        flat = [self.flat(v, s) for v, s in zip((left, right), sizes, strict=True)]
        product = self.em.op("MatMul", *flat)  # (batch, rows, columns), with one size each
        if len(rows) != 1 or len(columns) != 1:
            pairs = list(zip(dims_of(left) or (), dims_of(right) or (), strict=False))[: len(batch)]
            if len(pairs) == len(batch):
                both = [fixed_sizes(pair) for pair in pairs]
                lead = [None if pair is None else pair[pair[0] == 1] for pair in both]
                product.shape = ir.Shape([*lead, None, None])
            shape = self.shape(
                self.sizes(product, 0, len(batch)),
                self.sizes(left, len(batch), len(batch) + len(rows)),
                self.sizes(right, len(batch) + len(inner), len(b)),
            )
            product = reshape_literally(self.em, product, shape, empty=not self.full)
        return product, batch + rows + columns

    def flat(self, value: ir.Value, groups: tuple[int, int, int]) -> ir.Value:
        """Merge the dimensions of the second and of the third group into one each."""
        if groups[1:] == (1, 1):
            return value
        first, middle = groups[0], groups[0] + groups[1]
        keep = {"keepdims": 1} | ({} if self.em.opset >= 18 else {"axes": [0]})
        merged = []
        for start, stop in ((first, middle), (middle, middle + groups[2])):
            part = self.sizes(value, start, stop)
            if part is None:
                merged.append(self.em.constant([1], "one"))
            else:
                merged.append(self.em.op("ReduceProd", part, attributes=keep))
        shape = self.shape(self.sizes(value, 0, first), *merged)
        return reshape_literally(self.em, value, shape, empty=not self.full)

    def shape(self, *parts: ir.Value | None) -> ir.Value:
        """Return the sizes of some groups of dimensions, one group behind the other."""
        given = [part for part in parts if part is not None]
        if not given:
            return self.em.constant([], "shape")
        return self.em.op("Concat", *given, axis=0)

    def sizes(self, value: ir.Value, start: int, stop: int) -> ir.Value | None:
        """Return the sizes of the dimensions from `start` to before `stop`: (stop - start,).

        None where these are none.
        """
        if start == stop:
            return None
        bounds = self.em.constant([start], "start"), self.em.constant([stop], "stop")
        return self.em.op("Slice", self.em.op("Shape", value), *bounds)
