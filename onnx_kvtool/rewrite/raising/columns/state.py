"""What a rule is given that writes the wide form of what a node gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.analysis.constants import Folder
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.ops.view import NodeView
from onnx_kvtool.rewrite.raising.stage import GROWN, LONGER, Grown, Size
from onnx_kvtool.symbolic.broadcasting import SizeEqualities
from onnx_kvtool.symbolic.dimensions import dims_of
from onnx_kvtool.symbolic.index_maps import IndexMaps

__all__ = ["Rule", "Stuck", "Widened", "is_grown"]


def is_grown(sizes: Sequence[Size]) -> bool:
    """Return whether an axis is to be as long as the caches."""
    return GROWN in sizes or LONGER in sizes


class Stuck(Exception):
    """No wide form is known; the message is a clause that says why."""


@dataclass(frozen=True, slots=True)
class Widened:
    """What a rule is given.

    Attributes:
        em: Where to build.
        grown: What is known of values.
        wide: Wide forms of values that are as long as the rows in use.
        capacity: Rows of a cache, C.
        count: The rows in use, (1,), int64.
        folder: Knows what is constant.
    """

    em: Emitter
    grown: Grown
    wide: Mapping[ir.Value, ir.Value]
    capacity: int
    count: ir.Value
    folder: Folder

    def sizes(self, value: ir.Value) -> tuple[Size, ...]:
        """Return the sizes of a value.

        Raises:
            Stuck: If its rank is unknown.
        """
        found = self.grown.shapes.get(value)
        if found is not None:
            return found
        dims = [dim for dim in dims_of(value) or (None,) if isinstance(dim, int)]
        if value.shape is None or len(dims) != len(value.shape):
            raise Stuck(f"the shape of `{value.name}` is unknown")
        return tuple(dims)

    def of(self, value: ir.Value) -> ir.Value:
        """Return a value, in its wide form where it is as long as the rows in use."""
        return self.wide.get(value, value) if is_grown(self.grown.shapes.get(value, ())) else value

    def dtype(self, value: ir.Value) -> ir.DataType:
        """Return the element type of a value, or that it is unknown."""
        return value.dtype or self.grown.types.get(value) or ir.DataType.UNDEFINED

    def maps(self) -> IndexMaps:
        """Return what wide values hold, at the sizes of the result."""
        return IndexMaps(self.em.opset, SizeEqualities([*self.grown.dims.items()]))

    def target(self, value: ir.Value) -> list[int]:
        """Return the shape of the wide form of a value.

        Raises:
            Stuck: If a size is no number.
        """
        found = []
        for size in self.sizes(value):
            if size is None:
                raise Stuck(f"a size of `{value.name}` is not known as a number")
            found.append(self.capacity if size < 0 else size)
        return found

    def again(self, view: NodeView, *inputs: ir.Value | None) -> ir.Value:
        """Add the same node with other inputs."""
        node = view.node
        output = node.outputs[0]
        new = self.em.op(node.op_type, *inputs, dtype=self.dtype(output))
        made = new.producer()
        assert made is not None
        for attribute in node.attributes.values():
            made.attributes[attribute.name] = attribute
        return new


Rule = Callable[[NodeView, Widened], ir.Value]
