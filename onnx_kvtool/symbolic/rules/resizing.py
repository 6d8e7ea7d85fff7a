"""Operators that make an image larger or smaller, also one whose sizes are no numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import onnx_ir as ir

from onnx_kvtool.core.misdeclared import held
from onnx_kvtool.symbolic.bounds import Facts
from onnx_kvtool.symbolic.expression import Expr, integer
from onnx_kvtool.symbolic.forms import divided
from onnx_kvtool.symbolic.rules.site import ShapeSite, Unknown, placed
from onnx_kvtool.symbolic.sizes import Shape

__all__ = ["depth_to_space", "resize", "space_to_depth", "upsample"]

_PLAINEST = 64
"""Largest numerator and denominator of a scale that is exact, whatever type a runtime computes in;
others may be rounded to either side of a whole number."""


def resize(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """Resize-10 and later: the sizes that are asked for, or each size times its scale."""
    shape = site.shape(0)
    facts = site.view.facts
    chosen = site.view.attribute("axes") if "axes" in facts.attributes else None
    axes = [placed(int(a), len(shape)) for a in chosen] if isinstance(chosen, tuple) else None
    axes = list(range(len(shape))) if axes is None else axes
    policy = "keep_aspect_ratio_policy"
    if policy in facts.attributes and site.view.string(policy) != "stretch":
        raise Unknown("no-rule", f"`{policy}` makes one size depend on another")
    sizes = site.view.input("sizes") if any(f.name == "sizes" for f in facts.inputs) else None
    elements = None if sizes is None else site.elements(sizes)
    # Opset 11 asks for one of the two, and an empty one counts as none.
    if sizes is not None and elements != ():
        if elements is None or len(elements) != len(axes):
            why = site.cause_of(sizes)
            return (tuple(site.lost(i, why) if i in axes else n for i, n in enumerate(shape)),)
        return (_with(shape, axes, elements),)
    mode = "coordinate_transformation_mode"
    if mode in facts.attributes and site.view.string(mode) == "tf_crop_and_resize":
        raise Unknown("no-rule", "`roi` crops before it is resized")
    value = site.view.input("scales")
    return (_with(shape, axes, _scaled(site, shape, axes, value)),)


def upsample(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """Upsample-7 and 9: each size times its scale."""
    shape = site.shape(0)
    axes = list(range(len(shape)))
    if "scales" in site.view.facts.attributes:
        given = site.view.attribute("scales")
        scales = [float(n) for n in given] if isinstance(given, tuple) else []
        return (_with(shape, axes, _times(site, shape, axes, scales, "scales")),)
    return (_with(shape, axes, _scaled(site, shape, axes, site.view.input("scales"))),)


def _scaled(
    site: ShapeSite, shape: Shape, axes: Sequence[int], value: ir.Value | None
) -> Sequence[Expr]:
    tensor = None if value is None or value.is_graph_input() else held(value)
    if value is None or tensor is None or isinstance(tensor, ir.ExternalTensor):
        name = "scales" if value is None else value.name
        return [site.lost(axis, f"it depends on the elements of `{name}`") for axis in axes]
    scales = [float(n) for n in tensor.numpy().ravel()]
    return _times(site, shape, axes, scales, value.name or "")


def _times(
    site: ShapeSite, shape: Shape, axes: Sequence[int], scales: Sequence[float], name: str
) -> Sequence[Expr]:
    """Return sizes times scales, rounded down."""
    if len(scales) != len(axes):
        raise Unknown("malformed", f"`{name}` has {len(scales)} elements for {len(axes)} axes")
    found = []
    for axis, scale in zip(axes, scales, strict=True):
        size = shape[axis].number
        if size is not None:
            found.append(integer(math.floor(size * scale)))
            continue
        plain = Fraction(scale).limit_denominator(_PLAINEST)
        if scale <= 0 or float(plain) != scale or plain.numerator > _PLAINEST:
            found.append(site.lost(axis, f"no expression is `{shape[axis]}` times {scale}"))
            continue
        whole = shape[axis] * plain.numerator
        found.append(divided(whole, integer(plain.denominator), Facts()))
    return found


def _with(shape: Shape, axes: Sequence[int], sizes: Sequence[Expr]) -> Shape:
    result = list(shape)
    for axis, size in zip(axes, sizes, strict=True):
        result[axis] = size
    return tuple(result)


def depth_to_space(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """DepthToSpace: (N, C * b * b, H, W) to (N, C, H * b, W * b)."""
    n, channels, height, width = _image(site)
    block = site.view.integer("blocksize")
    return ((n, _part(channels, block * block), height * block, width * block),)


def space_to_depth(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """SpaceToDepth: (N, C, H * b, W * b) to (N, C * b * b, H, W)."""
    n, channels, height, width = _image(site)
    block = site.view.integer("blocksize")
    return ((n, channels * (block * block), _part(height, block), _part(width, block)),)


def _image(site: ShapeSite) -> Shape:
    shape = site.shape(0)
    if len(shape) != 4 or site.view.integer("blocksize") < 1:
        raise Unknown("malformed", f"`{site.node.op_type}` takes (N, C, H, W) and a block of 1 up")
    return shape


def _part(size: Expr, parts: int) -> Expr:
    """Return `size / parts`; one that is no multiple fails."""
    return divided(size, integer(parts), Facts())
