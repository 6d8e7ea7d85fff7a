"""What a node says of one of its outputs."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from onnx_kvtool.symbolic.dimensions import Shape
from onnx_kvtool.symbolic.rules.site import Unknown

__all__ = ["Outcome"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Type and shape of an output as a rule gives them.

    Attributes:
        type: Its type; None when unknown.
        shape: Its shape, or why its rank is unknown. Nobody asks for that of what is no tensor.
    """

    type: ir.TypeProtocol | None
    shape: Shape | Unknown
