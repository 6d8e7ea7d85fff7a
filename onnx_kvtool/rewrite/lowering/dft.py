"""DFT-20 and DFT-17: the axis as an attribute at 17 to 19, a product with a matrix below."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.result import Refusal, Replacement
from onnx_kvtool.ops.view import MalformedNode, NodeView
from onnx_kvtool.rewrite.engine.rule import LoweringContext
from onnx_kvtool.rewrite.lowering.dft_matrix import LARGEST, dft_matrix
from onnx_kvtool.rewrite.lowering.run_time_axes import axis_marks, switch
from onnx_kvtool.symbolic.dimensions import Dim, dims_of

__all__ = ["lower_dft_20"]


def lower_dft_20(context: LoweringContext, node: ir.Node, em: Emitter) -> Replacement:
    """Give DFT its axis as an attribute, or multiply with the matrix of the transform.

    input (..., N, ..., C) -> (..., ..., N * C) x matrix (N * C, K * 2) -> (..., K, ..., 2)

    An axis that is known at run time only takes one If per axis. Below 11, where both branches have
    to give equal shapes, the transform is cut out of both, with as many components throughout.

    Refuses an unknown rank; below 17 also a length or a number of components that is
    not known, one that makes the matrix too large, and element types other than float32 and
    float64.
    """
    view = NodeView(node, context.opset_of(node))
    data, length = view.required("input"), view.input("dft_length")
    dims = dims_of(data)
    if dims is None or len(dims) < 2:
        raise Refusal("unknown-rank", f"the rank of `{data.name}` is unknown")
    axis = _axis(context, view, len(dims))
    inverse, onesided = (view.integer(name) != 0 for name in ("inverse", "onesided"))

    def transform(place: int) -> ir.Value:
        if em.opset < 17:
            matrix = _matrix(context, data, dims, place, length, inverse, onesided)
            return _product(em, data, len(dims), place, matrix)
        attributes = {"inverse": int(inverse), "onesided": int(onesided), "axis": place}
        given = [] if length is None else [length]
        dtype = data.dtype or ir.DataType.UNDEFINED
        return em.op("DFT", data, *given, attributes=attributes, dtype=dtype)

    if axis is not None:
        return Replacement((transform(axis),))
    # Half a spectrum of one element belongs to no signal, so that such an axis is never meant.
    halved = inverse and onesided and length is None
    places = [p for p in range(len(dims) - 1) if not (halved and dims[p] == 1)]
    if not em.branches and (onesided or length is not None):
        marks = axis_marks(em, view.required("axis"), len(dims))
        matrices = {p: _matrix(context, data, dims, p, length, inverse, onesided) for p in places}
        return Replacement((_cut(em, marks, data, matrices, len(dims)),))
    form = None if onesided or length is not None else (*dims[:-1], 2)
    return Replacement((_chosen(em, view.required("axis"), len(dims), places, transform, form),))


def _chosen(
    em: Emitter,
    axis: ir.Value,
    rank: int,
    places: list[int],
    transform: Callable[[int], ir.Value],
    form: tuple[Dim, ...] | None,
) -> ir.Value:
    """Return the transform along an axis that is known at run time, from one If per axis.

    `form` is the shape of the result where it is the same for all axes.
    """
    marks = axis_marks(em, axis, rank)
    result = transform(places[-1])
    result.shape = None if form is None else ir.Shape(form)
    for place in places[:-1]:
        result = switch(em, marks, place, result, functools.partial(_at, transform, place))
    return result


def _at(transform: Callable[[int], ir.Value], place: int, otherwise: ir.Value) -> ir.Value:
    return transform(place)


def _cut(
    em: Emitter,
    marks: ir.Value,
    data: ir.Value,
    matrices: Mapping[int, NDArray[np.float64]],
    rank: int,
) -> ir.Value:
    """Return the transform along the axis that is marked, of which the length changes.

    Along every axis the transform is made of what the axes before gave: that is the signal still,
    unless one of them was meant. All have the components that the signal or the result has more of.
    """
    dtype = data.dtype or ir.DataType.UNDEFINED
    parts, components = next((m.shape[1], m.shape[3]) for m in matrices.values())

    def with_parts(value: ir.Value, given: int, wanted: int) -> ir.Value:
        if given == wanted:
            return value
        if given < wanted:  # what is added is cut off again, and means nothing
            both, attributes = [value, value], {"axis": rank - 1}
            return em.op("Concat", *both, attributes=attributes, dtype=dtype, hint="widened")
        first = em.constant(list(range(wanted)), "components")
        return em.op("Gather", value, first, attributes={"axis": rank - 1}, dtype=dtype)

    most = max(parts, components)
    result = with_parts(data, parts, most)
    if result is not data:
        result.shape = ir.Shape([*(dims_of(data) or ())[:-1], most])
    for place, matrix in matrices.items():

        def transform(
            value: ir.Value, place: int = place, matrix: NDArray[np.float64] = matrix
        ) -> ir.Value:
            product = _product(em, with_parts(value, most, parts), rank, place, matrix)
            return with_parts(product, components, most)

        result = switch(em, marks, place, result, transform, size=matrix.shape[2])
    return with_parts(result, most, components)


def _axis(context: LoweringContext, view: NodeView, rank: int) -> int | None:
    """Return the axis, not negative; None when it is known at run time only."""
    if "axis" in view.facts.attributes:
        return view.integer("axis") % rank
    given = view.input("axis")
    if given is None:
        return (-2) % rank
    if rank == 2:
        return 0  # the only one that is not the components'
    known = context.folder.integers(given)
    return None if known is None else int(known.ravel()[0]) % rank


def _matrix(
    context: LoweringContext,
    data: ir.Value,
    dims: tuple[Dim, ...],
    axis: int,
    length: ir.Value | None,
    inverse: bool,
    onesided: bool,
) -> NDArray[np.float64]:
    """Return the transform as a matrix: (N, C, K, components)."""
    size, parts, known = dims[axis], dims[-1], context.folder.integers(length)
    if not isinstance(size, int) or parts not in (1, 2) or (length is not None and known is None):
        raise Refusal(
            "unknown-dimension",
            f"the length of the transform of `{data.name}` is unknown, and DFT came with opset 17",
            help="give the dimensions and `dft_length` values",
            lowest_opset=17,
        )
    if data.dtype not in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
        text = "DFT is written as a product for float32 and float64 only"
        raise Refusal("element-type", text, lowest_opset=17)
    wanted = None if known is None else int(known.ravel()[0])
    if wanted is not None and wanted <= 0:
        raise MalformedNode("bad-length", f"`dft_length` is {wanted}, expected at least 1")
    if inverse and onesided and wanted is None and size == 1:
        raise MalformedNode("bad-length", "half a spectrum of one element belongs to no signal")
    if size * (wanted or 2 * size) * 4 > LARGEST:
        text = f"DFT of length {size} would need a matrix of more than {LARGEST} elements"
        raise Refusal("too-large", text, lowest_opset=17)
    return dft_matrix(size, int(parts or 1), wanted, inverse=inverse, onesided=onesided)


def _product(
    em: Emitter, data: ir.Value, rank: int, axis: int, matrix: NDArray[np.float64]
) -> ir.Value:
    dtype = data.dtype or ir.DataType.UNDEFINED
    others = [a for a in range(rank - 1) if a != axis]
    size, parts, results, components = matrix.shape

    def shaped(value: ir.Value, last: list[int]) -> ir.Value:
        # The other dimensions are copied: 0 means that of the input at this place.
        shape = em.constant([0] * len(others) + last, "shape")
        return em.op("Reshape", value, shape, dtype=dtype)

    turned = em.op(
        "Transpose", data, attributes={"perm": [*others, axis, rank - 1]}, dtype=dtype
    )  # (..., N, C)
    flat = shaped(turned, [size * parts])
    weights = matrix.reshape(size * parts, results * components).astype(dtype.numpy())
    product = em.op("MatMul", flat, em.constant(weights, "dft"), dtype=dtype)
    spread = shaped(product, [results, components])  # (..., K, components)
    back = [(*others, axis, rank - 1).index(a) for a in range(rank)]
    return em.op("Transpose", spread, attributes={"perm": back}, dtype=dtype)
