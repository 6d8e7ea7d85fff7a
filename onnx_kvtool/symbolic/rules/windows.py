"""Operators that slide a window, resize, contract or reduce axes."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from onnx_kvtool.core.storage import small_tensor
from onnx_kvtool.guard.wrong_sizes import scaled
from onnx_kvtool.symbolic.contents import LARGEST
from onnx_kvtool.symbolic.dimensions import Shape
from onnx_kvtool.symbolic.expressions import ONE, Expr, integer
from onnx_kvtool.symbolic.rules.elementwise import broadcast_shapes
from onnx_kvtool.symbolic.rules.site import (
    ShapeRule,
    Shapes,
    ShapeSite,
    Unknown,
    changed,
    malformed_if,
    placed,
)
from onnx_kvtool.symbolic.simplification import divided

# Operators that slide a window: convolutions and pooling, also of sizes that are no numbers.


class _Window(NamedTuple):
    """How a window moves along one axis, all in elements.

    Attributes:
        extent: From its first to its last element, dilation included.
        auto_pad: NOTSET, VALID, SAME_UPPER or SAME_LOWER; padding may be computed from it.
    """

    extent: Expr
    stride: int
    before: int
    after: int
    auto_pad: str

    def positions(self, size: Expr, *, ceil: bool) -> Expr:
        """Return at how many places the window stands in an axis of `size`.

        With `ceil` it may begin inside and reach out behind, but not begin behind the axis. Only
        the text of opset 22 says so; runtimes compute it for earlier ones as well, and onnx's
        inference does not (`onnx_kvtool.guard.wrong_sizes`).
        """
        stride = integer(self.stride)
        if self.auto_pad.startswith("SAME"):
            return divided(size + (self.stride - 1), stride)
        before, after = (0, 0) if self.auto_pad == "VALID" else (self.before, self.after)
        reach = self.extent.number
        if ceil and reach is not None:
            after = min(after + self.stride, reach) - 1
        return divided(size + before + after - self.extent, stride) + 1


def conv(weight: int = 1) -> ShapeRule:
    """Return the rule of Conv and its kin: (N, C, ...) and (M, C / group, ...) to (N, M, ...).

    So is a fused one: what it adds has the shape of the result. So is DeformConv: where the window
    looks depends on the offsets, how often does not.
    """

    def rule(site: ShapeSite) -> Shapes:
        shape, filters = site.shape(0), site.shape(weight)
        malformed_if(
            len(shape) != len(filters) or len(shape) < 3,
            f"`{site.node.op_type}` takes data and filters of one rank",
        )
        channels = filters[1] * site.view.integer("group")
        site.same(channels, shape[1], 0, 1, "number of channels")
        return ((shape[0], filters[0], *_slid(site, shape[2:], filters[2:], ceil=False)),)

    return rule


def conv_transpose(site: ShapeSite) -> Shapes:
    """ConvTranspose: (N, C, ...) and (C, M / group, ...) to (N, M, ...), larger by the stride."""
    shape, filters = site.shape(0), site.shape(1)
    rank = len(shape) - 2
    malformed_if(
        len(shape) != len(filters) or rank < 1, "`ConvTranspose` takes data and filters of one rank"
    )
    site.same(filters[0], shape[1], 0, 1, "number of channels")
    channels = filters[1] * site.view.integer("group")
    asked = site.view.integers("output_shape")
    if len(asked) >= rank:
        return ((shape[0], channels, *map(integer, asked[-rank:])),)
    more = site.view.integers("output_padding") or [0] * rank
    sizes = []
    for size, window, extra in zip(shape[2:], _windows(site, filters[2:]), more, strict=True):
        if window.auto_pad.startswith("SAME"):
            sizes.append(size * window.stride)
            continue
        padding = 0 if window.auto_pad == "VALID" else window.before + window.after
        sizes.append((size - 1) * window.stride + window.extent + (extra - padding))
    return ((shape[0], channels, *_legal(site, sizes)),)


def pool(site: ShapeSite) -> Shapes:
    """MaxPool, AveragePool, LpPool: the places of the window; indices have the same shape."""
    shape = site.shape(0)
    malformed_if(len(shape) < 3, f"`{site.node.op_type}` takes data of rank 3 or more")
    kernel = site.view.integers("kernel_shape")
    malformed_if(not kernel, f"`{site.node.op_type}` has no `kernel_shape`")
    ceil = site.view.number("ceil_mode") != 0
    result = (*shape[:2], *_slid(site, shape[2:], shape[2:], ceil=ceil))
    return (result,) * len(site.node.outputs)


def _slid(
    site: ShapeSite, sizes: Sequence[Expr], filters: Sequence[Expr], *, ceil: bool
) -> Sequence[Expr]:
    windows = zip(sizes, _windows(site, filters), strict=True)
    return _legal(site, [window.positions(size, ceil=ceil) for size, window in windows])


def _legal(site: ShapeSite, sizes: Sequence[Expr]) -> Sequence[Expr]:
    """Return sizes that a run which does not fail never makes negative, and remember that."""
    site.knowledge.legal.update(size for size in sizes if size.number is None)
    return sizes


def _windows(site: ShapeSite, filters: Sequence[Expr]) -> list[_Window]:
    """Return the window along each spatial axis, as long as `kernel_shape` or the filters say."""
    view, rank = site.view, len(filters)
    kernel = [*map(integer, view.integers("kernel_shape"))] or filters
    strides = view.integers("strides") or [1] * rank
    dilations = view.integers("dilations") or [1] * rank
    pads = view.integers("pads") or [0] * 2 * rank
    lengths = (len(kernel), len(strides), len(dilations), len(pads) // 2)
    malformed_if(
        any(length != rank for length in lengths) or not all(n > 0 for n in strides),
        f"the attributes are not those of {rank} spatial axes",
    )
    # DeformConv has no such attribute: its padding is always given.
    how = view.string("auto_pad", "NOTSET")
    return [
        _Window((size - ONE) * dilation + 1, stride, pads[i], pads[i + rank], how)
        for i, (size, stride, dilation) in enumerate(zip(kernel, strides, dilations, strict=True))
    ]


# Operators that make an image larger or smaller, also one whose sizes are no numbers.


_PLAINEST = 64
"""Largest numerator and denominator of a scale that is exact, whatever type a runtime computes in;
others may be rounded to either side of a whole number."""


def resize(site: ShapeSite) -> Shapes:
    """Resize-10 and later: the sizes that are asked for, or each size times its scale."""
    shape = site.shape(0)
    chosen = site.view.integers("axes") or range(len(shape))
    axes = [placed(axis, len(shape)) for axis in chosen]
    policy = "keep_aspect_ratio_policy"
    if site.view.string(policy, "stretch") != "stretch":
        raise Unknown("no-rule", f"`{policy}` makes one size depend on another")
    sizes = site.view.find("sizes")
    elements = None if sizes is None else site.elements(sizes)
    # Opset 11 asks for one of the two, and an empty one counts as none.
    if sizes is not None and elements != ():
        if elements is None or len(elements) != len(axes):
            why = site.cause_of(sizes)
            return (tuple(site.lost(i, why) if i in axes else n for i, n in enumerate(shape)),)
        found = dict(zip(axes, elements, strict=True))
        return (tuple(found.get(i, n) for i, n in enumerate(shape)),)
    if site.view.string("coordinate_transformation_mode", "") == "tf_crop_and_resize":
        raise Unknown("no-rule", "`roi` crops before it is resized")
    return (_scaled(site, shape, axes),)


def upsample(site: ShapeSite) -> Shapes:
    """Upsample-7 and 9: each size times its scale."""
    shape = site.shape(0)
    return (_scaled(site, shape, range(len(shape))),)


def _scaled(site: ShapeSite, shape: Shape, axes: Sequence[int]) -> Shape:
    """Return a shape with sizes times their scales, rounded down, in the place of some.

    One that runtimes round apart is unknown.
    """
    name, sizes = "scales", list(shape)
    if name in site.view.facts.attributes:
        given = site.view.attribute(name)
        scales = given if isinstance(given, tuple) else ()
    else:
        value = site.view.input(name)
        tensor = small_tensor(value, LARGEST)
        name = name if value is None else value.name or ""
        if tensor is None:
            for axis in axes:
                sizes[axis] = site.lost(axis, f"it depends on the elements of `{name}`")
            return tuple(sizes)
        scales = tuple(tensor.numpy().ravel())
    malformed_if(
        len(scales) != len(axes), f"`{name}` has {len(scales)} elements for {len(axes)} axes"
    )
    for axis, scale in zip(axes, map(float, scales), strict=True):
        sizes[axis] = _times(site, axis, shape[axis], scale)
    return tuple(sizes)


def _times(site: ShapeSite, axis: int, size: Expr, scale: float) -> Expr:
    if size.number is not None:
        product = scaled(size.number, scale)
        why = f"{size} times {scale} depends on how a runtime rounds"
        return site.lost(axis, why) if product is None else integer(product)
    plain = Fraction(scale).limit_denominator(_PLAINEST)
    if scale <= 0 or float(plain) != scale or plain.numerator > _PLAINEST:
        return site.lost(axis, f"kvtool has no expression for `{size}` times {scale}")
    return divided(size * plain.numerator, integer(plain.denominator))


def depth_to_space(site: ShapeSite) -> Shapes:
    """DepthToSpace: (N, C * b * b, H, W) to (N, C, H * b, W * b)."""
    n, channels, height, width = _image(site)
    block = site.view.integer("blocksize")
    return ((n, _part(channels, block * block), height * block, width * block),)


def space_to_depth(site: ShapeSite) -> Shapes:
    """SpaceToDepth: (N, C, H * b, W * b) to (N, C * b * b, H, W)."""
    n, channels, height, width = _image(site)
    block = site.view.integer("blocksize")
    return ((n, channels * (block * block), _part(height, block), _part(width, block)),)


def _image(site: ShapeSite) -> Shape:
    shape = site.shape(0)
    malformed_if(
        len(shape) != 4 or site.view.integer("blocksize") < 1,
        f"`{site.node.op_type}` takes (N, C, H, W) and a block of 1 up",
    )
    return shape


def _part(size: Expr, parts: int) -> Expr:
    """Return `size / parts`; one that is no multiple fails."""
    return divided(size, integer(parts))


# Matrix products.


def mat_mul(right: int = 1) -> ShapeRule:
    """Return the rule of a product of input 0 and the input at `right`, as numpy's matmul."""

    def rule(site: ShapeSite) -> Shapes:
        a, b = site.shape(0), site.shape(right)
        malformed_if(not a or not b, f"`{site.node.op_type}` takes no scalar")
        inner, columns, behind = (b[-1], (), ()) if len(b) == 1 else (b[-2], b[-1:], b[:-2])
        site.same(a[-1], inner, right, max(len(b) - 2, 0), "inner size")
        stacked = broadcast_shapes(site, [(0, a[:-2]), (right, behind)])
        return ((*stacked, *a[-2:-1], *columns),)

    return rule


def gemm(site: ShapeSite) -> Shapes:
    """Gemm: (M, K) and (K, N), each perhaps transposed."""
    a, b = site.shape(0), site.shape(1)
    malformed_if(len(a) != 2 or len(b) != 2, "`Gemm` takes matrices")
    a = (a[1], a[0]) if site.view.integer("transA") else a
    transposed = bool(site.view.integer("transB"))
    b = (b[1], b[0]) if transposed else b
    site.same(a[1], b[0], 1, 1 if transposed else 0, "inner size")
    return ((a[0], b[1]),)


# Reductions along axes, and normalizations that give what they reduced to.


def reduce(site: ShapeSite) -> Shapes:
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
        if site.view.number("noop_with_empty_axes"):
            return (shape,)
        axes = tuple(range(len(shape)))
    return (_without(shape, {placed(axis, len(shape)) for axis in axes}, keep),)


def arg_reduce(site: ShapeSite) -> Shapes:
    """ArgMax and ArgMin: one axis."""
    shape = site.shape(0)
    axis = placed(site.view.integer("axis"), len(shape))
    return (_without(shape, {axis}, site.view.integer("keepdims") != 0),)


def _without(shape: Shape, axes: set[int], keep: bool) -> Shape:
    return tuple(ONE if i in axes else n for i, n in enumerate(shape) if keep or i not in axes)


def layer_normalization(site: ShapeSite) -> Shapes:
    """LayerNormalization: Y, and Mean and InvStdDev with 1 from `axis` on."""
    return normalized(site.shape(0), site.view.integer("axis"))


def normalized(shape: Shape, axis: int) -> Shapes:
    """Return the shape of a normalized value, and twice that of what it was normalized by."""
    axis = placed(axis, len(shape))
    reduced = (*shape[:axis], *[ONE] * (len(shape) - axis))
    return (shape, reduced, reduced)


# Operators that are told by numbers how much of an axis there is: Pad and TopK.


def pad(site: ShapeSite) -> Shapes:
    """Pad: what is added before and behind, perhaps on some axes only; negative numbers crop."""
    shape, pads, value = site.shape(0), site.expressions("pads"), site.view.find("pads")
    chosen = site.listed("axes")
    axes = [placed(i, len(shape)) for i in (range(len(shape)) if chosen is None else chosen)]
    name = "pads" if value is None else value.name
    result = list(shape)
    for i, axis in enumerate(axes):
        if pads is None or len(pads) != 2 * len(axes):
            result[axis] = site.lost(axis, f"it depends on the elements of `{name}`")
        else:
            result[axis] = shape[axis] + pads[i] + pads[i + len(axes)]
    return (tuple(result),)


def top_k(site: ShapeSite) -> Shapes:
    """TopK: `k` along the axis, in both outputs."""
    shape, count = site.shape(0), site.expressions("k") or site.expressions("K")
    axis = placed(site.view.integer("axis"), len(shape))
    return [
        changed(shape, axis, count[0])
        if count is not None and len(count) == 1
        else changed(shape, axis, site.lost(axis, site.cause_of(site.value(1)), output=output))
        for output in range(len(site.node.outputs))
    ]
