"""What a rule is: a Markdown page under `lint/rules/pages`, and the function that checks it.

A page begins with front matter, lines `key: value` between two lines `---`. The keys are fields of
`Rule`, with `-` for `_`; `code`, `name`, `severity` and `basis` are always there. The first heading
is the summary, and these follow:

    ## What it does
    ## Why is this bad?
    ## Fix safety          (only where the rule has a fix)
    ## Example
    ## References

The example is a block of `diff`. Without its `+` lines it is a model in ONNX text where the rule
finds something, without its `-` lines the model as it should be.

The function stands in the module that `family` names, marked with the codes of its rules. It is
called with `(site, context)` for each node of the rule's `operators`, with `(context, target)` for
each `--target` that switches the rule on, or else with `(context)` once, and yields `Found`. One of
several rules is given the code first. What is imported here reads no models, so that `kvtool rule`
starts at once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from onnx_kvtool import __address__, __version__
from onnx_kvtool.core.choices import Severity
from onnx_kvtool.core.tables import Table
from onnx_kvtool.core.words import counted

if TYPE_CHECKING:
    from onnx_kvtool.lint.finding import Applicability, Finding, Findings, Found
    from onnx_kvtool.targets.target import Target


Basis = Literal["constant", "symbolic", "heuristic"]
Check = Callable[..., "Findings"]
Marked = TypeVar("Marked", bound=Check)

_PAGES = "onnx_kvtool/lint/rules/pages/"
_MARK = "_checks"


@dataclass(frozen=True, eq=False)
class Rule:
    """A kind of problem of a model.

    Attributes:
        code: Permanent identifier, `KV001`.
        name: The bad pattern in words, `axis-is-batch`; reads after "allow".
        severity: Usual severity of what it finds; a finding may have a lower one.
        basis: What its findings rest on: values in the file, shapes and ranges that hold for every
            input, or names and habits. The last are never errors.
        page: The text after the front matter, in Markdown.
        family: The module under `lint/rules` with its check; "" for a rule about reading and
            suppressing, whose findings come from there.
        fix: How safe its fixes are; None if it has none.
        operators: The operators whose nodes its check gets, as `Op` or `domain::Op`; empty for a
            check of the whole model.
        runtime: Runtime whose `--target` switches the rule on, `any` for each of them; "" for a
            rule that is always on.
        example_target: Release of `--target` for the examples; "" for none.
        example_files: Files beside the examples: their names and sizes in bytes.
        example_links: Symbolic links beside them: their names and targets.
    """

    code: str
    name: str
    severity: Severity
    basis: Basis
    page: str
    family: str = ""
    fix: Applicability | None = None
    operators: tuple[str, ...] = ()
    runtime: str = ""
    example_target: str = ""
    example_files: Mapping[str, int] = field(default_factory=dict)
    example_links: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_page(cls, text: str) -> Rule:
        """Return the rule that a page describes."""
        _, front, page = text.split("---\n", 2)
        given: dict[str, Any] = {"page": page.strip()}
        for line in front.splitlines():
            key, _, value = line.partition(": ")
            given[key.replace("-", "_")] = _READ.get(key, str)(value)
        return cls(**given)

    def check(self) -> Check:
        """Return the function that checks the rule; the first use imports its module."""
        return checks_in(self.family)[self.code]

    @property
    def url(self) -> str:
        """Address of the page of the rule, as of this version."""
        return f"{__address__}/blob/v{__version__}/{_PAGES}{self.code}.md"

    @property
    def summary(self) -> str:
        """First heading of the page, a sentence without the full stop."""
        return self.page.partition("\n")[0].removeprefix("# ")

    @property
    def bad(self) -> str:
        """A model in ONNX text with a finding of the rule."""
        return self._example("-")

    @property
    def good(self) -> str:
        """The model as it should be."""
        return self._example("+")

    def _example(self, mark: str) -> str:
        block = self.section("Example").partition("```diff\n")[2].partition("\n```")[0]
        return "\n".join(line[1:] for line in block.splitlines() if line[:1] in ("", " ", mark))

    def section(self, heading: str) -> str:
        """Return the text under a heading of the page; "" where it has no such heading."""
        return self.page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0].strip()

    def is_about(self, target: Target) -> bool:
        """Return whether a target enables the rule."""
        return self.runtime in ("any", target.release.runtime)

    def found(self, what: Found) -> Finding:
        """Return the finding of this rule for what its check yields."""
        from onnx_kvtool.core.diagnostic import Diagnostic
        from onnx_kvtool.lint.finding import Finding

        severity = what.severity or self.severity
        diagnostic = Diagnostic(self.code, severity, what.location, what.message, what.help)
        return Finding(diagnostic, self.name, self.url, what.fix)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(", "))


def _pairs(text: str) -> dict[str, str]:
    return dict(word.split("=") for word in _words(text))


_READ: Mapping[str, Callable[[str], object]] = {
    "operators": _words,
    "example-files": lambda text: {name: int(size) for name, size in _pairs(text).items()},
    "example-links": _pairs,
}
"""What reads the values of keys that are not single words."""


def check(*codes: str) -> Callable[[Marked], Marked]:
    """Mark a function of a module under `lint/rules` as the check of the rules with these codes."""

    def mark(function: Marked) -> Marked:
        setattr(function, _MARK, codes)
        return function

    return mark


@functools.cache
def checks_in(family: str) -> Table[str, Check]:
    """Return the checks of a module under `lint/rules`, by the code of their rule."""
    things: dict[str, Any] = vars(import_module(f"onnx_kvtool.lint.rules.{family}"))
    marked = [(x, codes) for x in things.values() if (codes := getattr(x, _MARK, ()))]
    return Table(
        "check",
        (
            (code, functools.partial(x, code) if len(codes) > 1 else x)
            for x, codes in marked
            for code in codes
        ),
    )


_BASIS = {
    "constant": "values in the file",
    "symbolic": "shapes and ranges that hold for every input",
    "heuristic": "names and habits, so that it is never an error",
}


def facts(rule: Rule) -> str:
    """Return severity, basis, fix and runtime of a rule in one sentence without a full stop."""
    parts = [f"severity {rule.severity}", f"rests on {_BASIS[rule.basis]}"]
    if rule.runtime == "any":
        parts.append("needs a `--target`")
    elif rule.runtime:
        parts.append(f"needs `--target {rule.runtime}`")
    article = "an" if rule.fix == "unsafe" else "a"
    parts.append(f"has {article} {rule.fix} fix" if rule.fix else "has no fix")
    return "; ".join(parts)


def markdown(rule: Rule) -> str:
    """Return the page of a rule in Markdown, without a line end after the last line."""
    head, _, tail = rule.page.partition("\n## Example\n")
    told = facts(rule)
    parts = [f"# {rule.code} {rule.name}", f"{rule.summary}.", f"{told[0].upper()}{told[1:]}."]
    parts += [head.partition("\n")[2].strip(), "## Example", _example(rule.bad), _beside(rule)]
    parts += ["## Use instead", _example(rule.good), tail.partition("\n```\n")[2].strip()]
    return "\n\n".join(part for part in parts if part)


def _example(text: str) -> str:
    return f"```text\n{text}\n```"


def _beside(rule: Rule) -> str:
    """Return a sentence about the other files in the directory of the examples."""
    things = [f"`{name}` of {counted(size, 'byte')}" for name, size in rule.example_files.items()]
    things += [f"`{name}`, a link to `{to}`" for name, to in rule.example_links.items()]
    target = f"Checked with `--target {rule.example_target}`." if rule.example_target else ""
    beside = f"Beside the model lies {' and '.join(things)}." if things else ""
    return " ".join(part for part in (target, beside) if part)


def plain(page: str) -> str:
    """Return a page in Markdown for a terminal: headings without marks, examples indented."""
    lines, inside = [], False
    for line in page.splitlines():
        if line.startswith("```"):
            inside = not inside
        elif inside:
            lines.append(f"    {line}".rstrip())
        elif line.startswith("#"):
            lines.append(line.lstrip("#").strip())
        else:
            lines.append(line)
    return "\n".join(lines)


_GROUPS = ("KV", "MD", "XD", "ON")


RULES: Table[str, Rule] = Table(
    "rule",
    sorted(
        (
            (rule.code, rule)
            for page in Path(__file__).parent.glob("rules/pages/*.md")
            for rule in (Rule.of_page(page.read_text(encoding="utf-8")),)
        ),
        key=lambda entry: (_GROUPS.index(entry[0][:2]), entry[0]),
    ),
)
