"""Rules about what reading a file finds in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["DefectRule"]


class DefectRule(ModelRule):
    """A rule that hands on one kind of defect, which the reader saw in the protobuf message.

    The message is judged there because what onnx_ir makes of it no longer shows the defect. A model
    that was made in memory has none.

    Attributes:
        defect: Code of the defect among `Origin.defects`.
        remedy: What to do about it, where the defect itself does not say.
    """

    defect: ClassVar[str]
    remedy: ClassVar[str | None] = None

    def check(self, context: Context) -> Iterator[Finding]:
        """Yield a finding for each defect of this kind, with the severity that it has there."""
        for defect in context.origin.defects:
            if defect.code == self.defect:
                yield self.found(
                    defect.location,
                    defect.message,
                    help=defect.help or self.remedy,
                    severity=defect.severity,
                )
