"""The nodes that lead to a size, from where it first appears."""

from __future__ import annotations

import onnx_ir as ir

from onnx_kvtool.symbolic.dimensions import shape_words
from onnx_kvtool.symbolic.expressions import Expr
from onnx_kvtool.symbolic.knowledge import Knowledge

__all__ = ["chain"]

_LONGEST = 8
"""Most values that are named; what lies before them is said to be left out."""


def chain(knowledge: Knowledge, value: ir.Value, size: Expr | None) -> tuple[str, ...]:
    """Return the values on the way to `value`, the first one first, each with node and shape.

    Args:
        knowledge: Shapes so far.
        value: The last one.
        size: The size whose way is followed; None for the shape as a whole.
    """
    links = [_link(knowledge, value)]
    while (node := value.producer()) is not None:
        before = _before(knowledge, node, size)
        if before is None:
            break
        if len(links) == _LONGEST:
            links.append("...")
            break
        links.append(_link(knowledge, before))
        value = before
    return tuple(reversed(links))


def _before(knowledge: Knowledge, node: ir.Node, size: Expr | None) -> ir.Value | None:
    """Return the input that has the size, or else the first one of which something is known."""
    inputs = [v for v in node.inputs if v is not None and v in knowledge.shapes]
    for value in inputs:
        if size is not None and size in knowledge.shapes[value]:
            return value
    return inputs[0] if inputs else None


def _link(knowledge: Knowledge, value: ir.Value) -> str:
    shape = shape_words(knowledge.shapes.get(value))
    text = (
        "" if shape is None else "(" + ", ".join("?" if d is None else str(d) for d in shape) + ")"
    )
    node = value.producer()
    if node is None:
        return f"`{value.name}` {text}".rstrip()
    return f"{node.op_type} `{node.name or value.name}` gives `{value.name}` {text}".rstrip()
