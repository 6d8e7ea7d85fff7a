"""A guard that said no."""

from __future__ import annotations

from onnx_kvtool.core.errors import KvtoolError

__all__ = ["Refusal"]


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
