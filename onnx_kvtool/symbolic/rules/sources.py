"""Operators that make integers: constants, counters, sizes, filled tensors."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_kvtool.ops.element_type import SIZE_TYPES
from onnx_kvtool.ops.view import MalformedNode, counted_axis
from onnx_kvtool.symbolic.atoms import Extent
from onnx_kvtool.symbolic.bounds import Facts
from onnx_kvtool.symbolic.expression import ZERO, coordinate, integer, product, variable
from onnx_kvtool.symbolic.forms import choose, divided, is_less, is_zero, largest
from onnx_kvtool.symbolic.index_map import IndexMap
from onnx_kvtool.symbolic.rules.constants import described
from onnx_kvtool.symbolic.rules.element_site import ElementSite
from onnx_kvtool.symbolic.rules.site import ShapeSite, Unknown, asked, placed
from onnx_kvtool.symbolic.sizes import Shape
from onnx_kvtool.symbolic.substitute import substitute

__all__ = [
    "constant",
    "constant_of_shape",
    "constant_of_shape_elements",
    "non_zero",
    "one_hot",
    "one_hot_elements",
    "range_",
    "range_elements",
    "scalar",
    "shape_elements",
    "shape_vector",
    "size_elements",
]


def constant(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """Constant: the shape of its tensor; a list has one axis, a single element none."""
    for name, attribute in site.node.attributes.items():
        if attribute.is_ref() or attribute.value is None:
            break
        if attribute.type == ir.AttributeType.TENSOR:
            return (tuple(integer(n) for n in attribute.value.shape.numpy()),)
        if isinstance(attribute.value, (list, tuple)):
            return ((integer(len(attribute.value)),),)
        if name in ("value_int", "value_float", "value_string"):
            return ((),)
    raise Unknown("unbound-attribute", "its attribute has no value here")


def constant_of_shape(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """ConstantOfShape: the elements of its input."""
    value = site.value(0)
    sizes = asked(site, value)
    return (
        tuple(
            site.lost(axis, site.cause_of(value)) if size is None else size
            for axis, size in enumerate(sizes)
        ),
    )


def range_(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """Range: as many steps as stay before the limit."""
    operands = [site.value(i) for i in range(3)]
    given = []
    for value in operands:
        scalar = site.elements(value)
        if scalar is None or len(scalar) != 1:
            return ((site.lost(0, site.cause_of(value)),),)
        given.append(scalar[0])
    start, limit, delta = given
    step = delta.number
    if step is None or step == 0:
        return ((site.lost(0, f"the step `{operands[2].name}` is not constant"),),)
    way = (limit - start) if step > 0 else (start - limit)
    count = divided(way + (abs(step) - 1), integer(abs(step)), Facts())
    return ((largest((count, ZERO), Facts()),),)


def one_hot(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """OneHot: a new axis of `depth`."""
    shape, value = site.shape(0), site.value(1)
    axis = placed(site.view.integer("axis"), len(shape) + 1)
    depth = site.elements(value)
    size = site.lost(axis, site.cause_of(value)) if depth is None or len(depth) != 1 else depth[0]
    return ((*shape[:axis], size, *shape[axis:]),)


def shape_vector(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """Shape: one number per axis from `start` to `end`."""
    value = site.value(0)
    rank = site.rank_of(value)
    if rank is None:
        return ((site.lost(0, f"the rank of `{value.name}` is not known", code="unknown-rank"),),)
    facts = site.view.facts
    start = site.view.integer("start") if "start" in facts.attributes else 0
    end = site.view.attribute("end") if "end" in facts.attributes else None
    picked = range(rank)[start : end if isinstance(end, int) else None]
    return ((integer(len(picked)),),)


def scalar(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """Size and whatever else gives a scalar."""
    return ((),)


def non_zero(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """NonZero: a column for each element that is not zero."""
    value = site.value(0)
    rank = len(site.shape(0))
    return ((integer(rank), site.lost(1, f"it counts elements of `{value.name}`")),)


def range_elements(site: ElementSite) -> IndexMap | None:
    """Range-11: `start + delta * i`, for as many i as stay before `limit`."""
    given = [operand.scalar() for operand in site.inputs]
    if site.dtype not in SIZE_TYPES or len(given) != 3:
        return None
    start, _, delta = given
    if None in given or start is None or delta is None or delta.number == 0:
        return None
    return site.whole(start + coordinate(0) * delta)


def shape_elements(site: ElementSite) -> IndexMap | None:
    """Shape-1/13/15/...: sizes of the input from `start` to `end`."""
    value = site.view.required("data")
    sizes = site.shape_of(value)
    start, end = site.number("start", 0), site.number("end", None)
    if sizes is not None:
        return site.stacked(0, sizes[slice(start, end)])
    if start is None or start < 0 or end is not None:
        return None
    return site.whole(variable(Extent(value, coordinate(0) + start)))


def size_elements(site: ElementSite) -> IndexMap | None:
    """Size-1/13/...: the number of elements of the input."""
    sizes = site.shape_of(site.view.required("data"))
    return None if sizes is None else site.whole(product(sizes))


def constant_of_shape_elements(site: ElementSite) -> IndexMap | None:
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


def one_hot_elements(site: ElementSite) -> IndexMap | None:
    """OneHot-11: `on` where the new coordinate is the index, which may count from the end."""
    indices, depth, values = site.input("indices"), site.input("depth"), site.input("values")
    if indices is None or depth is None or values is None or indices.dtype not in SIZE_TYPES:
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
