"""The operators with bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from onnx_kvtool.core.table import Table
from onnx_kvtool.shapes.branches import if_
from onnx_kvtool.shapes.loops import loop, scan
from onnx_kvtool.shapes.outcome import Outcome

__all__ = ["CONTROL"]

CONTROL: Table[str, Callable[..., Sequence[Outcome]]] = Table(
    "operator with bodies", [("If", if_), ("Loop", loop), ("Scan", scan)]
)
"""What is found of each output, by operator of the default domain."""
