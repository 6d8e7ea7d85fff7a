"""`kvtool rule`: what it is asked, and the rules. Nothing that is imported here reads models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.lint.page import markdown
from onnx_kvtool.lint.rule import Rule
from onnx_kvtool.lint.settings.selection import find_rule
from onnx_kvtool.lint.table import RULES

__all__ = ["RuleReport", "RuleRequest", "run"]


@dataclass(frozen=True, slots=True)
class RuleRequest:
    """What `kvtool rule` was asked to do.

    Attributes:
        code: Code, or name, of a rule; None with `all_rules`.
        all_rules: Whether all rules are meant.
    """

    code: str | None = None
    all_rules: bool = False


@dataclass(frozen=True, slots=True)
class RuleReport:
    """Rules, in the order of their codes.

    Attributes:
        rules: The rules.
    """

    rules: tuple[Rule, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that the command-line contract fixes."""
        return {
            "rules": [
                {
                    "code": rule.code,
                    "name": rule.name,
                    "severity": rule.severity,
                    "summary": rule.summary,
                    "fix": rule.fix,
                    "documentation": markdown(rule),
                    "url": rule.url,
                    "basis": rule.basis,
                    "runtime": rule.runtime or None,
                }
                for rule in self.rules
            ]
        }


def run(request: RuleRequest) -> RuleReport:
    """Carry out `kvtool rule`.

    Raises:
        UsageError: If no rule has the code, or a code and `all` are both given, or neither.
    """
    if (request.code is None) != request.all_rules:
        raise UsageError(
            "`rule` explains one rule or all, got "
            + ("both a code and `--all`" if request.all_rules else "neither a code nor `--all`"),
            help="run `kvtool rule CODE`, or `kvtool rule --all`",
        )
    if request.code is None:
        return RuleReport(tuple(RULES.values()))
    return RuleReport((find_rule(request.code),))
