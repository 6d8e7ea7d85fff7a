"""A command whose help reads like a page of a manual, and its options, made of its request."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from functools import partial, update_wrapper
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import click

from onnx_kvtool import __version__
from onnx_kvtool.cli.output import KvtoolContext, write_data, write_epilog, write_sections
from onnx_kvtool.cli.types import (
    BUDGET,
    ROWS,
    SECONDS,
    SIZE,
    TOLERANCE,
    ReportFile,
    Whole,
    Word,
    WrongUsage,
    WrongValue,
)
from onnx_kvtool.commands.options import Declared, Request, words_of

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
"""The report class of each command with `--format json`."""

_SAME = {"merge": "check"}
"""Commands with the JSON of another command, `command` included: merged reports merge again."""

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


_GENERAL = "Options"
HELP_NAMES = ["-h", "--help"]
_FEW = 6  # options; so few need no sections


class KvtoolOption(click.Option):
    """An option in a section of the help.

    Args:
        names: As for `click.Option`.
        section: Title of the section.
        attributes: As for `click.Option`.
    """

    def __init__(self, *names: Any, section: str = _GENERAL, **attributes: Any) -> None:
        super().__init__(*names, **attributes)
        self.section = section

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Write a range in words instead of `1<=x<=3`."""
        extra = super().get_help_extra(ctx)
        if spoken := getattr(self.type, "spoken", ""):
            extra["range"] = spoken
        return extra

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Join the default in the text with the range that click adds."""
        record = super().get_help_record(ctx)
        return None if record is None else (record[0], re.sub(r"\]\s+\[", "; ", record[1]))


class Page(click.Command):
    """A command or group with an epilog line by line, and with errors that know where they are."""

    context_class = KvtoolContext

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx  # click's parser omits it
            raise

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write exit codes, examples and what else to see, as wide as they are."""
        write_epilog(formatter, self.epilog)


class KvtoolCommand(Page):
    """A command whose options are listed by section, in the order of their first occurrence.

    Sections are for long lists: a command with few options has a single one.
    """

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        # Also for a command that is called without its group.
        attributes["context_settings"] = {"help_option_names": HELP_NAMES}
        super().__init__(*arguments, **attributes)
        for place, param in enumerate(self.params, 1):
            if param.name == "output_format" and self.name in DESCRIBED:
                self.params.insert(place, _schema_option(getattr(param, "section", _GENERAL)))
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

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; refuse surplus ones with a remedy."""
        ctx.allow_extra_args = True
        rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:
            self._check_paths(ctx)
        if rest and not ctx.resilient_parsing:
            raise WrongUsage(f"unexpected argument `{rest[0]}`", ctx, self._surplus(ctx, rest))
        return rest

    def _surplus(self, ctx: click.Context, rest: list[str]) -> str | None:
        """Return what to do about surplus arguments: name an output, or use one call for each file.

        An existing file is a model, as from a glob, and not an output to replace.
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
    """Return the option `--schema`, which needs no argument."""

    def show(ctx: click.Context, param: click.Parameter, value: bool) -> None:
        if not value or ctx.resilient_parsing:
            return

        assert ctx.info_name is not None
        write_data(text_of(_SAME.get(ctx.info_name, ctx.info_name)))
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


_BASIS = ("onnx", "onnx-ir", "onnxruntime", "onnxscript", "numpy", "ml_dtypes", "click", "rich")


def show_version(context: click.Context, param: click.Parameter, asked: bool) -> None:
    """Print the version in one line and exit, for `--version`.

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


_R = TypeVar("_R", bound=Request)

_Values = tuple[str, ...]


def _dims(ctx: click.Context, param: click.Parameter, values: _Values) -> dict[str, int] | None:
    """Return `NAME=INT` pairs as a mapping; each name has one value, at least 1."""
    dims: dict[str, int] = {}
    for value in values:
        name, equals, number = value.rpartition("=")
        if not (name and equals):
            raise WrongValue(value, "`NAME=INT`", ctx, param)
        if not (number.isascii() and number.isdigit() and int(number) > 0):
            raise WrongValue(value, "`NAME=INT` with an integer of at least 1", ctx, param)
        if dims.setdefault(name, int(number)) != int(number):
            raise WrongUsage(
                f"`{param.opts[0]}` gives `{name}` both {dims[name]} and {number}", ctx
            )
    return dims or None


def _phases(ctx: click.Context, param: click.Parameter, values: _Values) -> dict[str, int] | None:
    """Return comma-separated `NAME=N` pairs as a mapping; names become parts of file names."""
    given = _dims(ctx, param, tuple(pair for value in values for pair in value.split(",")))
    for name in given or ():
        if not name.isidentifier():
            raise WrongValue(name, "a name of letters and digits", ctx, param)
    return given


def _listed(what: str) -> Callable[[click.Context, click.Parameter, _Values], _Values]:
    """Return a callback that splits values at commas; each word counts once, in order."""

    def split(ctx: click.Context, param: click.Parameter, values: _Values) -> _Values:
        words = tuple(word.strip() for value in values for word in value.split(","))
        if not all(words):
            raise WrongValue(", ".join(values), f"{what} with one comma between them", ctx, param)
        return tuple(dict.fromkeys(words))

    return split


def _pairs(
    ctx: click.Context, param: click.Parameter, values: _Values
) -> tuple[tuple[str, str], ...]:
    """Split each value at its first equals sign."""
    pairs = []
    for value in values:
        name, equals, text = value.partition("=")
        if not (name and equals):
            raise WrongValue(value, f"`{param.metavar}`", ctx, param)
        pairs.append((name, text))
    return tuple(pairs)


def _parts(ctx: click.Context, param: click.Parameter, values: _Values) -> _Values:
    """Split lists of parts at their commas."""
    word = Word(words_of("DiffPart"))
    return tuple(word.convert(p, param, ctx) for v in values for p in v.split(","))


class _Kind(NamedTuple):
    """What the value of an option can be."""

    metavar: str | None = None
    type: click.ParamType[Any] | None = None
    callback: Callable[..., Any] | None = None
    offers: str = ""


_FLAGS = {"dims": "--dim", "output": "-o --output", "output-format": "--format"}
"""Flags of common fields whose names differ from the flags."""

_KINDS: Mapping[str, _Kind] = {
    "": _Kind(),
    "budget": _Kind("SIZE[,TIME]", BUDGET),
    "codes": _Kind("CODES", callback=_listed("codes"), offers="codes"),
    "dims": _Kind("NAME=INT", callback=_dims, offers="dims"),
    "directory": _Kind("DIR", click.Path(readable=False, file_okay=False)),
    "file": _Kind("FILE", click.Path(readable=False)),
    "model": _Kind(None, click.Path(allow_dash=True, readable=False), offers="models"),
    "new": _Kind("FILE", ReportFile()),
    "operators": _Kind("OP[,OP...]", callback=_listed("operators"), offers="replaceable"),
    "out": _Kind("OUT", click.Path(allow_dash=True, readable=False)),
    "phases": _Kind("NAME=N[,NAME=N...]", callback=_phases),
    "pairs": _Kind(callback=_pairs),
    "parts": _Kind("WHAT[,WHAT...]", callback=_parts, offers="parts"),
    "report": _Kind("FILE", ReportFile(allow_dash=True)),
    "rows": _Kind("N|NAME", ROWS),
    "seconds": _Kind("SECONDS", SECONDS),
    "size": _Kind("SIZE", SIZE),
    "tolerance": _Kind("X", TOLERANCE),
}


def command(
    request: type[_R],
    name: str | None = None,
    cls: type[KvtoolCommand] = KvtoolCommand,
    **attributes: Any,
) -> Callable[[Callable[[click.Context, _R], None]], KvtoolCommand]:
    """Return the decorator that makes a command with the fields of a request, and passes one."""

    def decorate(function: Callable[[click.Context, _R], None]) -> KvtoolCommand:
        @click.pass_context
        def call(context: click.Context, /, **given: Any) -> None:
            # The value of an option that may come several times is () where it does not come.
            given = {n: request.fields[n].default if v == () else v for n, v in given.items()}
            function(context, request(**given))

        params = [
            _argument(said) if said.is_argument else _option(said)
            for said in request.fields.values()
            if said.is_argument or said.help
        ]
        made = click.command(name, cls=cls, params=params, **attributes)
        return made(update_wrapper(call, function))

    return decorate


def _common(said: Declared) -> dict[str, Any]:
    kind = _KINDS[said.kind]
    name = said.offers or kind.offers
    return {
        "type": kind.type,
        "metavar": said.metavar or kind.metavar,
        "callback": kind.callback,
        "shell_complete": partial(_complete, name) if name else None,
    }


def _complete(name: str, ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
    from onnx_kvtool.cli import completion

    return completion.complete(name, ctx, incomplete)


def _argument(said: Declared) -> click.Argument:
    common = _common(said)
    default = said.name.upper()
    common["metavar"] = common["metavar"] or (f"[{default}]" if said.is_optional else default)
    is_required = not said.is_optional and not common["metavar"].startswith("[")
    count = -1 if said.many else 1
    return click.Argument([said.name], nargs=count, required=is_required, **common)


def _option(said: Declared) -> KvtoolOption:
    how = _common(said)
    if words := words_of(said.type):
        how["type"] = Word(words)
    elif said.least is not None:
        how["type"] = Whole(said.least, said.most, above=said.above)
        how["metavar"] = "N"
    is_flag, default = said.type.startswith("bool"), said.default
    if is_flag:
        how |= {"is_flag": True, "default": default}
    elif said.type.startswith(("Mapping", "Sequence")):
        how["multiple"] = True
    elif default is not None:
        how |= {"default": default, "show_default": True}
    name = said.name.replace("_", "-")
    flags = (said.flags or _FLAGS.get(name) or f"--{name}").split()
    return KvtoolOption([*flags, said.name], help=said.help, section=said.section, **how)
