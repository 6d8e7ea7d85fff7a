"""`kvtool check`: find mistakes in models."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from typing import Any

import click

from onnx_kvtool.cli.command import command, offers, option
from onnx_kvtool.cli.options import dim_option, proof_options, timeout_option
from onnx_kvtool.cli.output import report_place
from onnx_kvtool.cli.types import ReportFile, Whole, Word, WrongValue, show_failure
from onnx_kvtool.core.choices import CheckFormat, Severity, words
from onnx_kvtool.model_io.places import check_source

__all__ = ["SUFFIXES", "check"]

_EPILOG = """\b
Exit codes:
  0  no finding at or above --fail-on
  1  findings; with --diff: a fix applies; with --strict: a fix is not covered
  2  wrong usage or configuration, or the output cannot be written
  3  the only model cannot be read
  4  a bug in kvtool

\b
Examples:
  kvtool check                       every *.onnx below the current directory
  kvtool check decoder.onnx --target onnxruntime@1.25
  kvtool check models/**/*.onnx --select KV0,KV1 --fail-on warning
  kvtool check decoder.onnx --diff   show what --fix would change
  kvtool check --write-baseline kvtool-baseline.json
  kvtool check --format sarif -o kvtool.sarif --jobs 2
  kvtool check - < decoder.onnx

\b
See also:
  rule     explain what a rule finds, and why
  targets  list the releases for --target
"""


SUFFIXES = {
    "text": ".txt",
    "concise": ".txt",
    "json": ".json",
    "jsonl": ".jsonl",
    "sarif": ".sarif",
    "github": ".txt",
    "gitlab": ".json",
    "junit": ".xml",
    "rdjson": ".json",
}
"""Of the file that a report becomes in a directory."""


def _codes(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Split lists of codes at their commas."""
    codes = tuple(code.strip() for value in values for code in value.split(","))
    if not all(codes):
        raise WrongValue(", ".join(values), "codes with one comma between them", ctx, param)
    return codes


def _optional_codes(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...] | None:
    return _codes(ctx, param, values) if values else None


@command(epilog=_EPILOG)
@click.argument(
    "paths",
    nargs=-1,
    type=click.Path(readable=False, allow_dash=True),
    metavar="[PATH]...",
    shell_complete=offers("models"),
)
@option(
    "--select",
    multiple=True,
    metavar="CODES",
    shell_complete=offers("codes"),
    callback=_optional_codes,
    help="Switch on only these rules: codes or prefixes such as KV1, separated by commas;"
    " repeatable.  [default: all]",
    section="Rules",
)
@option(
    "--ignore",
    multiple=True,
    metavar="CODES",
    shell_complete=offers("codes"),
    callback=_codes,
    help="Switch off these rules.",
    section="Rules",
)
@option(
    "--extend-select",
    multiple=True,
    metavar="CODES",
    shell_complete=offers("codes"),
    callback=_codes,
    help="Switch on these rules, too.",
    section="Rules",
)
@option(
    "--per-file-ignores",
    multiple=True,
    metavar="GLOB:CODES",
    help="Switch off rules in some files; repeatable.",
    section="Rules",
)
@option(
    "--target",
    "targets",
    multiple=True,
    metavar="RUNTIME[@VERSION]",
    shell_complete=offers("targets"),
    help="Add the rules for this runtime; repeatable.",
    section="Rules",
)
@option(
    "--format",
    "output_format",
    type=Word(words(CheckFormat)),
    help="Format of the report: `concise` is one line a finding; `sarif`, `github`, `gitlab`,"
    " `junit` and `rdjson` are for CI.  [default: text]",
    section="Report",
)
@option(
    "-o",
    "--output",
    type=ReportFile(allow_dash=True),
    metavar="FILE",
    help="Write the report to this file, or to a directory under a name such as"
    " `kvtool-check.sarif`.  [default: standard output]",
    section="Report",
)
@option(
    "--fix",
    is_flag=True,
    default=None,
    help="Apply safe fixes in place.",
    section="Fixes",
)
@option(
    "--unsafe-fixes",
    is_flag=True,
    default=None,
    help="Include fixes that change the interface of the model or what it computes.",
    section="Fixes",
)
@option(
    "--diff",
    is_flag=True,
    help="Show what fixes would change, and write nothing.",
    section="Fixes",
)
@option(
    "--baseline",
    metavar="FILE",
    type=click.Path(readable=False),
    help="Do not report the findings in this file.",
    section="Baseline",
)
@option(
    "--write-baseline",
    metavar="FILE",
    type=ReportFile(),
    help="Write all findings to this file, for --baseline.",
    section="Baseline",
)
@option(
    "--prune-baseline",
    is_flag=True,
    help="Remove findings that no longer exist from the baseline.",
    section="Baseline",
)
@option(
    "--fail-on",
    type=Word(words(Severity)),
    help="Exit with 1 if a finding has at least this severity.  [default: error]",
    section="Exit code",
)
@option(
    "--exit-zero",
    is_flag=True,
    default=None,
    help="Exit with 0 even if there are findings.",
    section="Exit code",
)
@option(
    "--statistics",
    is_flag=True,
    default=None,
    help="Count the findings of each rule.",
    section="Report",
)
@option(
    "--config",
    metavar="FILE",
    type=click.Path(readable=False),
    help="Read this configuration file.  [default: the nearest kvtool.toml or pyproject.toml with"
    " [tool.kvtool]]",
    section="Configuration",
)
@option(
    "--isolated",
    is_flag=True,
    help="Read no configuration.",
    section="Configuration",
)
@option(
    "--jobs",
    type=Whole(min=1),
    metavar="N",
    help="Number of worker processes.  [default: 1]",
)
@option(
    "--dask",
    metavar="ADDRESS",
    help="Check the files on a Dask cluster; ADDRESS is that of its scheduler. Needs"
    " onnx-kvtool[dask].",
)
@option(
    "--shard",
    metavar="I/N",
    help="Check part I of N of the files, to share them among machines.",
    section="Input",
)
@option(
    "--cache-dir",
    metavar="DIR",
    type=click.Path(readable=False, file_okay=False),
    help="Store results in this directory, and reuse them for models that have not changed.",
    section="Input",
)
@proof_options("With --fix, exit with 1 and leave the model unchanged")
@dim_option
@timeout_option
@option(
    "-q",
    "--quiet",
    is_flag=True,
    help="Print findings, and nothing about the run.",
    section="Report",
)
@option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Show the status of every file, and do not group similar findings.",
    section="Report",
)
@click.pass_context
def check(context: click.Context, /, quiet: bool, verbose: bool, **options: Any) -> None:
    """Find mistakes in models without running them.

    PATH is a file, a directory, a glob, or `-` for standard input; the default is the current
    directory. In a directory, kvtool checks every *.onnx file that git tracks or that .gitignore
    does not exclude. It does not read weights.

    Findings go to standard output, each with its code, place and remedy. The summary goes to
    standard error. kvtool changes a model only with --fix. You can silence a finding with --ignore,
    in the configuration, with a baseline, or with `kvtool.ignore` in the metadata of a node, graph
    or model.
    """
    _check_source(options["paths"])
    report_place(options["output"], None, "")  # what it is called there depends on settings
    options["write_baseline"] = report_place(
        options["write_baseline"], None, "kvtool-baseline.json"
    )

    from onnx_kvtool.cli.findings import ShownFindings
    from onnx_kvtool.cli.output import shown_progress
    from onnx_kvtool.commands.check import CheckRequest, stream
    from onnx_kvtool.commands.check_settings import resolve

    settings = resolve(CheckRequest(**options))
    name = f"kvtool-check{SUFFIXES[settings.output_format]}"
    options["output"] = report_place(options["output"], None, name)
    request = CheckRequest(**options)
    with ShownFindings(settings, options["output"], context.color, quiet, verbose) as shown:
        # Nothing but this has run in this process, and the display has a thread from its first
        # word on.
        with shown_progress(enabled=not quiet, at_once=False) as progress:
            tally = shown.tally
            stream(request, shown.file, progress, settings=settings, tally=tally, may_copy=True)
        shown.end()
    exit_code = 0 if settings.exit_zero and not tally.failures else tally.exit_code
    shown.close(fails=exit_code > 0)
    assert context.parent is not None
    for path, failure in tally.failures:
        show_failure(path, failure, debug=context.parent.params["debug"])
    context.exit(exit_code)


def _check_source(paths: Sequence[str]) -> None:
    """Refuse a single model that is not there; among several, that is a finding."""
    if len(paths) == 1 and not (os.path.isdir(paths[0]) or glob.has_magic(paths[0])):
        check_source(paths[0], remote=True)
