"""The page of a rule as people read it: its facts in words, and each example whole."""

from __future__ import annotations

from onnx_kvtool.core.quantity import counted
from onnx_kvtool.lint.rule import Rule

__all__ = ["facts", "markdown", "plain"]

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
    parts.append(f"has {_a(rule.fix)} fix" if rule.fix else "has no fix")
    return "; ".join(parts)


def _a(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


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
    """Return what else there is in the directory of the examples."""
    things = [f"`{name}` of {counted(size, 'byte')}" for name, size in rule.example_files.items()]
    things += [f"`{name}`, a link to `{to}`" for name, to in rule.example_links.items()]
    target = f"Checked with `--target {rule.example_target}`." if rule.example_target else ""
    beside = f"Beside the model lies {' and '.join(things)}." if things else ""
    return " ".join(part for part in (target, beside) if part)


def plain(rule: Rule) -> str:
    """Return the page of a rule for a terminal: headings without marks, examples indented."""
    lines, inside = [], False
    for line in markdown(rule).splitlines():
        if line.startswith("```"):
            inside = not inside
        elif inside:
            lines.append(f"    {line}".rstrip())
        elif line.startswith("#"):
            lines.append(line.lstrip("#").strip())
        else:
            lines.append(line)
    return "\n".join(lines)
