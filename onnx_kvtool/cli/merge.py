"""`kvtool merge`: merge the reports of the parts of one check."""

from __future__ import annotations

import itertools
from typing import Any, cast

import click

from onnx_kvtool.cli.command import command
from onnx_kvtool.cli.output import SUFFIXES, report_place
from onnx_kvtool.commands.requests import MergeRequest
from onnx_kvtool.core.choices import Severity
from onnx_kvtool.model_io.places import check_source

_EPILOG = """\b
Exit codes:
  0  no finding at or above --fail-on
  1  findings at or above --fail-on
  2  wrong usage, a part is missing, or the output cannot be written
  3  a report cannot be read
  4  a bug in kvtool

\b
Examples:
  kvtool merge 1.json 2.json
  kvtool merge 1.json 2.json --format sarif -o kvtool.sarif

\b
See also:
  check  find mistakes in models
"""


@command(MergeRequest, epilog=_EPILOG)
def merge(context: click.Context, request: MergeRequest) -> None:
    """Merge the reports of a check that ran in parts.

    REPORT is a file that `kvtool check -o FILE` wrote as JSON, JSON lines, SARIF or JUnit. All
    reports must have the same format. kvtool can convert JSON to any format, and the others to
    none. The summary and the exit code are those of one check of all files.

    If the reports are JSON and come from `--shard I/N`, kvtool needs one for each of the N parts.
    A missing part is an error, because its job may have failed.
    """
    for report in request.reports:
        check_source(report, suffix="", what="report")
    report_place(request.output, None, "")  # what it is called there depends on the reports

    from onnx_kvtool.cli.findings import ShownFindings, Sink
    from onnx_kvtool.commands.check_settings import Settings
    from onnx_kvtool.commands.merge import parts, resolve_format
    from onnx_kvtool.lint.report import Tally
    from onnx_kvtool.report.findings.by_format import MERGERS
    from onnx_kvtool.report.findings.writer import closing
    from onnx_kvtool.report.text import print_talk

    wanted = resolve_format(request)
    name = f"kvtool-check{SUFFIXES[wanted]}"
    request = request.replace(output=report_place(request.output, None, name))
    fail_on: Severity = request.fail_on or "error"
    reports = parts(request)
    first = next(reports)
    every = itertools.chain((first,), reports)
    if first.kind == "json":
        settings = Settings(fail_on=fail_on, output_format=wanted)
        with ShownFindings(settings, request.output, context.color, False, False) as shown:
            tally = shown.tally
            for part in every:
                for file in part.files():
                    tally.add(file)
                    shown.file(file)
            shown.end()
    else:
        tally = Tally(fail_on)
        merger = MERGERS[cast(Any, wanted)](tally)
        with Sink(merger, request.output) as sink:
            for part in every:
                sink.write(merger.report(part.data))
            sink.end()
    print_talk(closing(tally, offers_fixes=False), color=context.color)
    context.exit(tally.exit_code)
