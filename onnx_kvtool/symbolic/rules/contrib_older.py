"""Operators of `com.microsoft` that exporters wrote while ONNX had none."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_kvtool.symbolic.bounds import Facts
from onnx_kvtool.symbolic.expression import ONE, Expr, integer
from onnx_kvtool.symbolic.forms import divided
from onnx_kvtool.symbolic.rules.site import ShapeSite, Unknown, placed
from onnx_kvtool.symbolic.rules.sources import range_ as range_of_three
from onnx_kvtool.symbolic.sizes import Shape

__all__ = [
    "c_dist",
    "expand_dims",
    "grid_sample",
    "range_",
    "rfft",
    "torch_embedding",
    "unfold_tensor",
    "unique",
]


def c_dist(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """CDist: a row for each row of the one, a column for each row of the other."""
    a, b = _of_rank(site, 0, 2), _of_rank(site, 1, 2)
    site.same(a[1], b[1], 1, 1, "length of the rows")
    return ((a[0], b[0]),)


def expand_dims(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """ExpandDims: an axis of size 1, which counts in the result."""
    shape, axes = site.shape(0), site.integers(site.value(1))
    if axes is None or len(axes) != 1:
        raise Unknown("data-dependent", site.cause_of(site.value(1)))
    axis = placed(axes[0], len(shape) + 1)
    return ((*shape[:axis], ONE, *shape[axis:]),)


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


def torch_embedding(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """TorchEmbedding: a row for each index."""
    return ((*site.shape(1), *site.shape(0)[1:]),)


def unfold_tensor(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """UnfoldTensor: as many windows as fit, and a last axis inside of them."""
    shape, length, step = site.shape(0), site.integer("size"), site.integer("step")
    axis = placed(site.integer("dim"), len(shape))
    if length < 1 or step < 1:
        raise Unknown("malformed", f"`size` is {length} and `step` is {step}")
    count = divided(shape[axis] - integer(length), integer(step), Facts()) + ONE
    return ((*shape[:axis], count, *shape[axis + 1 :], integer(length)),)


def unique(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """Unique: how many are different, depends on the elements."""
    why = site.cause_of(site.value(0))
    count: Expr = site.lost(0, why)
    return ((count,), site.shape(0), (count,))


def _of_rank(site: ShapeSite, index: int, rank: int) -> Shape:
    shape = site.shape(index)
    if len(shape) != rank:
        name = site.value(index).name
        raise Unknown("malformed", f"`{name}` is of rank {len(shape)}, expected {rank}")
    return shape
