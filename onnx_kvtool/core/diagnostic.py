"""The one form in which kvtool says that something is not as it should be."""

from __future__ import annotations

from dataclasses import dataclass

from onnx_kvtool.core.choices import Severity
from onnx_kvtool.core.location import Location
from onnx_kvtool.core.record import Record

__all__ = ["Diagnostic", "Severity"]


@dataclass(frozen=True, slots=True)
class Diagnostic(Record):
    """A finding, a refusal, a conflict or a failed verification.

    Attributes:
        code: Stable identifier (`unknown-rank`, `KV008`); never reused for another meaning.
        severity: `error`, `warning` or `info`.
        location: The place that is meant.
        message: What is wrong, got and expected; one sentence without a full stop.
        help: What to do about it, imperative; None when there is nothing to suggest.
        lowest_opset: For a refusal, the lowest opset at which the node could stay or be lowered;
            None when no opset would help or none is known.
    """

    code: str
    severity: Severity
    location: Location
    message: str
    help: str | None = None
    lowest_opset: int | None = None

    def __str__(self) -> str:
        text = f"{self.code}: {self.location}: {self.message}"
        return f"{text}\n  help: {self.help}" if self.help else text
