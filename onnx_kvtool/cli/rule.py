"""`kvtool rule`: explain what `kvtool check` looks for."""

from __future__ import annotations

from typing import Literal

import click

from onnx_kvtool.cli.command import command, offers, option
from onnx_kvtool.cli.output import write_data, write_json
from onnx_kvtool.cli.types import Word

__all__ = ["rule"]

_EPILOG = """\b
Exit codes:
  0  done
  2  wrong usage, such as an unknown rule
  4  a bug in kvtool

\b
Examples:
  kvtool rule KV001
  kvtool rule KV008 --format markdown
  kvtool rule --all                  a line for each rule
  kvtool rule --all --format json

\b
See also:
  check  looks for what the rules describe
"""


@command(epilog=_EPILOG, short_help="Explain a rule of `kvtool check`.")
@click.argument("code", required=False, metavar="[CODE]", shell_complete=offers("rules"))
@option("--all", "all_rules", is_flag=True, help="Explain all rules.")
@option(
    "--format",
    "output_format",
    type=Word(["text", "json", "markdown"]),
    default="text",
    show_default=True,
    help="Print text, JSON, or the page in Markdown; all on standard output.",
)
def rule(
    code: str | None, all_rules: bool, output_format: Literal["text", "json", "markdown"]
) -> None:
    """Explain the rule CODE of `kvtool check`: what it finds, and why that is bad.

    CODE is the code of a rule in any case, such as KV001, or its name, such as axis-is-batch. As
    text, --all gives a line for each rule: code, name, severity and summary.
    """
    from onnx_kvtool.commands.rule import RuleRequest, run
    from onnx_kvtool.lint.rule import markdown, plain

    report = run(RuleRequest(code, all_rules))
    if output_format == "json":
        write_json("rule", report)
    elif output_format == "markdown":
        write_data("\n\n".join(map(markdown, report.rules)))
    elif all_rules:
        width = max(len(one.name) for one in report.rules)
        for one in report.rules:
            write_data(f"{one.code}  {one.name.ljust(width)}  {one.severity:<7}  {one.summary}")
    else:
        write_data(plain(report.rules[0]))
