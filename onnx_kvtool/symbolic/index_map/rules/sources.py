"""Operators that make integers: counters, sizes, filled tensors."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.ops.view import MalformedNode, counted_axis
from onnx_kvtool.symbolic.atoms import Extent
from onnx_kvtool.symbolic.bounds import Facts
from onnx_kvtool.symbolic.expression import coordinate, integer, product, variable
from onnx_kvtool.symbolic.forms import choose, is_less, is_zero
from onnx_kvtool.symbolic.index_map.description import IndexMap
from onnx_kvtool.symbolic.index_map.rules.constants import described
from onnx_kvtool.symbolic.index_map.site import Site
from onnx_kvtool.symbolic.substitute import substitute

__all__ = ["constant_of_shape", "one_hot", "range_", "shape", "size"]

_INTEGERS = {ir.DataType.INT64, ir.DataType.INT32}


def range_(site: Site) -> IndexMap | None:
    """Range-11: `start + delta * i`, for as many i as stay before `limit`."""
    given = [operand.scalar() for operand in site.inputs]
    if site.dtype not in _INTEGERS or len(given) != 3:
        return None
    start, _, delta = given
    if None in given or start is None or delta is None or delta.number == 0:
        return None
    return site.whole(start + coordinate(0) * delta)


def shape(site: Site) -> IndexMap | None:
    """Shape-1/13/15/...: sizes of the input from `start` to `end`."""
    value = site.view.required("data")
    sizes = site.shape_of(value)
    start, end = site.number("start", 0), site.number("end", None)
    if sizes is not None:
        return site.stacked(0, sizes[slice(start, end)])
    if start is None or start < 0 or end is not None:
        return None
    return site.whole(variable(Extent(value, coordinate(0) + start)))


def size(site: Site) -> IndexMap | None:
    """Size-1/13/...: the number of elements of the input."""
    sizes = site.shape_of(site.view.required("data"))
    return None if sizes is None else site.whole(product(sizes))


def constant_of_shape(site: Site) -> IndexMap | None:
    """ConstantOfShape-9/...: one number everywhere; float zero where there is no `value`."""
    tensor = site.tensor("value")
    dtype, number = ir.DataType.FLOAT, integer(0)
    if tensor is not None:
        held = described(tensor)
        element = held.scalar() if held is not None else None
        if held is None or element is None or held.dtype is None:
            return None
        dtype, number = held.dtype, element
    if any((size.number or 0) < 0 for size in site.shape):
        raise MalformedNode("negative-size", "`ConstantOfShape` reads a size below 0")
    return IndexMap.whole(site.shape, dtype, number)


def one_hot(site: Site) -> IndexMap | None:
    """OneHot-11: `on` where the new coordinate is the index, which may count from the end."""
    indices, depth, values = site.input("indices"), site.input("depth"), site.input("values")
    if indices is None or depth is None or values is None or indices.dtype not in _INTEGERS:
        return None
    count, pair = depth.scalar(), values.vector()
    if count is None and depth.vector() is not None:
        (count,) = depth.vector() or (None,)
    if indices.shape is None or indices.element is None or count is None or pair is None:
        return None
    if len(pair) != 2 or (count.number or 0) < 0:
        raise MalformedNode(
            "one-hot-operands", "`OneHot` takes two values and a depth of 0 or more"
        )
    rank = len(indices.shape) + 1
    axis = counted_axis(site.view.integer("axis"), rank)
    place = {i: coordinate(i + (i >= axis)) for i in range(rank - 1)}
    facts = Facts(site.shape)
    row = substitute(indices.element, place, facts)
    row = choose(is_less(row, integer(0), facts), row + count, row, facts)
    off, on = pair
    return site.whole(off + (on - off) * is_zero(row - coordinate(axis), facts))
