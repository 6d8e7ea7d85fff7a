"""Declarations of options. The command line, the functions and their documents follow from them.

A request is a class. Each field is an argument of the command line, an option, or a keyword of the
Python function; `option` declares both of the latter. Every `--help` reads this file and the
requests, which import the standard library alone.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, get_args

from onnx_kvtool.core import choices
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.words import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Any:
        """Do nothing: type checkers alone read it."""
        return lambda cls: cls


_R = TypeVar("_R", bound="Request")


@dataclass(eq=False, repr=False)
class Declared:
    """The declaration of a field.

    Attributes:
        help: Text in `--help`; "" for a keyword of the function alone.
        section: Section of `--help`.
        default: The default; if it is not given, an option is off, empty or None, as its type says,
            and an argument of the function has to be given.
        python: Text in the docstring of the function; "" for `help` in terms of keywords.
        is_public: Whether the function takes it.
        is_argument: Whether it is an argument of the command line.
        is_optional: Whether an argument may be omitted; it is None then.
        kw_only: Whether the function takes it by name alone.
        flags: The flags; "" for those that follow from the name.
        metavar: Name of the value in `--help`; "" for that of the kind.
        kind: Kind of the value, as in `onnx_kvtool.cli.command`; "" if the type decides.
        offers: Function of `onnx_kvtool.cli.completion`.
        many: Whether an argument takes any number of values.
        least: The lowest number; None for no limit.
        most: The highest number; None for no limit.
        above: What to do instead of giving a higher number.
        place: The order in `--help`: lower first, then as declared; None for that of the class.
        name: The name of the field.
        type: The type of the field, as text.
    """

    help: str = ""
    section: str = "Options"
    default: Any = ...
    python: str = ""
    is_public: bool = True
    is_argument: bool = False
    is_optional: bool = False
    kw_only: bool = True
    flags: str = ""
    metavar: str = ""
    kind: str = ""
    offers: str = ""
    many: bool = False
    least: int | None = None
    most: int | None = None
    above: str | None = None
    place: int | None = None
    name: str = ""
    type: str = ""

    @property
    def spoken(self) -> str:
        """The text in the docstring of the function, with flags between backticks."""
        text = re.sub(r"(?<![\w`-])(--[a-z-]+)", r"`\1`", self.help)
        text = re.sub(r"\s+\[default: (.*)\]", r" Default: \1.", text)
        if self.least is not None:
            text += f" At least {self.least}."
        return self.python or re.sub(r"; repeatable| Repeatable\.", "", text)


def option(help: str, section: str = "Options", **how: Any) -> Any:
    """Declare an option that is a keyword of the function as well; `how` is for `Declared`."""
    return Declared(help, section, **how)


def flag(
    help: str = "", section: str = "Options", *, init: Literal[False] = False, **how: Any
) -> Any:
    """Declare an option of the command line alone."""
    return Declared(help, section, is_public=init, **how)


def argument(
    python: str = "", *, kw_only: Literal[False], is_argument: bool = True, **how: Any
) -> Any:
    """Declare an argument of the command line, which the function takes first."""
    return Declared(python=python, kw_only=kw_only, is_argument=is_argument, **how)


def words_of(kind: str) -> tuple[str, ...]:
    """Return the words that a type allows, by its text; none for another type."""
    return get_args(getattr(choices, kind.removesuffix(" | None"), None))


@dataclass_transform(
    frozen_default=True,
    kw_only_default=True,
    field_specifiers=(flag, argument),  # whatever else stands there is a default
)
class Request:
    """The arguments of a command. Type checkers see a frozen dataclass.

    Attributes:
        fields: The declarations by name, in the order of `--help`.

    Raises:
        UsageError: If the declaration of a field does not allow a word or a number.
    """

    fields: ClassVar[dict[str, Declared]] = {}

    def __init_subclass__(cls, place: int = 0) -> None:
        found: dict[str, Declared] = {}
        for base in cls.__bases__:
            found |= getattr(base, "fields", {})
        for name, kind in cls.__annotations__.items():
            said = found[name] = vars(cls)[name]
            said.name, said.type = name, kind
            if said.place is None:
                said.place = place
            if said.default is ... and said.kw_only:
                said.default = None if kind.endswith("None") else False if kind == "bool" else ()
        cls.fields = dict(sorted(found.items(), key=lambda each: each[1].place or 0))

    def __init__(self, *values: Any, **given: Any) -> None:
        first = (name for name, said in self.fields.items() if not said.kw_only)
        given |= {next(first, "any value without a name"): value for value in values}
        for name, said in self.fields.items():
            value = self.__dict__[name] = given.pop(
                name, None if said.is_optional else said.default
            )
            if value is ...:
                raise TypeError(f"{type(self).__name__} needs `{name}`")
            _check(said, value)
        if given:
            raise TypeError(f"{type(self).__name__} has no {', '.join(given)}")

    @property
    def sizes(self) -> Mapping[str, int]:
        """The sizes of symbolic dimensions, `dims`; empty for none."""
        return self.__dict__.get("dims") or {}

    def replace(self: _R, **changes: Any) -> _R:
        """Return a request with other values of some fields."""
        return type(self)(**{**vars(self), **changes})


def _check(said: Declared, value: Any) -> None:
    """Refuse a word or a number that the declaration does not allow; None passes."""
    words, low, high = words_of(said.type), said.least, said.most
    if said.type.startswith("Sequence[") and value is not None:
        words = words_of(said.type[len("Sequence[") : said.type.index("]")])
        value = next((one for one in value if one not in words), None) if words else None
    if value is None or (isinstance(value, str) and value in words):
        return
    if words:
        expected = ", ".join(f"`{word}`" for word in words)
        help = did_you_mean(str(value), words)
        raise UsageError(f"`{said.name}` is `{value}`, expected one of {expected}", help=help)
    if low is not None and not low <= value <= (value if high is None else high):
        expected = f"at least {low}" if high is None else f"{low} to {high}"
        raise UsageError(f"`{said.name}` is {value}, expected {expected}")


def path_in(model: object) -> str:
    """Return the path of a model; "" for one in memory."""
    return os.fsdecode(model) if isinstance(model, str | os.PathLike) else ""
