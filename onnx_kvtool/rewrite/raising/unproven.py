"""A candidate of which a fact is missing."""

from __future__ import annotations

from onnx_kvtool.rewrite.engine.rule import Refusal

__all__ = ["Unproven"]


class Unproven(Refusal):
    """Raised where a node looks like the update of a cache and cannot be proven to be one.

    Attributes:
        code: Stable identifier of the reason (`free-positions`, `sizes-unrelated`).
        assumption: What could be granted to supply the missing fact, as `--assume` takes it; None
            when nothing would help.
    """

    def __init__(self, code: str, message: str, *, assumption: str | None = None) -> None:
        help = None if assumption is None else f"if it holds, grant it: `--assume {assumption}`"
        super().__init__(code, message, help=help)
        self.assumption = assumption
