"""The error for a candidate that lacks a fact."""

from __future__ import annotations

from onnx_kvtool.core.errors import KvtoolError


class Unproven(KvtoolError):
    """Raised for nodes that look like one operator, without a proof that they are.

    Attributes:
        code: Stable identifier of the reason (`free-positions`, `sizes-unrelated`).
        assumption: The value of `--assume` for the missing fact; None if no assumption helps.
    """

    def __init__(self, code: str, message: str, *, assumption: str | None = None) -> None:
        help = None if assumption is None else f"if it holds, grant it: `--assume {assumption}`"
        super().__init__(message, help=help)
        self.code = code
        self.assumption = assumption
