"""`kvtool targets`: list the releases of runtimes that `lower --target` knows."""

from __future__ import annotations

import click

from onnx_kvtool.cli.command import command, offers, option
from onnx_kvtool.cli.output import write_json
from onnx_kvtool.cli.types import Word
from onnx_kvtool.core.choices import ReportFormat, words

__all__ = ["targets"]

_EPILOG = """\b
Exit codes:
  0  done
  2  wrong usage
  4  a bug in kvtool

\b
Examples:
  kvtool targets                    a line for each release
  kvtool targets tensorrt           those of a runtime, with limits in words
  kvtool targets onnxruntime@1.17   one release
  kvtool targets --format json      with notes and sources

\b
See also:
  lower --target  lowers a model for a release
  check --target  finds what a release does not load
"""


@command(epilog=_EPILOG)
@click.argument(
    "name", required=False, metavar="[RUNTIME[@VERSION]]", shell_complete=offers("targets")
)
@option(
    "--format",
    "output_format",
    type=Word(words(ReportFormat)),
    default="text",
    show_default=True,
    help="Print a table, or JSON; both on standard output.",
)
@click.pass_context
def targets(context: click.Context, /, name: str | None, output_format: ReportFormat) -> None:
    """List the releases of runtimes that `kvtool lower --target` knows.

    Each with the highest opset and IR version that it loads, and the number of its limits: what it
    lacks, refuses or computes wrongly within them. With RUNTIME, or one of its releases, the limits
    are told in words. A `-` stands for what is not known.
    """
    from onnx_kvtool.commands.targets import TargetsRequest, run

    report = run(TargetsRequest(name))
    if output_format == "json":
        write_json("targets", report)
    else:
        from onnx_kvtool.report.targets_text import blocks
        from onnx_kvtool.report.text import print_blocks

        shown = blocks(report.targets, in_full=name is not None)
        print_blocks(shown, color=context.color)
