"""What the pages of the commands take from the command line itself.

The pages under docs/commands are written by hand. On the site, the line that names `--help` gives
way to what click's objects say: usage, arguments, options, exit codes and examples of a command,
and on the index the commands and the options that they share.
"""

from __future__ import annotations

import inspect
import re

import click

from onnx_kvtool.cli.app import COMMANDS, app
from tests.pages.markdown import head

__all__ = ["pages"]

_PLACE = re.compile(r"^`kvtool (?:\w+ )?--help` .*; the site shows them here\.\n", re.MULTILINE)
"""The line of a page that gives way to the reference."""


def pages() -> dict[str, str]:
    """Return each page as it has to be, by the name of its file."""
    texts = {"index.md": _index(), **{f"{name}.md": _reference(name) for name in COMMANDS}}
    return {name: _filled(name, text) for name, text in texts.items()}


def _filled(name: str, text: str) -> str:
    page, count = _PLACE.subn(lambda _: f"{text}\n", head(f"commands/{name}"))
    if count != 1:
        raise ValueError(f"docs/commands/{name} has {count} lines that name `--help`, expected 1")
    return page


def _reference(name: str) -> str:
    """Return usage, arguments, options, exit codes and examples of a command."""
    command = COMMANDS[name]
    usage = command.collect_usage_pieces(_context(command))
    return "\n".join(
        (
            "## Usage\n",
            f"```text\nkvtool {name} {' '.join(usage)}\n```\n",
            f"{_paragraphs(command.help)}\n",
            "## Options\n",
            f"{_options(command)}\n",
            f"Before the command stand {_flags_of_all()}: see [commands](index.md#options).\n",
            "## Exit codes\n",
            f"{_exit_codes(command)}\n",
            "## Examples\n",
            f"```text\n{_block(command, 'Examples')}\n```\n",
        )
    )


def _index() -> str:
    """Return the table of the commands, their common options and exit codes."""
    return "\n".join(
        (
            f"{_commands()}\n",
            "## Options\n",
            "These stand before the command, as in `kvtool --debug lower decoder.onnx`.\n",
            f"{_options(app)}\n",
            "## Exit codes\n",
            f"{_exit_codes(app)}\n",
        )
    )


def _commands() -> str:
    """Return a table of the commands, in the order and under the purposes of the help."""
    rows = ["| to | command | |", "| --- | --- | --- |"]
    for purpose, names in app.purposes.items():
        for name in names:
            link = f"[{name}]({name}.md)" if name in COMMANDS else name
            text = app.commands[name].get_short_help_str(limit=200)
            rows.append(f"| {purpose[0].lower()}{purpose[1:]} | {link} | {_cell(text)} |")
    return "\n".join(rows)


def _context(command: click.Command) -> click.Context:
    """Return a context as the command line makes it: the options for help come from its top."""
    return click.Context(command, parent=click.Context(app, **app.context_settings))


def _flags_of_all() -> str:
    flags = [f"`{param.opts[0]}`" for param in app.params if isinstance(param, click.Option)]
    return f"{', '.join(flags[:-1])} and {flags[-1]}"


def _options(command: click.Command) -> str:
    """Return a table of the options: how each is written, its default, what it does."""
    rows = ["| option | default | |", "| --- | --- | --- |"]
    params = command.get_params(_context(command))
    rows += [_row(param) for param in params if isinstance(param, click.Option)]
    return "\n".join(rows)


def _row(option: click.Option) -> str:
    text, default = option.help or "", "-"
    if found := re.fullmatch(r"(.*?)\s*\[default: (.*)\]", text, re.DOTALL):
        text, default = found.groups()
    elif option.show_default:
        default = str(option.default)
    if isinstance(option.type, click.Choice) and default in option.type.choices:
        default = f"`{default}`"
    if span := _range(option.type):
        text = f"{text} {span}"
    return f"| {_written(option)} | {_cell(default)} | {_cell(text)} |"


def _written(option: click.Option) -> str:
    """Return an option as it is typed: `-o`, `--output OUT`; `--via auto`, `scatternd`."""
    flags = [*option.opts, *option.secondary_opts]
    if isinstance(option.type, click.Choice):
        first, *others = option.type.choices
        return ", ".join(f"`{word}`" for word in (*flags[:-1], f"{flags[-1]} {first}", *others))
    if option.metavar and not option.is_flag:
        flags[-1] += f" {option.metavar}"
    return ", ".join(f"`{flag}`" for flag in flags)


def _range(kind: object) -> str | None:
    if not isinstance(kind, click.IntRange):
        return None
    return f"At least {kind.min}." if kind.max is None else f"{kind.min} to {kind.max}."


def _exit_codes(command: click.Command) -> str:
    lines = re.findall(r"^ *(\d)  (.*)$", _block(command, "Exit codes"), re.MULTILINE)
    rows = [f"| {code} | {_cell(text)} |" for code, text in lines]
    return "\n".join(["| exit code | |", "| --- | --- |", *rows])


def _block(command: click.Command, title: str) -> str:
    """Return the lines of a block of the epilog, without their indent."""
    blocks = (command.epilog or "").split("\b\n")
    (block,) = (block for block in blocks if block.startswith(f"{title}:\n"))
    return re.sub(r"^  ", "", block.partition("\n")[2].rstrip(), flags=re.MULTILINE)


def _paragraphs(text: str | None) -> str:
    """Return the help of a command, with its options as code."""
    return "\n\n".join(map(_code, inspect.cleandoc(text or "").split("\n\n")))


def _cell(text: str) -> str:
    return _code(" ".join(text.split())).replace("|", r"\|")


def _code(text: str) -> str:
    """Put flags, globs and environment variables that are not code yet into backticks."""
    word = r"(?<![\w`-])(--?[a-z][a-z-]*|\*\.onnx|(?:NO|FORCE)_COLOR|\[tool\.kvtool\])(?![\w`])"
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(word, r"`\1`", p) for p in parts)
