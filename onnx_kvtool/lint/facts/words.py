"""How messages of rules name things."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["node_words", "shape_words"]


def node_words(node: ir.Node) -> str:
    """Return what messages call a node: its operator, and its name if it has one."""
    op = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    return f"`{op}` node `{node.name}`" if node.name else f"an unnamed `{op}` node"


def shape_words(dims: Sequence[int | str | None] | None) -> str:
    """Return a shape as messages show it, a dimension that is not known as `?`."""
    if dims is None:
        return "of unknown rank"
    return "[" + ", ".join("?" if d is None else str(d) for d in dims) + "]"
