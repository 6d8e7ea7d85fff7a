"""Applying fixes until none is left."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from onnx_kvtool.lint.finding import Applicability, Finding
from onnx_kvtool.lint.report import Applied

__all__ = ["ROUNDS", "apply_fixes", "fixable"]

ROUNDS = 10
"""How often a model is looked at again: one fix may uncover another finding."""


def fixable(findings: Sequence[Finding], allowed: Collection[Applicability]) -> list[Finding]:
    """Return the findings that have a fix which is allowed."""
    return [f for f in findings if f.fix is not None and f.fix.applicability in allowed]


def apply_fixes(
    look: Callable[[], Sequence[Finding]], allowed: Collection[Applicability]
) -> tuple[list[Applied], Sequence[Finding]]:
    """Apply the fixes that are allowed, look again, and so on, in place.

    It ends when nothing that is allowed is left, when a round leaves the same findings as the one
    before, or after `ROUNDS` rounds.

    Args:
        look: Looks at the model and returns what is found now.
        allowed: Which fixes may be applied.

    Returns:
        The fixes whose findings are gone, in the order in which they were applied, and what is
        found at the end.
    """
    applied: dict[str, Applied] = {}
    found = look()
    before: set[str] = set()
    for _ in range(ROUNDS):
        todo = fixable(found, allowed)
        now = {finding.fingerprint for finding in todo}
        if not todo or now == before:
            break
        before = now
        for finding in todo:
            if finding.fix is not None:
                finding.fix.apply()
                line = Applied(finding.code, finding.fix.title, finding.fingerprint)
                applied[finding.fingerprint] = line
        found = look()
    left = {finding.fingerprint for finding in found}
    return [line for line in applied.values() if line.fingerprint not in left], found
