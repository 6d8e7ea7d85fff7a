"""Operators whose output has the shape of one input, or of all of them broadcast."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_kvtool.symbolic.atoms import Element
from onnx_kvtool.symbolic.broadcasting import broadcast_size
from onnx_kvtool.symbolic.expression import Expr, integer
from onnx_kvtool.symbolic.rules.site import Rule, Site, Unknown
from onnx_kvtool.symbolic.sizes import Shape, words

__all__ = ["broadcast", "broadcast_shapes", "like", "one_shape"]

_ONE = integer(1)
_FIRST_NUMPY = 7
"""Below this opset an input is fitted to the first one, whose shape the result has."""


def like(index: int, outputs: int = 1) -> Rule:
    """Return the rule of an operator whose first outputs have the shape of one input.

    Args:
        index: Position of the input.
        outputs: How many outputs have that shape.
    """

    def rule(site: Site) -> Sequence[Shape | Unknown]:
        return (site.shape(index),) * outputs

    return rule


def one_shape(site: Site) -> Sequence[Shape | Unknown]:
    """SwiGLU: its inputs have one shape, and each may say what the other leaves open."""
    a, b = site.shape(0), site.shape(1)
    if len(a) != len(b):
        raise Unknown("malformed", f"`{site.node.op_type}` takes inputs of one shape")
    pairs = enumerate(zip(a, b, strict=True))
    return (tuple(site.same(one, other, 1, axis, "shape") for axis, (one, other) in pairs),)


def broadcast(site: Site) -> Sequence[Shape | Unknown]:
    """Add, Where, Max and all others that broadcast their inputs to one shape."""
    if site.opset < _FIRST_NUMPY:
        return (site.shape(0),)
    indices = [i for i, value in enumerate(site.node.inputs) if value is not None]
    return (broadcast_shapes(site, [(i, site.shape(i)) for i in indices]),)


def broadcast_shapes(site: Site, shapes: Sequence[tuple[int, Shape]], output: int = 0) -> Shape:
    """Return the shape to which some shapes are broadcast.

    Args:
        site: The node.
        shapes: Each with the position of the input whose shape it is, for the report.
        output: The output that gets the shape, for sizes that depend.
    """
    rank = max((len(shape) for _, shape in shapes), default=0)
    result = []
    for axis in range(rank):
        size: Expr = _ONE
        for index, shape in shapes:
            place = axis - rank + len(shape)
            if place >= 0:
                size = _meet(site, size, shape[place], index, place, axis, output)
        result.append(size)
    return tuple(result)


def _meet(site: Site, a: Expr, b: Expr, index: int, place: int, axis: int, output: int) -> Expr:
    size = broadcast_size(a, b, site.knowledge.equalities)
    if size is not None:
        return size
    if a.number is not None and b.number is not None:
        site.refuse(index, place, a, "sizes to broadcast")
        return a
    for atom in (*a.atoms(), *b.atoms()):
        lost = site.knowledge.lost_sizes.get(atom)
        if lost is not None:
            return site.knowledge.unknown_size(site.node.outputs[output], axis, lost)
        if isinstance(atom, Element):
            return site.lost(axis, site.cause_of(atom.value), output=output)
    why = f"{_named(a)} and {_named(b)} are broadcast, and either may be 1"
    return site.lost(axis, why, code="ambiguous-broadcast", output=output)


def _named(size: Expr) -> str:
    text = words(size)
    return "an unknown size" if text is None else f"`{text}`"
