"""What a rule returns, and how it says no."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx_kvtool.core.errors import KvtoolError

if TYPE_CHECKING:
    import onnx_ir as ir

__all__ = ["Refusal", "Replacement"]


class Refusal(KvtoolError):
    """Raised by a guard before anything was edited: this node cannot be rewritten, and why.

    Attributes:
        code: Stable identifier of the reason (`unknown-rank`, `element-type`).
        lowest_opset: The lowest target that would work where the guard knows it; else None, and
            the engine looks for it.
    """

    def __init__(
        self, code: str, message: str, *, help: str | None = None, lowest_opset: int | None = None
    ) -> None:
        super().__init__(message, help=help)
        self.code = code
        self.lowest_opset = lowest_opset


@dataclass(frozen=True, slots=True)
class Replacement:
    """What takes the place of a node, once the emitter's nodes stand before it.

    Attributes:
        outputs: One value per output of the node; None for an output that nobody reads.
        via: The form that was chosen, where the rule has several.
        folds: Whether a constant may take the place of a node whose result is known.
    """

    outputs: tuple[ir.Value | None, ...]
    via: str | None = None
    folds: bool = True
