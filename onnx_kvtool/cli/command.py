"""A command whose help reads like a page of a manual, with `--schema` and `--version`."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import click

from onnx_kvtool import __version__
from onnx_kvtool.cli.output import KvtoolContext, write_data, write_epilog, write_sections
from onnx_kvtool.cli.types import Tolerance, Whole, WrongUsage, WrongValue

# `--schema`: the JSON schema of what a command prints with `--format json`.


REPORTS = {
    "bench": "decoding.report:BenchReport",
    "check": "lint.report:CheckReport",
    "diff": "review.report:DiffReport",
    "eval": "evaluation.report:EvalReport",
    "infer": "shapes.inference:InferReport",
    "inspect": "analysis.inspection:InspectReport",
    "lower": "rewrite.report:LowerReport",
    "ops": "commands.ops:OpsReport",
    "print": "commands.print_:Printed",
    "raise": "rewrite.raise_report:RaiseReport",
    "rule": "commands.rule:RuleReport",
    "targets": "commands.targets:TargetsReport",
    "verify": "verification.report:VerifyReport",
}
"""What each command that has `--format json` reports."""

_SAME = {"merge": "check"}
"""Commands whose JSON is that of another, its name included: what is merged can be merged again."""

DESCRIBED = frozenset({*REPORTS, *_SAME})
"""Commands that have a schema."""


def document(command: str) -> dict[str, Any]:
    """Return the schema (draft 2020-12) of the JSON that a command prints."""
    from onnx_kvtool.core.record import DIALECT, schema
    from onnx_kvtool.report.json import SCHEMA_VERSION

    module, name = REPORTS[command].split(":")
    found = schema(getattr(import_module(f"onnx_kvtool.{module}"), name))
    header = {
        "schema_version": {"const": SCHEMA_VERSION},
        "tool": {
            "type": "object",
            "properties": {"name": {"const": "kvtool"}, "version": {"type": "string"}},
            "required": ["name", "version"],
        },
        "command": {"const": command},
    }
    return {
        "$schema": DIALECT,
        "title": f"kvtool {command} --format json",
        **found,
        "properties": {**header, **found["properties"]},
        "required": [*header, *found["required"]],
    }


def text_of(command: str) -> str:
    """Return the schema of a command as text, without a line end."""
    return json.dumps(document(command), indent=2)


def show_schema(command: str) -> None:
    """Write the schema of a command to standard output."""
    write_data(text_of(_SAME.get(command, command)))


# A command whose help reads like a page of a manual, and its options.


_GENERAL = "Options"
HELP_NAMES = ["-h", "--help"]
_FEW = 6  # options, below which sections would only tear them apart


class KvtoolOption(click.Option):
    """An option that stands in a section of the help.

    Args:
        names: As for `click.Option`.
        section: Title of the section.
        attributes: As for `click.Option`.
    """

    def __init__(self, *names: Any, section: str = _GENERAL, **attributes: Any) -> None:
        super().__init__(*names, **attributes)
        self.section = section

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Say a range as people do, instead of `1<=x<=3`."""
        extra = super().get_help_extra(ctx)
        if isinstance(self.type, Whole):
            extra["range"] = self.type.spoken
        elif isinstance(self.type, Tolerance):
            extra["range"] = "0 or more"
        return extra

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Join a default that the text names with the range that click adds."""
        record = super().get_help_record(ctx)
        return None if record is None else (record[0], re.sub(r"\]\s+\[", "; ", record[1]))


class KvtoolCommand(click.Command):
    """A command whose options are listed by section, in the order of their first occurrence.

    Sections are for long lists: a command with few options has a single one.
    """

    context_class = KvtoolContext

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        # Also for a command that is called outside of its group: click keeps the option it makes.
        settings = {"help_option_names": HELP_NAMES, **(attributes.get("context_settings") or {})}
        super().__init__(*arguments, **{**attributes, "context_settings": settings})
        for place, param in enumerate(self.params):
            is_format = param.name == "output_format"
            if is_format and self.name in DESCRIBED:
                self.params.insert(place + 1, _schema_option(getattr(param, "section", _GENERAL)))
                break

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options; those without a section come last."""
        is_short = len(self.params) <= _FEW
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                section = _GENERAL if is_short else getattr(param, "section", _GENERAL)
                sections.setdefault(section, []).append(record)
        general = sections.pop(_GENERAL, [])
        sections["Other options" if sections else _GENERAL] = general
        write_sections(formatter, sections)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write exit codes, examples and what else to see, as wide as they are."""
        write_epilog(formatter, self.epilog)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; more arguments than the command takes are named, with what they may be."""
        ctx.allow_extra_args = True
        try:
            rest = super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # click's parser leaves it out
            raise
        if not ctx.resilient_parsing:
            self._check_paths(ctx)
        if rest and not ctx.resilient_parsing:
            raise WrongUsage(f"unexpected argument `{rest[0]}`", ctx, self._surplus(ctx, rest))
        return rest

    def _surplus(self, ctx: click.Context, rest: list[str]) -> str | None:
        """Return what to do about arguments too many: name an output, or one call for each file.

        A file that is there is a model, as a glob yields them, and never to be replaced.
        """
        models = sum(
            isinstance(p, click.Argument) and isinstance(p.type, click.Path) for p in self.params
        )
        if models and (len(rest) > 1 or os.path.exists(rest[0])):
            if models > 1:
                return f"`{ctx.info_name}` takes {models} models at a time"
            return (
                f"`{ctx.info_name}` takes one model at a time: "
                f'`for model in *.onnx; do {ctx.command_path} "$model"; done`'
            )
        if any(p.metavar == "OUT" for p in self.params):
            return f"name the output with `-o {shlex.quote(rest[0])}`"
        return None

    def _check_paths(self, ctx: click.Context) -> None:
        """Refuse an empty path, such as a variable of the shell that is not set."""
        for param in self.params:
            given = ctx.params.get(param.name or "")
            paths = given if isinstance(given, tuple) else (given,)
            if isinstance(param.type, click.Path) and "" in paths:
                raise WrongValue("", "a path", ctx, param)


def _schema_option(section: str) -> KvtoolOption:
    """Return `--schema`, which needs nothing else to be given."""

    def show(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if not value or ctx.resilient_parsing:
            return

        assert ctx.info_name is not None
        show_schema(ctx.info_name)
        ctx.exit()

    return KvtoolOption(
        ["--schema"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Print the JSON schema of what `--format json` prints, and do nothing else.",
        section=section,
    )


def offers(name: str) -> Callable[[click.Context, click.Parameter, str], Any]:
    """Return the function of `onnx_kvtool.cli.completion` that has this name, imported late."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
        from onnx_kvtool.cli import completion

        return getattr(completion, name)(ctx, param, incomplete)

    return complete


def command(
    name: str | None = None, **attributes: Any
) -> Callable[[Callable[..., Any]], KvtoolCommand]:
    """Return the decorator that makes a `KvtoolCommand`; arguments as for `click.command`."""
    return click.command(name, cls=KvtoolCommand, **attributes)


# `kvtool --version`, and with `--debug` what a report of a bug has to name.


_BASIS = ("onnx", "onnx-ir", "onnxruntime", "onnxscript", "numpy", "ml_dtypes", "click", "rich")


def show_version(context: click.Context, param: click.Parameter, asked: bool) -> None:
    """Print the version on a line of its own and exit, if that was asked for.

    After `--debug`, lines with the versions of Python, the platform and the libraries follow.
    """
    if not asked or context.resilient_parsing:
        return
    write_data(f"kvtool {__version__}")
    if context.params.get("debug"):
        write_data(f"python {platform.python_version()} on {sys.platform} {platform.machine()}")
        for name in _BASIS:
            write_data(f"{name} {_installed(name)}")
    context.exit()


def _installed(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "is not installed"
