"""Rules about what the schema of an operator does not allow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from onnx_kvtool.lint.rule import ModelRule

if TYPE_CHECKING:
    from onnx_kvtool.lint.context import Context
    from onnx_kvtool.lint.finding import Finding

__all__ = ["MisuseRule"]


class MisuseRule(ModelRule):
    """A rule that hands on one kind of misuse; one walk over the nodes finds all kinds.

    Attributes:
        kind: Kind of misuse, as `misuse.Misuse` names it.
    """

    kind: ClassVar[str]

    def check(self, context: Context) -> Iterator[Finding]:
        """Yield a finding for each misuse of this kind."""
        for misuse in context.misuses.get(self.kind, ()):
            yield self.found(
                misuse.location, misuse.text, help=misuse.help, severity=misuse.severity
            )
