"""Operators that exporters write where ONNX has none, or has one of other attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from onnx_kvtool.symbolic.dimensions import Shape
from onnx_kvtool.symbolic.expressions import ONE, Expr, integer
from onnx_kvtool.symbolic.rules.site import ShapeRule, ShapeSite, Unknown, placed
from onnx_kvtool.symbolic.rules.sources import range_ as range_of_three
from onnx_kvtool.symbolic.simplification import Facts, divided

__all__ = ["LINES"]


def c_dist(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """CDist: a row for each row of the one, a column for each row of the other."""
    a, b = _of_rank(site, 0, 2), _of_rank(site, 1, 2)
    site.same(a[1], b[1], 1, 1, "length of the rows")
    return ((a[0], b[0]),)


def conv_transpose_with_dynamic_pads(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """ConvTransposeWithDynamicPads: as many filters as there are; how large, its pads say."""
    shape, filters = site.shape(0), site.shape(1)
    if len(shape) != len(filters) or len(shape) < 3:
        raise Unknown("malformed", f"`{site.node.op_type}` takes data and filters of one rank")
    places = (site.lost(axis, "it depends on its pads") for axis in range(2, len(shape)))
    return ((shape[0], filters[1] * site.integer("group"), *places),)


def crop_and_resize(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """CropAndResize: a picture for each box, of the size that is asked for."""
    boxes, x, wanted = _of_rank(site, 1, 2), _of_rank(site, 0, 4), site.value(3)
    sizes: Sequence[Expr] | None = site.elements(wanted)
    if sizes is None or len(sizes) != 2:
        sizes = [site.lost(axis, site.cause_of(wanted)) for axis in (2, 3)]
    return ((boxes[0], x[1], *sizes),)


def grid_sample(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """GridSample: the channels of the picture, at the points of the grid."""
    x, grid = _of_rank(site, 0, 4), _of_rank(site, 1, 4)
    return ((site.same(x[0], grid[0], 1, 0, "batch size"), x[1], *grid[1:3]),)


def range_(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """Range, of which the step may be absent."""
    if site.given(2) is not None:
        return range_of_three(site)
    return ((site.lost(0, "its step is 1, and nobody counts them"),),)


def rfft(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """Rfft: half of the last axis, and two parts of each number."""
    shape = site.shape(0)
    if not shape:
        raise Unknown("malformed", "`Rfft` takes no scalar")
    half = divided(shape[-1], integer(2), Facts()) + ONE
    return ((*shape[:-1], half, integer(2)),)


def unfold_tensor(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """UnfoldTensor: as many windows as fit, and a last axis inside of them."""
    shape, length, step = site.shape(0), site.integer("size"), site.integer("step")
    axis = placed(site.integer("dim"), len(shape))
    if length < 1 or step < 1:
        raise Unknown("malformed", f"`size` is {length} and `step` is {step}")
    count = divided(shape[axis] - integer(length), integer(step), Facts()) + ONE
    return ((*shape[:axis], count, *shape[axis + 1 :], integer(length)),)


def _of_rank(site: ShapeSite, index: int, rank: int) -> Shape:
    shape = site.shape(index)
    if len(shape) != rank:
        name = site.value(index).name
        raise Unknown("malformed", f"`{name}` is of rank {len(shape)}, expected {rank}")
    return shape


_INT32, _INT64 = ir.DataType.INT32, ir.DataType.INT64
_NONE: Mapping[int, tuple[int, ...] | ir.DataType] = {}

LINES: Sequence[tuple[str, ShapeRule, Mapping[int, tuple[int, ...] | ir.DataType]]] = (
    ("CDist", c_dist, _NONE),
    ("ConvTransposeWithDynamicPads", conv_transpose_with_dynamic_pads, _NONE),
    ("CropAndResize", crop_and_resize, _NONE),
    ("GridSample", grid_sample, _NONE),
    ("Range", range_, _NONE),
    ("Rfft", rfft, _NONE),
    ("UnfoldTensor", unfold_tensor, _NONE),
)
"""Of each operator the rule, and the types of outputs that have not that of input 0."""
