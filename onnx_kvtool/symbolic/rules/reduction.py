"""Reductions along axes, and normalizations that give what they reduced to."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_kvtool.symbolic.expression import ONE
from onnx_kvtool.symbolic.rules.site import ShapeSite, Unknown, placed
from onnx_kvtool.symbolic.sizes import Shape

__all__ = ["arg_reduce", "layer_normalization", "normalized", "reduce"]


def reduce(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """ReduceSum and its kin: all axes where none is given, but for `noop_with_empty_axes`."""
    shape = site.shape(0)
    keep = site.view.integer("keepdims") != 0
    try:
        axes = site.listed("axes")
    except Unknown as error:
        if not keep:
            raise
        return (tuple(site.lost(i, error.why) for i in range(len(shape))),)
    if not axes:
        attributes = site.view.facts.attributes
        if "noop_with_empty_axes" in attributes and site.view.integer("noop_with_empty_axes"):
            return (shape,)
        axes = tuple(range(len(shape)))
    return (_without(shape, {placed(axis, len(shape)) for axis in axes}, keep),)


def arg_reduce(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """ArgMax and ArgMin: one axis."""
    shape = site.shape(0)
    axis = placed(site.view.integer("axis"), len(shape))
    return (_without(shape, {axis}, site.view.integer("keepdims") != 0),)


def _without(shape: Shape, axes: set[int], keep: bool) -> Shape:
    if keep:
        return tuple(ONE if i in axes else size for i, size in enumerate(shape))
    return tuple(size for i, size in enumerate(shape) if i not in axes)


def layer_normalization(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """LayerNormalization: Y, and Mean and InvStdDev with 1 from `axis` on."""
    shape = site.shape(0)
    return normalized(shape, site.view.integer("axis"))


def normalized(shape: Shape, axis: int) -> Sequence[Shape | Unknown]:
    """Return the shape of a normalized value, and twice that of what it was normalized by."""
    axis = placed(axis, len(shape))
    reduced = (*shape[:axis], *[ONE] * (len(shape) - axis))
    return (shape, reduced, reduced)
