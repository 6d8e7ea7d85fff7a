"""Arguments and options that several commands share, as decorators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from onnx_kvtool.cli.command import offers, option
from onnx_kvtool.cli.types import Seconds, Whole, Word, WrongUsage, WrongValue
from onnx_kvtool.core.choices import ContribChoice, ExternalData, ReportFormat, words
from onnx_kvtool.core.errors import UsageError

__all__ = [
    "budget_option",
    "contrib_option",
    "data_format_option",
    "dim_option",
    "format_option",
    "model_argument",
    "number_option",
    "output_options",
    "proof_options",
    "seed_option",
    "static_option",
    "timeout_option",
    "verify_options",
]

F = TypeVar("F", bound=Callable[..., Any])


def _dims(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    """Gather `NAME=INT` pairs; each name has one value, at least 1."""
    dims: dict[str, int] = {}
    for value in values:
        name, equals, number = value.rpartition("=")
        if not (name and equals):
            raise WrongValue(value, "`NAME=INT`", ctx, param)
        if not (number.isascii() and number.isdigit() and int(number) > 0):
            raise WrongValue(value, "`NAME=INT` with an integer of at least 1", ctx, param)
        if dims.setdefault(name, int(number)) != int(number):
            raise WrongUsage(f"`--dim` gives `{name}` both {dims[name]} and {number}", ctx)
    return dims


def contrib_option(
    section: str, more: str = "", default: ContribChoice | None = None
) -> Callable[[F], F]:
    """Return a decorator that adds `--contrib`.

    Args:
        section: The section of `--help`.
        more: A second sentence for this command, with a leading space.
        default: The choice if the option is omitted; None if the command decides.
    """
    text = "Replace operators of onnxruntime (com.microsoft) by operators of ONNX, or keep them."
    return option(
        "--contrib",
        type=Word(words(ContribChoice)),
        default=default,
        show_default=default is not None,
        help=f"{text}{more}",
        section=section,
    )


def model_argument(command: F) -> F:
    """Add `MODEL`, a path or `-` for standard input, as `model`."""
    return click.argument(
        "model",
        type=click.Path(allow_dash=True, readable=False),
        metavar="MODEL",
        shell_complete=offers("models"),
    )(command)


def number_option(
    name: str, help: str, section: str, *, least: int = 1, default: int | None = None
) -> Callable[[F], F]:
    """Return a decorator that adds an option with a number, `N` in the help.

    Args:
        name: The flag.
        help: The help text; it names the default itself if that is no number.
        section: The section of `--help`.
        least: The smallest valid number.
        default: The number if the option is omitted; None if the command decides.
    """
    return option(
        name,
        type=Whole(min=least),
        default=default,
        show_default=default is not None,
        metavar="N",
        help=help,
        section=section,
    )


def seed_option(help: str, section: str = "Input") -> Callable[[F], F]:
    """Return a decorator that adds `--seed`, default 0."""
    return number_option("--seed", help, section, least=0, default=0)


def output_options(command: F) -> F:
    """Add `-o`, `--in-place`, `--external-data` and `--dry-run`."""
    for decorate in (
        option(
            "--dry-run", is_flag=True, help="Run everything, but write no file.", section="Output"
        ),
        option(
            "--external-data",
            type=Word(words(ExternalData)),
            help="How the result gets weights that are stored in other files.  [default: reference"
            " in the same directory, copy in another]",
            section="Output",
        ),
        option("--in-place", is_flag=True, help="Replace the input.", section="Output"),
        option(
            "-o",
            "--output",
            type=click.Path(allow_dash=True, readable=False),
            metavar="OUT",
            help="Write to this file; to a directory under the default name; or to standard output"
            " with `-`.",
            section="Output",
        ),
    ):
        command = decorate(command)
    return command


def _budget(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return a valid budget of verification."""
    from onnx_kvtool.core.machine import Budget

    try:
        Budget.parse(value)
    except UsageError as error:
        raise WrongValue(value or "", "memory, time or both: `1GiB`, `30s`", ctx, param) from error
    return value


def budget_option(command: F) -> F:
    """Add `--verify-budget`."""
    return option(
        "--verify-budget",
        metavar="SIZE[,TIME]",
        callback=_budget,
        help="Approximate memory and time for verification: `1GiB`, `30s` or `1GiB,30s`. kvtool"
        " compares models that need more by reduced copies.  [default: 256MiB,5s]",
        section="Verification",
    )(command)


def proof_options(fails: str) -> Callable[[F], F]:
    """Return a decorator that adds `--thorough`, `--strict` and `--verify-budget`.

    Args:
        fails: What `--strict` does if the proof did not cover something.
    """

    def add(command: F) -> F:
        for decorate in (
            budget_option,
            option(
                "--strict",
                is_flag=True,
                help=f"{fails} if the proof did not cover something.",
                section="Verification",
            ),
            option(
                "--thorough",
                is_flag=True,
                help="Test the proof at every rewritten place and in all cases, not a sample.",
                section="Verification",
            ),
        ):
            command = decorate(command)
        return command

    return add


def verify_options(command: F) -> F:
    """Add `--verify`, `--no-verify`, `--verify-steps` and those of every proof."""
    for decorate in (
        proof_options("Exit with 1 and write nothing"),
        number_option(
            "--verify-steps",
            "Decode steps of each verification run, with caches fed back.  [default: 2]",
            "Verification",
        ),
        option(
            "--verify/--no-verify",
            default=None,
            help="Run both models and compare them, or not. --verify makes this mandatory and runs"
            " the full models if they fit in memory.  [default: compare within the budget]",
            section="Verification",
        ),
    ):
        command = decorate(command)
    return command


def dim_option(command: F) -> F:
    """Add `--dim` as `dims`, a dict from name to value."""
    return option(
        "--dim",
        "dims",
        multiple=True,
        metavar="NAME=INT",
        callback=_dims,
        shell_complete=offers("dims"),
        help="Give a symbolic dimension a value; repeatable.",
        section="Input",
    )(command)


def timeout_option(command: F) -> F:
    """Add `--timeout`, for a command that reads models at URLs."""
    return option(
        "--timeout",
        type=Seconds(),
        metavar="SECONDS",
        help="Time limit for each request to a URL.  [default: 300]",
        section="Input",
    )(command)


def static_option(command: F) -> F:
    """Add `--static`."""
    return option(
        "--static",
        is_flag=True,
        help="Fold constants that follow from sizes. Refuse a result with a symbolic dimension or a"
        " Shape node.",
        section="How",
    )(command)


def format_option(command: F) -> F:
    """Add `--format` as `output_format`."""
    return _format("Report as text on standard error, or as JSON on standard output.")(command)


def data_format_option(command: F) -> F:
    """Add `--format` as `output_format`, for a command whose text is data as well."""
    return _format("Print text or JSON to standard output.")(command)


def _format(help: str) -> Callable[[F], F]:
    return option(
        "--format",
        "output_format",
        type=Word(words(ReportFormat)),
        default="text",
        show_default=True,
        help=help,
        section="Output",
    )
