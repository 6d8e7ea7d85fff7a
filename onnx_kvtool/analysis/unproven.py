"""What is said of a candidate that lacks a fact."""

from __future__ import annotations

from onnx_kvtool.core.errors import KvtoolError


class Unproven(KvtoolError):
    """Raised where nodes look like one operator and cannot be proven to be it.

    Attributes:
        code: Stable identifier of the reason (`free-positions`, `sizes-unrelated`).
        assumption: What could be granted to supply the missing fact, as `--assume` takes it; None
            when nothing would help.
    """

    def __init__(self, code: str, message: str, *, assumption: str | None = None) -> None:
        help = None if assumption is None else f"if it holds, grant it: `--assume {assumption}`"
        super().__init__(message, help=help)
        self.code = code
        self.assumption = assumption
