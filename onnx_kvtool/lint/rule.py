"""What a rule is.

A rule is a class in a file of its own. Its docstring is the page that people read, with these
headings, each followed by a blank line and text in Markdown:

    ## What it does
    ## Why is this bad?
    ## Fix safety          (only where the rule has a fix)
    ## References

The examples of the page are `bad` and `good`, whole models in ONNX text that a test runs: the rule
finds something in the first and nothing in the second. The modules of rules import nothing but this
one and the standard library at their top, so that `kvtool rule` starts at once; what they need of
the package they import where they use it, or get from the context.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from onnx_kvtool.core.diagnostic import Severity
    from onnx_kvtool.core.location import Location
    from onnx_kvtool.lint.context import Context, Site
    from onnx_kvtool.lint.finding import Applicability, Finding, Fix
    from onnx_kvtool.targets.target import Target

__all__ = ["Basis", "ModelRule", "NodeRule", "Rule", "RunRule", "TargetRule"]

Basis = Literal["constant", "symbolic", "heuristic"]

_PAGES = "docs/rules/"


class Rule:
    """One thing that can be wrong with a model.

    Attributes:
        code: Permanent identifier, `KV001`.
        name: The bad pattern in words, `axis-is-batch`; reads after "allow".
        severity: Usual severity of what it finds; a finding may have a lower one.
        basis: What its findings rest on: values in the file, shapes and ranges that hold for every
            input, or names and habits. What rests on the last is never an error.
        fix: Whether its findings can have a fix, and how safe that is; None for no fix.
        bad: A model in ONNX text in which it finds something.
        good: The model as it should be.
        runtime: Runtime whose `--target` switches the rule on, `any` for each of them; "" for a
            rule that is always on.
        example_target: Release for which the examples are checked, as `--target` takes it; "" for
            none.
        example_files: Files that lie beside the examples: their names and sizes in bytes.
        example_links: Symbolic links that lie there: their names and what they lead to.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    severity: ClassVar[Severity]
    basis: ClassVar[Basis]
    fix: ClassVar[Applicability | None] = None
    bad: ClassVar[str]
    good: ClassVar[str]
    runtime: ClassVar[str] = ""
    example_target: ClassVar[str] = ""
    example_files: ClassVar[Mapping[str, int]] = {}
    example_links: ClassVar[Mapping[str, str]] = {}

    @property
    def url(self) -> str:
        """Page of the rule, relative to the root of the project."""
        return f"{_PAGES}{self.code}.md"

    @property
    def summary(self) -> str:
        """First line of the docstring, without the full stop."""
        return (inspect.getdoc(type(self)) or "").splitlines()[0].rstrip(".")

    @property
    def text(self) -> str:
        """The docstring after its first line: Markdown."""
        lines = (inspect.getdoc(type(self)) or "").splitlines()
        return "\n".join(lines[1:]).strip()

    def section(self, heading: str) -> str:
        """Return the text under a heading of the docstring; "" where it has no such heading."""
        return self.text.partition(f"## {heading}\n")[2].partition("\n## ")[0].strip()

    def found(
        self,
        location: Location,
        message: str,
        *,
        help: str | None = None,
        severity: Severity | None = None,
        fix: Fix | None = None,
    ) -> Finding:
        """Return a finding of this rule.

        Args:
            location: The place that is meant.
            message: One sentence without a full stop: got and expected, names in backticks.
            help: What to do about it, imperative.
            severity: None for that of the rule.
            fix: How to remove it.
        """
        from onnx_kvtool.core.diagnostic import Diagnostic
        from onnx_kvtool.lint.finding import Finding

        diagnostic = Diagnostic(self.code, severity or self.severity, location, message, help)
        return Finding(diagnostic, self.name, self.url, fix)


class NodeRule(Rule):
    """A rule that looks at nodes one by one.

    Attributes:
        operators: Operators of the default domain that it wants to see, as `Op`, or of another
            domain, as `domain::Op`; empty for all nodes.
    """

    operators: ClassVar[tuple[str, ...]]

    def check(self, site: Site, context: Context) -> Iterator[Finding]:
        """Yield what is wrong with one node."""
        raise NotImplementedError


class ModelRule(Rule):
    """A rule that looks at the model as a whole, once."""

    def check(self, context: Context) -> Iterator[Finding]:
        """Yield what is wrong with the model."""
        raise NotImplementedError


class TargetRule(Rule):
    """A rule about a runtime, called once for each `--target` it applies to; silent without one."""

    def is_about(self, target: Target) -> bool:
        """Return whether a target switches the rule on."""
        return self.runtime in ("any", target.release.runtime)

    def check(self, context: Context, target: Target) -> Iterator[Finding]:
        """Yield what a release of the runtime holds against the model."""
        raise NotImplementedError


class RunRule(Rule):
    """A rule about the run itself: no model is handed to it, and what finds it makes its findings.

    Its `bad` may be any text, no model among it: what stands in the file that is checked.
    """
