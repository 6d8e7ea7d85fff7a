"""`kvtool check`: find mistakes in models."""

from __future__ import annotations

import glob
import os

import click

from onnx_kvtool.cli.command import command
from onnx_kvtool.cli.output import SUFFIXES, report_place, shown_progress
from onnx_kvtool.cli.types import show_failure
from onnx_kvtool.commands.requests import CheckRequest
from onnx_kvtool.model_io.places import check_source

_EPILOG = """\b
Exit codes:
  0  no finding at or above --fail-on
  1  findings; with --diff: a fix applies; with --strict: a fix is not covered
  2  wrong usage or configuration, or the output cannot be written
  3  there is only one model, and it cannot be read
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


@command(CheckRequest, epilog=_EPILOG)
def check(context: click.Context, request: CheckRequest) -> None:
    """Find mistakes in models without running them.

    PATH is a file, a directory, a glob, or `-` for standard input; the default is the current
    directory. In a directory, kvtool checks every *.onnx file that git tracks or that .gitignore
    does not exclude. It does not read weights.

    Findings go to standard output, each with its code, place and remedy. The summary goes to
    standard error. kvtool changes a model only with --fix. You can silence a finding with --ignore,
    in the configuration, with a baseline, or with `kvtool.ignore` in the metadata of a node, graph
    or model.
    """
    if len(request.paths) == 1:  # among several, that one is not there is a finding
        (path,) = request.paths
        if not (os.path.isdir(path) or glob.has_magic(path)):
            check_source(path, remote=True)
    report_place(request.output, None, "")  # what it is called there depends on settings
    baseline = report_place(request.write_baseline, None, "kvtool-baseline.json")

    from onnx_kvtool.cli.findings import ShownFindings
    from onnx_kvtool.commands.check import stream
    from onnx_kvtool.commands.check_settings import resolve

    settings = resolve(request)
    output = report_place(request.output, None, f"kvtool-check{SUFFIXES[settings.output_format]}")
    request = request.replace(output=output, write_baseline=baseline)
    quiet = request.quiet
    with ShownFindings(settings, output, context.color, quiet, request.verbose) as shown:
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
