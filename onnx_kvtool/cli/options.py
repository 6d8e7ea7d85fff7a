"""Options that several commands share, as decorators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = [
    "data_format_option",
    "dim_option",
    "format_option",
    "model_argument",
    "output_options",
    "verify_options",
]

F = TypeVar("F", bound=Callable[..., Any])


def _dims(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    """Gather `NAME=INT` pairs; each name has one value, at least 1."""
    dims: dict[str, int] = {}
    for value in values:
        name, equals, number = value.rpartition("=")
        if not (name and equals):
            raise click.BadParameter(f"{value!r} is not NAME=INT", ctx, param)
        if not (number.isascii() and number.isdigit() and int(number) > 0):
            message = f"the value of {name!r} is {number!r}, expected a positive integer"
            raise click.BadParameter(message, ctx, param)
        if dims.setdefault(name, int(number)) != int(number):
            raise click.BadParameter(f"{name!r} is both {dims[name]} and {number}", ctx, param)
    return dims


def model_argument(command: F) -> F:
    """Add `MODEL`, a path or `-` for standard input, as `model`."""
    return click.argument("model", type=click.Path(allow_dash=True), metavar="MODEL")(command)


def output_options(command: F) -> F:
    """Add `-o`, `--in-place`, `--external-data` and `--dry-run`."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Do everything but write."),
        click.option(
            "--external-data",
            type=click.Choice(["reference", "link", "copy"]),
            help="What becomes of weights in other files.  [default: refer to them from the same"
            " directory, copy them elsewhere]",
        ),
        click.option("--in-place", is_flag=True, help="Replace the input."),
        click.option(
            "-o",
            "--output",
            type=click.Path(allow_dash=True),
            metavar="OUT",
            help="Where to write; `-` is standard output.",
        ),
    ):
        command = option(command)
    return command


def verify_options(command: F) -> F:
    """Add `--verify`, `--no-verify` and `--verify-steps`."""
    for option in (
        click.option(
            "--verify-steps",
            type=click.IntRange(min=1),
            metavar="N",
            help="Decode steps of each verification run, the caches fed back.  [default: 2]",
        ),
        click.option(
            "--verify/--no-verify",
            default=None,
            help="Whether to run both models and compare.  [default: yes; large models by"
            " copies with smaller weights]",
        ),
    ):
        command = option(command)
    return command


def dim_option(command: F) -> F:
    """Add `--dim` as `dims`, a dict from name to value."""
    return click.option(
        "--dim",
        "dims",
        multiple=True,
        metavar="NAME=INT",
        callback=_dims,
        help="Give a symbolic dimension a value; repeatable.",
    )(command)


def format_option(command: F) -> F:
    """Add `--format` as `output_format`."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Report as text on standard error, or as JSON on standard output.",
    )(command)


def data_format_option(command: F) -> F:
    """Add `--format` as `output_format`, for a command whose text is data as well."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Print text, or JSON; both on standard output.",
    )(command)
