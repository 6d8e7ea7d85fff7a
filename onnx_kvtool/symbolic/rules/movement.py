"""Operators that rearrange axes without a look at the elements."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_kvtool.core.quantity import counted
from onnx_kvtool.symbolic.bounds import Facts
from onnx_kvtool.symbolic.expression import integer, product
from onnx_kvtool.symbolic.forms import divided, largest, smallest
from onnx_kvtool.symbolic.rules.site import Site, Unknown
from onnx_kvtool.symbolic.sizes import Shape, shape_words

__all__ = [
    "concat",
    "flatten",
    "gather",
    "gather_nd",
    "placed",
    "split",
    "squeeze",
    "transpose",
    "unsqueeze",
]

_ONE = integer(1)
_FACTS = Facts()
_FIRST_UNEQUAL = 18
"""From this opset on the last part of a Split may be smaller than the others."""


def placed(axis: int, rank: int) -> int:
    """Return an axis counted from the front.

    Raises:
        Unknown: If it lies outside of the rank.
    """
    if not -rank <= axis < rank:
        raise Unknown("malformed", f"axis {axis} lies outside of rank {rank}")
    return axis % rank


def transpose(site: Site) -> Sequence[Shape | Unknown]:
    """Transpose; without `perm` the axes are reversed."""
    shape = site.shape(0)
    perm = site.view.attribute("perm")
    order = perm if isinstance(perm, tuple) and perm else tuple(reversed(range(len(shape))))
    if sorted(order) != list(range(len(shape))):
        site.conflict("operand-shape", 0, shape_words(shape), f"rank {len(order)}", "`perm`")
        raise Unknown(
            "malformed",
            f"`perm` {list(order)} is no order of {counted(len(shape), 'axis', 'axes')}",
        )
    return (tuple(shape[int(axis)] for axis in order),)


def unsqueeze(site: Site) -> Sequence[Shape | Unknown]:
    """Unsqueeze; `axes` count in the result."""
    shape, axes = site.shape(0), site.listed("axes") or ()
    rank = len(shape) + len(axes)
    added = {placed(axis, rank) for axis in axes}
    if len(added) != len(axes):
        raise Unknown("malformed", f"`axes` {list(axes)} repeat one")
    rest = iter(shape)
    return (tuple(_ONE if axis in added else next(rest) for axis in range(rank)),)


def squeeze(site: Site) -> Sequence[Shape | Unknown]:
    """Squeeze; without `axes` every size must be a number."""
    shape, axes = site.shape(0), site.listed("axes")
    if axes is None:
        if any(size.number is None for size in shape):
            raise Unknown("data-dependent", "`axes` is absent, and a size without number may be 1")
        return (tuple(size for size in shape if size.number != 1),)
    dropped = {placed(axis, len(shape)) for axis in axes}
    for axis in sorted(dropped):
        site.same(_ONE, shape[axis], 0, axis, "size of 1")
    return (tuple(size for axis, size in enumerate(shape) if axis not in dropped),)


def flatten(site: Site) -> Sequence[Shape | Unknown]:
    """Flatten to a matrix before and behind `axis`."""
    shape, axis = site.shape(0), site.view.integer("axis")
    axis = axis + len(shape) if axis < 0 else axis
    if not 0 <= axis <= len(shape):
        raise Unknown("malformed", f"axis {axis} lies outside of rank {len(shape)}")
    return ((product(shape[:axis]), product(shape[axis:])),)


def concat(site: Site) -> Sequence[Shape | Unknown]:
    """Concat: the sum along `axis`; all other sizes are shared."""
    shapes = [site.shape(i) for i in range(len(site.node.inputs))]
    if not shapes:
        raise Unknown("malformed", "`Concat` has no inputs")
    first = shapes[0]
    axis = placed(site.view.integer("axis"), len(first))
    result = list(first)
    for index, shape in enumerate(shapes[1:], 1):
        if len(shape) != len(first):
            site.conflict("operand-shape", index, shape_words(shape), f"rank {len(first)}", "rank")
            raise Unknown("conflict", "the inputs of `Concat` differ in rank")
        for i, size in enumerate(shape):
            if i == axis:
                result[i] = result[i] + size
            else:
                result[i] = site.same(result[i], size, index, i, "size")
    return (tuple(result),)


def split(site: Site) -> Sequence[Shape | Unknown]:
    """Split; parts of one size where `split` is absent, the last one perhaps smaller."""
    shape = site.shape(0)
    axis = placed(site.view.integer("axis"), len(shape))
    count = len(site.node.outputs)
    if "num_outputs" in site.view.facts.attributes:
        given = site.view.attribute("num_outputs")
        count = given if isinstance(given, int) else count
    try:
        sizes = site.listed("split")
    except Unknown as error:
        places = range(len(site.node.outputs))
        return [
            (*shape[:axis], site.lost(axis, error.why, output=i), *shape[axis + 1 :])
            for i in places
        ]
    if sizes is not None:
        if len(sizes) < len(site.node.outputs):
            raise Unknown(
                "malformed", f"`split` has {counted(len(sizes), 'number')} for more outputs"
            )
        site.same(integer(sum(sizes)), shape[axis], 0, axis, "sum of `split`")
        parts = [integer(n) for n in sizes]
    elif site.opset < _FIRST_UNEQUAL:
        parts = [divided(shape[axis], integer(count), _FACTS)] * count
    else:
        chunk = divided(shape[axis] + (count - 1), integer(count), _FACTS)
        rest = [largest((shape[axis] - chunk * i, integer(0)), _FACTS) for i in range(count)]
        parts = [smallest((chunk, left), _FACTS) for left in rest]
    return [(*shape[:axis], part, *shape[axis + 1 :]) for part in parts]


def gather(site: Site) -> Sequence[Shape | Unknown]:
    """Gather: the axis gives way to the axes of the indices."""
    shape, indices = site.shape(0), site.shape(1)
    axis = placed(site.view.integer("axis"), len(shape))
    return ((*shape[:axis], *indices, *shape[axis + 1 :]),)


def gather_nd(site: Site) -> Sequence[Shape | Unknown]:
    """GatherND: the last axis of the indices addresses as many axes of the data as it is long."""
    shape, indices = site.shape(0), site.shape(1)
    facts = site.view.facts
    batch = site.view.integer("batch_dims") if "batch_dims" in facts.attributes else 0
    taken = indices[-1].number if indices else None
    if taken is None:
        raise Unknown("unknown-rank", "the last axis of the indices has no number")
    return ((*indices[:-1], *shape[batch + taken :]),)
