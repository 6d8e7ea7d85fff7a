"""Operators that are told the shape of their result by the elements of an input."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_kvtool.core.quantity import counted
from onnx_kvtool.symbolic.bounds import Facts, at_least
from onnx_kvtool.symbolic.division import exact_quotient, quotient
from onnx_kvtool.symbolic.expression import Expr, integer, product
from onnx_kvtool.symbolic.forms import divided, largest
from onnx_kvtool.symbolic.index_map.rules.reshape import means_itself
from onnx_kvtool.symbolic.rules.elementwise import broadcast_shapes
from onnx_kvtool.symbolic.rules.movement import placed
from onnx_kvtool.symbolic.rules.site import Site, Unknown
from onnx_kvtool.symbolic.sizes import Shape, shape_words, words

__all__ = [
    "constant",
    "constant_of_shape",
    "expand",
    "one_hot",
    "pad",
    "range_",
    "reshape",
    "tile",
    "top_k",
]

_ZERO, _ONE = integer(0), integer(1)
_MOST_AXES = 1024
"""Longest vector of sizes; no runtime has tensors of more than some dozen axes."""
_FACTS = Facts()


def asked(site: Site, value: ir.Value) -> tuple[Expr | None, ...]:
    """Return the elements of a vector of sizes; None for each one that is not known at all.

    Raises:
        Unknown: If not even their number is known.
    """
    elements = site.elements(value)
    if elements is not None:
        return elements
    content = site.content(value)
    length = (
        content.shape[0].number if content.shape is not None and len(content.shape) == 1 else None
    )
    if length is None:
        raise Unknown("unknown-rank", f"the number of elements of `{value.name}` is not known")
    if length > _MOST_AXES:
        raise Unknown(
            "malformed", f"`{value.name}` has {counted(length, 'element')}, more than axes can be"
        )
    return (None,) * length


def reshape(site: Site) -> Sequence[Shape | Unknown]:
    """Reshape: what is asked for, with 0 and -1 resolved."""
    data, target = site.value(0), site.given(1)
    if target is None:
        wanted: tuple[Expr | None, ...] = tuple(integer(n) for n in site.listed("shape") or ())
    else:
        wanted = asked(site, target)
    names = "`shape`" if target is None else f"`{target.name}`"
    shape = site.knowledge.shapes.get(data)
    attributes = site.view.facts.attributes
    keep_zero = "allowzero" in attributes and site.view.integer("allowzero") != 0
    sizes: list[Expr] = []
    place: int | None = None
    certain = shape is not None
    for axis, size in enumerate(wanted):
        found = _size(site, size, axis, shape, keep_zero=keep_zero)
        if found is not None and found.number == -1:
            place, found = axis, _ONE
        if found is None:
            certain = False
            why = f"the elements of {names} are not known, and 0 or -1 would mean another size"
            found = site.lost(axis, why)
        sizes.append(found)
    if place is not None:
        sizes[place] = _rest(site, shape, sizes, place, certain)
    elif certain and shape is not None:
        _check_count(site, shape, tuple(sizes))
    return (tuple(sizes),)


def _size(
    site: Site, size: Expr | None, axis: int, shape: Shape | None, *, keep_zero: bool
) -> Expr | None:
    """Return one size of the result, -1 for the one that is left over, None if unknown."""
    if size is None:
        return None
    if size.number == 0 and not keep_zero:
        return shape[axis] if shape is not None and axis < len(shape) else None
    if size.number is not None:
        return size
    known = site.knowledge.equalities
    resolved = None if shape is None else tuple(map(known.resolved, shape))
    size_there = known.resolved(size)
    if means_itself(size_there, axis, resolved or (), keep_zero=keep_zero):
        return size
    if shape is None or words(size_there) is None:
        return None
    if size not in site.knowledge.legal and not at_least(size_there, _ZERO, _FACTS):
        return None
    # It is a size of another value. Only an empty one would be read as a wish to copy.
    site.knowledge.assumed.setdefault(size_there, site.at(site.node.outputs[0]))
    return size


def _rest(site: Site, shape: Shape | None, sizes: list[Expr], place: int, certain: bool) -> Expr:
    """Return the size of the axis that takes what the others leave."""
    if shape is None:
        return site.lost(place, "the number of elements of the input is not known")
    if not certain:
        return site.lost(place, "it is what an unknown size leaves over")
    whole, others = product(shape), product(sizes)
    if others.number == 0:
        return site.lost(place, "nothing says what -1 means beside a size of 0", code="malformed")
    exact = exact_quotient(whole, others)
    if exact is not None:
        return exact
    known = site.knowledge.equalities
    return quotient(known.resolved(whole), known.resolved(others))


def _check_count(site: Site, before: Shape, after: Shape) -> None:
    a, b = product(before), product(after)
    if site.knowledge.equalities.differ(a, b):
        got, wanted = shape_words(before), shape_words(after)
        site.conflict("operand-shape", 0, got, wanted, "another number of elements is asked for")


def expand(site: Site) -> Sequence[Shape | Unknown]:
    """Expand: input and the asked shape, broadcast."""
    shape, target = site.shape(0), site.value(1)
    wanted = asked(site, target)
    rank = max(len(shape), len(wanted))
    sizes: list[Expr] = []
    for axis, size in enumerate(wanted):
        if size is not None:
            sizes.append(size)
            continue
        place = axis + rank - len(wanted)
        old = shape[place - rank + len(shape)] if place >= rank - len(shape) else _ONE
        if old.number is not None and old.number > 1:
            sizes.append(old)
        else:
            sizes.append(site.lost(place, site.cause_of(target)))
    return (broadcast_shapes(site, [(1, tuple(sizes)), (0, shape)]),)


def constant(site: Site) -> Sequence[Shape | Unknown]:
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


def constant_of_shape(site: Site) -> Sequence[Shape | Unknown]:
    """ConstantOfShape: the elements of its input."""
    value = site.value(0)
    sizes = asked(site, value)
    return (
        tuple(
            site.lost(axis, site.cause_of(value)) if size is None else size
            for axis, size in enumerate(sizes)
        ),
    )


def range_(site: Site) -> Sequence[Shape | Unknown]:
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
    count = divided(way + (abs(step) - 1), integer(abs(step)), _FACTS)
    return ((largest((count, _ZERO), _FACTS),),)


def tile(site: Site) -> Sequence[Shape | Unknown]:
    """Tile: each size times its repeats."""
    shape, value = site.shape(0), site.value(1)
    repeats = site.elements(value)
    if repeats is None or len(repeats) != len(shape):
        return (tuple(site.lost(i, site.cause_of(value)) for i in range(len(shape))),)
    return (tuple(size * n for size, n in zip(shape, repeats, strict=True)),)


def pad(site: Site) -> Sequence[Shape | Unknown]:
    """Pad: what is added before and behind, perhaps on some axes only; negative numbers crop."""
    shape = site.shape(0)
    if "pads" in site.view.facts.attributes:
        pads: tuple[Expr, ...] | None = tuple(integer(n) for n in site.listed("pads") or ())
        axes: Sequence[int] = range(len(shape))
        name = "pads"
    else:
        value = site.value(1)
        pads, name = site.elements(value), value.name or ""
        chosen = site.listed("axes")
        axes = range(len(shape)) if chosen is None else [placed(a, len(shape)) for a in chosen]
    result = list(shape)
    for i, axis in enumerate(axes):
        if pads is None or len(pads) != 2 * len(axes):
            result[axis] = site.lost(axis, f"it depends on the elements of `{name}`")
        else:
            result[axis] = shape[axis] + pads[i] + pads[i + len(axes)]
    return (tuple(result),)


def one_hot(site: Site) -> Sequence[Shape | Unknown]:
    """OneHot: a new axis of `depth`."""
    shape, value = site.shape(0), site.value(1)
    axis = placed(site.view.integer("axis"), len(shape) + 1)
    depth = site.elements(value)
    size = site.lost(axis, site.cause_of(value)) if depth is None or len(depth) != 1 else depth[0]
    return ((*shape[:axis], size, *shape[axis:]),)


def top_k(site: Site) -> Sequence[Shape | Unknown]:
    """TopK: `k` along the axis, in both outputs."""
    shape = site.shape(0)
    axis = placed(site.view.integer("axis"), len(shape))
    results = []
    for output in range(len(site.node.outputs)):
        if "k" in site.view.facts.attributes:
            size = integer(site.view.integer("k"))
        else:
            value = site.value(1)
            count = site.elements(value)
            one = count is not None and len(count) == 1
            size = (
                count[0] if one and count else site.lost(axis, site.cause_of(value), output=output)
            )
        results.append((*shape[:axis], size, *shape[axis + 1 :]))
    return results
