"""`kvtool rule`: the pages of rules. No import here reads models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from onnx_kvtool.commands.requests import RuleRequest
from onnx_kvtool.core.choices import Severity
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.record import Record, taken
from onnx_kvtool.lint.rule import RULES, Basis, Rule, markdown
from onnx_kvtool.lint.settings.config import find_rule


@dataclass(frozen=True, slots=True)
class RulePage(Record):
    """The page of a rule.

    Attributes:
        code: Permanent code.
        name: Name.
        severity: Usual severity of its findings.
        summary: What it finds, in one sentence without a full stop.
        fix: How safe its fixes are; null if it has none.
        documentation: Page in Markdown.
        url: Address of its page.
        basis: Evidence for its findings.
        runtime: Runtime whose `--target` enables it; null if it is always on.
    """

    code: str
    name: str
    severity: Severity
    summary: str
    fix: Literal["safe", "unsafe"] | None
    documentation: str
    url: str
    basis: Basis
    runtime: str | None


@dataclass(frozen=True, slots=True)
class RuleReport(Record):
    """Rules, in the order of their codes.

    Attributes:
        rules: The rules.
    """

    rules: tuple[RulePage, ...]


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
    rules = RULES.values() if request.code is None else (find_rule(request.code),)
    return RuleReport(tuple(map(_page, rules)))


def _page(rule: Rule) -> RulePage:
    return taken(RulePage, rule, documentation=markdown(rule), runtime=rule.runtime or None)
