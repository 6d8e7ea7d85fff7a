"""`kvtool merge`: the reports of the parts of one check, as one."""

from __future__ import annotations

import itertools
from typing import Any, cast

import click

from onnx_kvtool.cli.check import SUFFIXES
from onnx_kvtool.cli.command import command, option
from onnx_kvtool.cli.output import report_place
from onnx_kvtool.cli.types import ReportFile, Word
from onnx_kvtool.core.choices import CheckFormat, Severity, words
from onnx_kvtool.model_io.places import check_source

__all__ = ["merge"]

_EPILOG = """\b
Exit codes:
  0  nothing at or above --fail-on stands in the reports
  1  something does
  2  wrong usage, a part is missing, or the output cannot be written
  3  a report cannot be read
  4  a bug in kvtool

\b
Examples:
  kvtool merge 1.json 2.json
  kvtool merge 1.json 2.json --format sarif -o kvtool.sarif

\b
See also:
  check  looks for what is wrong with models
"""


@command(epilog=_EPILOG)
@click.argument(
    "reports",
    nargs=-1,
    required=True,
    type=click.Path(readable=False),
    metavar="REPORT...",
)
@option(
    "--format",
    "output_format",
    type=Word(words(CheckFormat)),
    help="Form of the result.  [default: that of the reports]",
)
@option(
    "-o",
    "--output",
    type=ReportFile(allow_dash=True),
    metavar="FILE",
    help="Where to write the result, in a directory as `kvtool-check.sarif` and such; standard"
    " output unless given.",
)
@option(
    "--fail-on",
    type=Word(words(Severity)),
    help="Least severity of a finding for which the exit code is 1.  [default: error]",
)
@click.pass_context
def merge(context: click.Context, /, **options: Any) -> None:
    """Merge the reports of the parts of one check into one.

    REPORT is a file that `kvtool check -o FILE` has written as JSON, JSON lines, SARIF or JUnit,
    all in one format. JSON holds all that is known, and becomes any format; the others stay what
    they are. With the result come one summary and one exit code, as from one check of all files.

    JSON reports of `--shard I/N` have to be there for each part: a job that was lost is no success.
    """
    for report in options["reports"]:
        check_source(report, suffix="", what="report")
    report_place(options["output"], None, "")  # what it is called there depends on the reports

    from onnx_kvtool.cli.findings import ShownFindings, Sink
    from onnx_kvtool.commands.check_settings import Settings
    from onnx_kvtool.commands.merge import MergeRequest, parts, resolve_format
    from onnx_kvtool.lint.report import Tally
    from onnx_kvtool.report.findings.table import MERGERS
    from onnx_kvtool.report.findings.text import closing
    from onnx_kvtool.report.text import print_talk

    wanted = resolve_format(MergeRequest(**options))
    name = f"kvtool-check{SUFFIXES[wanted]}"
    options["output"] = report_place(options["output"], None, name)
    request = MergeRequest(**options)
    fail_on: Severity = request.fail_on or "error"
    reports = parts(request)
    first = next(reports)
    if first.kind == "json":
        settings = Settings(fail_on=fail_on, output_format=wanted)
        with ShownFindings(settings, request.output, context.color, False, False) as shown:
            tally = shown.tally
            for part in itertools.chain((first,), reports):
                for file in part.files():
                    tally.add(file)
                    shown.file(file)
            shown.end()
    else:
        tally = Tally(fail_on)
        merger = MERGERS[cast(Any, wanted)](tally)
        with Sink(merger, request.output) as sink:
            for part in itertools.chain((first,), reports):
                sink.write(merger.report(part.data))
            sink.end()
    print_talk(closing(tally, offers_fixes=False), color=context.color)
    context.exit(tally.exit_code)
