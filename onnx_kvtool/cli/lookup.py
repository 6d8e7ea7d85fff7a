"""`kvtool ops`, `kvtool rule`, `kvtool targets` and `kvtool help`."""

from __future__ import annotations

import click

from onnx_kvtool.cli.command import KvtoolCommand, command
from onnx_kvtool.cli.output import show, write_data
from onnx_kvtool.commands.requests import OpsRequest, RuleRequest, TargetsRequest

# `kvtool ops`: show what kvtool knows of an operator.


_OPS_EPILOG = """\b
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
  eval --op  run one operator
  rule       explain a rule of `kvtool check`
"""


@command(OpsRequest, epilog=_OPS_EPILOG)
def ops(context: click.Context, request: OpsRequest) -> None:
    """Show what kvtool knows about the operator OP of the default domain.

    kvtool shows its versions with their inputs, outputs and attributes; the kernels of the
    reference runtime; the rules that lower, upgrade and raise it; the rules of `kvtool check` for
    it; and the limits of runtimes. If OP is omitted, kvtool prints a line for each operator that
    it has a rule or kernel for. A `-` means none. kvtool reads no model.
    """
    from onnx_kvtool.commands.ops import run

    show(context, run(request), request.output_format, in_full=request.op is not None)


# `kvtool rule`: explain what `kvtool check` looks for.


_RULE_EPILOG = """\b
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
  check  find what the rules describe
"""


@command(RuleRequest, epilog=_RULE_EPILOG, short_help="Explain a rule of `kvtool check`.")
def rule(context: click.Context, request: RuleRequest) -> None:
    """Explain the rule CODE of `kvtool check`: what it finds, and why that is bad.

    CODE is the code of a rule, such as KV001 or kv001, or its name, such as axis-is-batch. --all
    prints one line for each rule as text: code, name, severity and summary.
    """
    from onnx_kvtool.commands.rule import run
    from onnx_kvtool.lint.rule import plain

    report = run(request)
    if request.output_format == "json":
        show(context, report, "json")
    elif request.output_format == "markdown":
        write_data("\n\n".join(page.documentation for page in report.rules))
    elif request.all_rules:
        width = max(len(one.name) for one in report.rules)
        for one in report.rules:
            write_data(f"{one.code}  {one.name.ljust(width)}  {one.severity:<7}  {one.summary}")
    else:
        write_data(plain(report.rules[0].documentation))


# `kvtool targets`: list the releases of runtimes that `lower --target` knows.


_TARGETS_EPILOG = """\b
Exit codes:
  0  done
  2  wrong usage
  4  a bug in kvtool

\b
Examples:
  kvtool targets                    a line for each release
  kvtool targets tensorrt           releases of a runtime, with their limits
  kvtool targets onnxruntime@1.17   one release
  kvtool targets --format json      with notes and sources

\b
See also:
  lower --target  lower a model for a release
  check --target  find what a release does not load
"""


@command(TargetsRequest, epilog=_TARGETS_EPILOG)
def targets(context: click.Context, request: TargetsRequest) -> None:
    """List the releases of runtimes that `kvtool lower --target` knows.

    The list shows the highest opset and IR version that each release loads, and how many limits it
    has. A limit is an operator or form that the release does not support, refuses or computes
    wrongly. With RUNTIME or a release, kvtool describes the limits. A `-` means unknown.
    """
    from onnx_kvtool.commands.targets import run

    show(context, run(request), request.output_format, in_full=request.name is not None)


# `kvtool help`: the help of a command, as `kvtool COMMAND --help` prints it.


_HELP_EPILOG = """\b
Examples:
  kvtool help
  kvtool help lower
"""


def _commands(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    parent = ctx.parent
    assert parent is not None and isinstance(parent.command, click.Group)
    names = parent.command.list_commands(parent)
    return [name for name in names if name.startswith(incomplete)]


@click.command(
    "help", cls=KvtoolCommand, epilog=_HELP_EPILOG, short_help="Show the help of a command."
)
@click.argument("name", required=False, metavar="[COMMAND]", shell_complete=_commands)
@click.pass_context
def help_(context: click.Context, /, name: str | None) -> None:
    """Show the help of COMMAND, or of kvtool itself."""
    parent = context.parent
    assert parent is not None and isinstance(parent.command, click.Group)
    if name is None:
        write_data(parent.get_help())
        return
    _, found, _ = parent.command.resolve_command(parent, [name])
    if found is not None:
        write_data(found.get_help(found.make_context(name, [], parent, resilient_parsing=True)))
