"""What the value of an option can be, with the house style of messages for what it cannot."""

from __future__ import annotations

import math
import os
from typing import Any

import click

from onnx_kvtool.cli.wrong_usage import WrongValue
from onnx_kvtool.core.words import bytes_of, did_you_mean

__all__ = ["ReportFile", "Rows", "Seconds", "Size", "Tolerance", "Whole", "Word"]


class Word(click.Choice[str]):
    """One of a few words; any other is answered with the nearest of them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word, which is one of the choices."""
        if value in self.choices:
            return str(value)
        *most, last = (f"`{word}`" for word in self.choices)
        expected = f"{', '.join(most)} or {last}"
        raise WrongValue(value, expected, ctx, param, did_you_mean(str(value), self.choices))


class Whole(click.IntRange):
    """An integer with a least value, and maybe a greatest one.

    Args:
        min: The least value.
        max: The greatest value; None where there is none.
        above: What to do instead, for who gives a greater value; None for the help of the command.
    """

    def __init__(self, min: int, max: int | None = None, *, above: str | None = None) -> None:
        super().__init__(min, max)
        self.above = above

    @property
    def spoken(self) -> str:
        """The range, as people say it: `1 to 9`, `1 or more`."""
        return f"{self.min} or more" if self.max is None else f"{self.min} to {self.max}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the integer, which lies in the range."""
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter as error:
            text = str(value)
            is_above = self.max is not None and text.isdecimal() and int(text) > self.max
            help = self.above if is_above else None
            raise WrongValue(text, self.spoken, ctx, param, help) from error


class Rows(click.ParamType[int | str]):
    """A number of rows: an integer of at least 1, or the name of a symbolic dimension."""

    name = "rows"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        """Return the number or the name."""
        text = str(value)
        if text.isascii() and text.isdigit() and int(text) > 0:
            return int(text)
        if text.isidentifier():
            return text
        raise WrongValue(text, "an integer of at least 1, or a name", ctx, param)


class ReportFile(click.Path):
    """A file that gets what is no model; one that is named like a model is never replaced.

    `-o *.onnx` names the first model of a directory, and so does `-o` before the models.
    """

    def __init__(self, *, allow_dash: bool = False) -> None:
        super().__init__(readable=False, allow_dash=allow_dash)

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        """Return the path, which does not end with `.onnx`."""
        path = super().convert(value, param, ctx)
        if os.path.splitext(os.fsdecode(path))[1].lower() == ".onnx":
            what, help = "a file that is no model", "write what is to be written to another file"
            raise WrongValue(os.fsdecode(path), what, ctx, param, help)
        return path


class Tolerance(click.FloatRange):
    """A number that is finite and not negative: within infinity lies every difference."""

    def __init__(self) -> None:
        super().__init__(min=0)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        try:
            number = float(super().convert(value, param, ctx))
        except click.BadParameter:
            number = math.nan
        if not math.isfinite(number):
            raise WrongValue(str(value), "a number of at least 0", ctx, param)
        return number


class Seconds(click.ParamType[float]):
    """A time in seconds, above 0."""

    name = "seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and number > 0):
            raise WrongValue(str(value), "a number of seconds above 0", ctx, param)
        return number


class Size(click.ParamType[str]):
    """A number of bytes above 0, with or without a unit."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text, which `bytes_of` reads."""
        if not bytes_of(str(value)):
            raise WrongValue(str(value), "a size such as `2GiB`", ctx, param)
        return str(value)
