"""`kvtool ops`: show what kvtool knows of an operator."""

from __future__ import annotations

import click

from onnx_kvtool.cli.command import command, offers
from onnx_kvtool.cli.options import data_format_option
from onnx_kvtool.cli.output import write_json
from onnx_kvtool.core.choices import ReportFormat

__all__ = ["ops"]

_EPILOG = """\b
Exit codes:
  0  done
  2  wrong usage, such as an unknown operator
  4  a bug in kvtool

\b
Examples:
  kvtool ops                                   a line for each operator
  kvtool ops TensorScatter
  kvtool ops Attention --format json

\b
See also:
  eval --op  runs one operator
  rule       explains a rule that looks at it
"""


@command(epilog=_EPILOG)
@click.argument("op", required=False, metavar="[OP]", shell_complete=offers("operators"))
@data_format_option
@click.pass_context
def ops(context: click.Context, /, op: str | None, output_format: ReportFormat) -> None:
    """Show what kvtool knows of the operator OP of the default domain.

    Its versions with their inputs, outputs and attributes; the kernels of the reference runtime;
    the rules that lower, upgrade and raise it; the rules of `kvtool check` that look at it; and the
    limits that releases of runtimes have with it. Without OP, a line for each operator of which
    kvtool has something of its own. A `-` stands for nothing. No model is read.
    """
    from onnx_kvtool.commands.ops import OpsRequest, run

    report = run(OpsRequest(op))
    if output_format == "json":
        write_json("ops", report)
    else:
        from onnx_kvtool.report.ops_text import blocks
        from onnx_kvtool.report.text import print_blocks

        print_blocks(blocks(report, in_full=op is not None), color=context.color)
