"""Operators that slide a window: convolutions and pooling, also of sizes that are no numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnx_kvtool.ops.schema import AttributeValue
from onnx_kvtool.symbolic.bounds import Facts
from onnx_kvtool.symbolic.expression import ONE, Expr, integer
from onnx_kvtool.symbolic.forms import divided, smallest
from onnx_kvtool.symbolic.rules.site import ShapeRule, ShapeSite, Unknown
from onnx_kvtool.symbolic.sizes import Shape

__all__ = ["conv", "conv_transpose", "deform_conv", "pool", "pool_of_any_layout"]

_FIRST_CLEAR = 22
"""The opset whose pooling says that windows which begin in the padding behind are left out."""


@dataclass(frozen=True, slots=True)
class _Window:
    """How a window moves along one axis, all in elements.

    Attributes:
        extent: From its first to its last element, dilation included.
        stride: The step.
        before: Padding in front.
        after: Padding behind.
        auto_pad: NOTSET, VALID, SAME_UPPER or SAME_LOWER, by which padding may be computed.
    """

    extent: Expr
    stride: int
    before: int
    after: int
    auto_pad: str

    def may_begin_behind(self) -> bool:
        """Return whether, with `ceil`, the last window might begin behind the axis.

        Texts before opset 22 do not say that it is left out then, and runtimes differ.
        """
        extent = self.extent.number
        same = self.auto_pad.startswith("SAME")
        return same or extent is None or extent < self.after + self.stride

    def positions(self, size: Expr, *, ceil: bool) -> Expr:
        """Return at how many places the window stands in an axis of `size`.

        With `ceil` it may begin inside and reach out behind, but not begin behind the axis.
        """
        stride = integer(self.stride)
        if self.auto_pad.startswith("SAME"):
            return divided(size + (self.stride - 1), stride, Facts())
        padded = size if self.auto_pad == "VALID" else size + self.before + self.after
        way = padded - self.extent
        if not ceil or self.stride == 1:
            return divided(way, stride, Facts()) + 1
        inside = size if self.auto_pad == "VALID" else size + self.before
        beginning = divided(inside + (self.stride - 1), stride, Facts())
        return smallest((divided(way + (self.stride - 1), stride, Facts()) + 1, beginning), Facts())


def conv(weight: int = 1, *, filters_last: bool = False) -> ShapeRule:
    """Return the rule of Conv and its kin: (N, C, ...) and (M, C / group, ...) to (N, M, ...).

    FusedConv is of its kin: what it adds has the shape of the result. Channels come last where
    the attribute `channels_last` says so, as in QLinearConv of onnxruntime, and in NhwcConv.

    Args:
        weight: Position of the filters.
        filters_last: Whether channels come last, those of filters too.
    """

    def rule(site: ShapeSite) -> Sequence[Shape | Unknown]:
        shape, filters = site.shape(0), site.shape(weight)
        is_last = filters_last or _attribute(site, "channels_last") == 1
        found = _convolved(
            site, _in_front(shape, is_last), _in_front(filters, filters_last), is_last
        )
        return (_at_end(found, is_last),)

    return rule


def deform_conv(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """DeformConv: as Conv; where the window looks depends on the offsets, how often does not."""
    return (_convolved(site, site.shape(0), site.shape(1), is_last=False),)


def _in_front(shape: Shape, is_last: bool) -> Shape:
    return (shape[0], shape[-1], *shape[1:-1]) if is_last and len(shape) > 1 else shape


def _at_end(shape: Shape, is_last: bool) -> Shape:
    return (shape[0], *shape[2:], shape[1]) if is_last and len(shape) > 1 else shape


def _convolved(site: ShapeSite, shape: Shape, filters: Shape, is_last: bool) -> Shape:
    if len(shape) != len(filters) or len(shape) < 3:
        raise Unknown("malformed", f"`{site.node.op_type}` takes data and filters of one rank")
    group = _attribute(site, "group")
    if not isinstance(group, int):
        raise Unknown("malformed", "`group` is no integer")
    place = len(shape) - 1 if is_last else 1
    site.same(filters[1] * group, shape[1], 0, place, "number of channels")
    given = _numbers(site, "kernel_shape")
    kernel = filters[2:] if given is None else tuple(map(integer, given))
    windows = _windows(site, kernel, len(shape) - 2)
    return (shape[0], filters[0], *_slid(site, shape[2:], windows, ceil=False))


def conv_transpose(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """ConvTranspose: (N, C, ...) and (C, M / group, ...) to (N, M, ...), larger by the stride."""
    shape, filters = site.shape(0), site.shape(1)
    rank = len(shape) - 2
    if len(shape) != len(filters) or rank < 1:
        raise Unknown("malformed", "`ConvTranspose` takes data and filters of one rank")
    site.same(filters[0], shape[1], 0, 1, "number of channels")
    channels = filters[1] * site.view.integer("group")
    asked = _numbers(site, "output_shape")
    if asked is not None and len(asked) >= rank:
        return ((shape[0], channels, *map(integer, asked[-rank:])),)
    given = _numbers(site, "kernel_shape")
    kernel = filters[2:] if given is None else tuple(map(integer, given))
    more = _numbers(site, "output_padding") or (0,) * rank
    sizes = []
    for size, window, extra in zip(shape[2:], _windows(site, kernel, rank), more, strict=True):
        if window.auto_pad.startswith("SAME"):
            sizes.append(size * window.stride)
            continue
        padding = 0 if window.auto_pad == "VALID" else window.before + window.after
        sizes.append((size - 1) * window.stride + window.extent + (extra - padding))
    return ((shape[0], channels, *_legal(site, sizes)),)


def pool(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """MaxPool, AveragePool, LpPool: the places of the window; indices have the same shape."""
    return _pooled(site, is_last=False)


def pool_of_any_layout(site: ShapeSite) -> Sequence[Shape | Unknown]:
    """QLinearAveragePool and NhwcMaxPool of onnxruntime, of which channels may come last."""
    is_nhwc = "channels_last" not in site.view.facts.attributes
    return _pooled(site, is_last=is_nhwc or site.integer("channels_last") == 1)


def _pooled(site: ShapeSite, *, is_last: bool) -> Sequence[Shape | Unknown]:
    shape = _in_front(site.shape(0), is_last)
    kernel = tuple(map(integer, _numbers(site, "kernel_shape") or ()))
    if len(shape) < 3:
        raise Unknown("malformed", f"`{site.node.op_type}` takes data of rank 3 or more")
    has_ceil = "ceil_mode" in site.view.facts.attributes
    ceil = has_ceil and bool(site.view.integer("ceil_mode"))
    windows = _windows(site, kernel, len(shape) - 2)
    if ceil and site.opset < _FIRST_CLEAR and any(w.may_begin_behind() for w in windows):
        raise Unknown("no-rule", "`ceil_mode` may count a window that begins behind the axis")
    result = _at_end((*shape[:2], *_slid(site, shape[2:], windows, ceil=ceil)), is_last)
    return (result,) * len(site.node.outputs)


def _slid(
    site: ShapeSite, sizes: Sequence[Expr], windows: Sequence[_Window], *, ceil: bool
) -> Sequence[Expr]:
    found = [w.positions(size, ceil=ceil) for size, w in zip(sizes, windows, strict=True)]
    return _legal(site, found)


def _legal(site: ShapeSite, sizes: Sequence[Expr]) -> Sequence[Expr]:
    """Return sizes that a run which does not fail never makes negative, and remember that."""
    site.knowledge.legal.update(size for size in sizes if size.number is None)
    return sizes


def _windows(site: ShapeSite, kernel: Sequence[Expr], rank: int) -> list[_Window]:
    """Return the window along each spatial axis.

    Raises:
        Unknown: If an attribute has not as many numbers as there are axes.
    """
    strides = _numbers(site, "strides") or (1,) * rank
    dilations = _numbers(site, "dilations") or (1,) * rank
    pads = _numbers(site, "pads") or (0,) * 2 * rank
    lengths = (len(kernel), len(strides), len(dilations), len(pads) // 2)
    if any(length != rank for length in lengths) or not all(n > 0 for n in strides):
        raise Unknown("malformed", f"the attributes are not those of {rank} spatial axes")
    # DeformConv has no such attribute: its padding is always given.
    auto_pad = _attribute(site, "auto_pad")
    how = auto_pad if isinstance(auto_pad, str) else "NOTSET"
    return [
        _Window((size - ONE) * dilation + 1, stride, pads[i], pads[i + rank], how)
        for i, (size, stride, dilation) in enumerate(zip(kernel, strides, dilations, strict=True))
    ]


def _attribute(site: ShapeSite, name: str) -> AttributeValue:
    """Return an attribute or its default; None without either, or if there is none of that name."""
    if not site.node.domain:
        return site.view.attribute(name) if name in site.view.facts.attributes else None
    # FusedConv has no schema here; its attributes and their defaults are those of Conv.
    given = site.node.attributes.get(name)
    if given is None:
        return 1 if name == "group" else None
    if given.is_ref():
        raise Unknown("unbound-attribute", "an attribute refers to a parameter without a value")
    value = given.value
    return tuple(value) if isinstance(value, list | tuple) else value


def _numbers(site: ShapeSite, name: str) -> tuple[int, ...] | None:
    value = _attribute(site, name)
    if not isinstance(value, tuple) or not value:
        return None
    return tuple(n for n in value if isinstance(n, int))
