"""Operators that are told by numbers how much of an axis there is: Pad and TopK."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_kvtool.symbolic.expression import Expr, integer
from onnx_kvtool.symbolic.rules.site import ShapeSite, Unknown, placed
from onnx_kvtool.symbolic.sizes import Shape

__all__ = ["pad", "top_k"]


def pad(site: ShapeSite) -> Sequence[Shape | Unknown]:
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


def top_k(site: ShapeSite) -> Sequence[Shape | Unknown]:
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
