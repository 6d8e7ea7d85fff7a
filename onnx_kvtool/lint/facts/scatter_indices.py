"""What is known of the indices of ScatterElements and ScatterND."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from onnx_kvtool.lint.context import Context, Site
from onnx_kvtool.ops.element_type import SIZE_TYPES
from onnx_kvtool.ops.scatter import ScatterElements, ScatterND
from onnx_kvtool.symbolic.contents import IndexMap, elements
from onnx_kvtool.symbolic.expressions import Expr, integer
from onnx_kvtool.symbolic.simplification import Facts, substitute

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MOST", "Component", "Scatter", "components", "constant", "corners", "scatter"]

MOST = 2**18
"""Most indices of a constant that are read; so many take 2 MiB."""


Scatter = ScatterElements | ScatterND


def scatter(site: Site) -> Scatter | None:
    """Return the view of a scatter; None for one that its schema does not allow."""
    if site.node.op_type == "ScatterND":
        return site.view(ScatterND)
    return site.view(ScatterElements)


def constant(context: Context, value: ir.Value) -> NDArray[np.int64] | None:
    """Return constant indices; None where they are computed from inputs, external or too many."""
    known = context.folder.integers(value)
    if known is not None:
        return known
    tensor = value.const_value
    node = value.producer()
    if node is not None:
        given = node.attributes.get("value") if node.op_type == "Constant" else None
        if node.domain or given is None or given.type is not ir.AttributeType.TENSOR:
            return None
        tensor = None if given.is_ref() else given.value
    elif not value.is_initializer() or value.is_graph_input():
        return None
    if tensor is None or tensor.dtype not in SIZE_TYPES or isinstance(tensor, ir.ExternalTensor):
        return None
    if any(size < 0 for size in tensor.shape.numpy()) or tensor.size > MOST:
        return None
    found = elements(tensor)
    return None if found is None else found.astype(np.int64)


@dataclass(frozen=True, slots=True)
class Component:
    """What the indices hold that count along one axis of the data.

    Attributes:
        axis: The axis of the data.
        size: Its size.
        described: The indices, over the coordinates of the grid on which they lie.
    """

    axis: int
    size: Expr
    described: IndexMap


def components(context: Context, site: Site, view: Scatter) -> Iterator[Component]:
    """Yield the components of the index tuples, or the one of ScatterElements, that are known."""
    maps = context.index_maps(site)
    sizes, described = maps.shape(view.data), maps.of(view.indices)
    if sizes is None or not described.shape or not described.known:
        return
    if isinstance(view, ScatterElements):
        if -len(sizes) <= view.axis < len(sizes):
            axis = view.axis % len(sizes)
            yield Component(axis, sizes[axis], described)
        return
    depth = described.shape[-1].number
    if depth is None or depth > len(sizes):
        return
    for axis in range(depth):
        one = described.component(axis)
        if one is not None and one.known:
            yield Component(axis, sizes[axis], one)


def corners(described: IndexMap) -> Iterator[tuple[Expr, Facts]]:
    """Yield what the first and the last element hold, and what each part of the elements holds.

    A bound of an index that counts along an axis is reached at one of its ends. Nothing is yielded
    for indices that certainly have no element.
    """
    shape = described.shape or ()
    if any(size.number == 0 for size in shape):
        return
    for part in described.parts:
        yield part, described.facts
        if part.axes:
            for ends in _ends(sorted(part.axes), shape):
                yield substitute(part, ends, described.facts), described.facts


def _ends(axes: Sequence[int], shape: Sequence[Expr]) -> Iterator[dict[int, Expr]]:
    yield dict.fromkeys(axes, integer(0))
    yield {axis: shape[axis] - 1 for axis in axes}
