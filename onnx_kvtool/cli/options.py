"""The arguments and options of a command, made of its request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import update_wrapper
from typing import Any, NamedTuple, TypeVar

import click

from onnx_kvtool.cli.command import KvtoolOption, offers
from onnx_kvtool.cli.types import (
    ReportFile,
    Rows,
    Seconds,
    Size,
    Tolerance,
    Whole,
    Word,
    WrongUsage,
    WrongValue,
)
from onnx_kvtool.commands.options import Declared, Request, words_of
from onnx_kvtool.core.errors import UsageError

_R = TypeVar("_R", bound=Request)

_Values = tuple[str, ...]


def _dims(ctx: click.Context, param: click.Parameter, values: _Values) -> dict[str, int] | None:
    """Gather `NAME=INT` pairs; each name has one value, at least 1."""
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
    """Gather `NAME=N` pairs with commas between them; a name becomes part of that of a file."""
    given = _dims(ctx, param, tuple(pair for value in values for pair in value.split(",")))
    for name in given or ():
        if not name.isidentifier():
            raise WrongValue(name, "a name of letters and digits", ctx, param)
    return given


def _budget(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return a valid budget of verification."""
    from onnx_kvtool.core.machine import Budget

    try:
        Budget.parse(value)
    except UsageError as error:
        raise WrongValue(value or "", "memory, time or both: `1GiB`, `30s`", ctx, param) from error
    return value


def _listed(what: str) -> Callable[[click.Context, click.Parameter, _Values], _Values]:
    """Return what splits values at their commas; each word counts once, in the order given."""

    def split(ctx: click.Context, param: click.Parameter, values: _Values) -> _Values:
        words = tuple(word.strip() for value in values for word in value.split(","))
        if not all(words):
            raise WrongValue(", ".join(values), f"{what} with one comma between them", ctx, param)
        return tuple(dict.fromkeys(words))

    return split


def _optional_codes(ctx: click.Context, param: click.Parameter, values: _Values) -> _Values | None:
    return _listed("codes")(ctx, param, values) if values else None


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


def _parts(ctx: click.Context, param: click.Parameter, values: _Values) -> _Values | None:
    """Split lists of parts at their commas."""
    word = Word(words_of("DiffPart"))
    return tuple(word.convert(p, param, ctx) for v in values for p in v.split(",")) or None


class _Kind(NamedTuple):
    """What the value of an option can be."""

    metavar: str | None = None
    type: Callable[[], click.ParamType[Any]] | None = None
    callback: Callable[..., Any] | None = None
    offers: str = ""


_FLAGS = {"dims": "--dim", "output": "-o --output", "output-format": "--format"}
"""Flags of fields that several commands have, where they are not the names of the fields."""

_KINDS: Mapping[str, _Kind] = {
    "": _Kind(),
    "budget": _Kind("SIZE[,TIME]", callback=_budget),
    "codes": _Kind("CODES", callback=_listed("codes"), offers="codes"),
    "dims": _Kind("NAME=INT", callback=_dims, offers="dims"),
    "directory": _Kind("DIR", lambda: click.Path(readable=False, file_okay=False)),
    "file": _Kind("FILE", lambda: click.Path(readable=False)),
    "model": _Kind(None, lambda: click.Path(allow_dash=True, readable=False), offers="models"),
    "new": _Kind("FILE", ReportFile),
    "operators": _Kind("OP[,OP...]", callback=_listed("operators"), offers="replaceable"),
    "optional codes": _Kind("CODES", callback=_optional_codes, offers="codes"),
    "out": _Kind("OUT", lambda: click.Path(allow_dash=True, readable=False)),
    "phases": _Kind("NAME=N[,NAME=N...]", callback=_phases),
    "pairs": _Kind(callback=_pairs),
    "parts": _Kind("WHAT[,WHAT...]", callback=_parts, offers="parts"),
    "report": _Kind("FILE", lambda: ReportFile(allow_dash=True)),
    "rows": _Kind("N|NAME", Rows),
    "seconds": _Kind("SECONDS", Seconds),
    "size": _Kind("SIZE", Size),
    "tolerance": _Kind("X", Tolerance),
}


def asking(
    request: type[_R],
) -> Callable[[Callable[[click.Context, _R], None]], Callable[..., None]]:
    """Return the decorator that adds what a request asks, and calls a function with a request."""

    def decorate(function: Callable[[click.Context, _R], None]) -> Callable[..., None]:
        @click.pass_context
        def call(context: click.Context, /, **given: Any) -> None:
            function(context, request(**given))

        command: Callable[..., None] = update_wrapper(call, function)
        for said in reversed(request.fields.values()):
            if said.is_argument:
                command = _argument(said)(command)
            elif said.help:
                command = _option(said)(command)
        return command

    return decorate


def _common(said: Declared) -> dict[str, Any]:
    kind = _KINDS[said.kind]
    name = said.offers or kind.offers
    return {
        "type": kind.type and kind.type(),
        "metavar": said.metavar or kind.metavar,
        "callback": kind.callback,
        "shell_complete": offers(name) if name else None,
    }


def _argument(said: Declared) -> Callable[[Any], Any]:
    common = _common(said)
    default = said.name.upper()
    common["metavar"] = common["metavar"] or (f"[{default}]" if said.is_optional else default)
    is_required = not said.is_optional and not common["metavar"].startswith("[")
    count = -1 if said.many else 1
    return click.argument(said.name, nargs=count, required=is_required, **common)


def _option(said: Declared) -> Callable[[Any], Any]:
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
    return click.option(
        *flags, said.name, cls=KvtoolOption, help=said.help, section=said.section, **how
    )
