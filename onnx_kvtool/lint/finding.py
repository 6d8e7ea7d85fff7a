"""What a rule finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from onnx_kvtool.core.diagnostic import Diagnostic, Severity
from onnx_kvtool.core.location import Location

__all__ = ["Applicability", "Finding", "Fix"]

Applicability = Literal["safe", "unsafe"]


@dataclass(frozen=True, slots=True)
class Fix:
    """An edit that removes what a finding is about.

    Attributes:
        applicability: `safe` when neither results nor the interface change (names, types, shapes
            and order of inputs and outputs); `unsafe` otherwise.
        title: What the edit does, imperative, in lower case, without a full stop.
        apply: Edits the model that the rule looked at, in place. It is called once, may be called
            after other fixes have edited the same model, and does nothing where its node is gone.
    """

    applicability: Applicability
    title: str
    apply: Callable[[], None]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that the command-line contract fixes."""
        return {"applicability": self.applicability, "title": self.title}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a rule holds against a model.

    Attributes:
        diagnostic: Code, severity, place, message and remedy.
        name: Name of the rule.
        url: Page of the rule.
        fix: How to remove it; None where kvtool cannot.
        fingerprint: What it is known by from one version of the model to the next, unique among the
            findings of one model; "" until the engine gives it one.

    Examples:
        >>> finding = kv.check("wrong_axis.onnx")[0]
        >>> finding.code, finding.name, finding.severity, finding.fix
        ('KV001', 'axis-is-batch', 'error', None)
    """

    diagnostic: Diagnostic
    name: str
    url: str
    fix: Fix | None = None
    fingerprint: str = ""

    @property
    def code(self) -> str:
        """Code of the rule."""
        return self.diagnostic.code

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return self.diagnostic.severity

    @property
    def message(self) -> str:
        """What is wrong, one sentence without a full stop."""
        return self.diagnostic.message

    @property
    def help(self) -> str | None:
        """What to do about it; None when there is nothing to suggest."""
        return self.diagnostic.help

    @property
    def location(self) -> Location:
        """The place that is meant."""
        return self.diagnostic.location

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that the command-line contract fixes."""
        return {
            "code": self.code,
            "name": self.name,
            "severity": self.severity,
            "message": self.message,
            "help": self.help,
            "location": self.location.to_json(),
            "url": self.url,
            "fix": None if self.fix is None else self.fix.to_json(),
            "fingerprint": self.fingerprint,
        }
