"""Records: dataclasses that go to JSON and come back, with a schema; one description for all three.

A dataclass is described by the types of its fields. `JSON` names its keys where they are not the
fields, in order: an attribute, or a `Key` for what has another name, another form, or stands for
several keys.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from typing import Any, ClassVar, TypeVar, get_type_hints

from onnx_kvtool.core.errors import UsageError

__all__ = ["Form", "Key", "Misfit", "Record", "defaults", "keys_of", "plain", "type_of"]

R = TypeVar("R", bound="Record")


@dataclass(frozen=True, slots=True)
class Form:
    """How a value stands in JSON that is no plain data itself.

    Attributes:
        view: Type of what stands for it.
        of: Makes that of the value; never called for None.
        back: Makes the value of that.
    """

    view: Any
    of: Callable[[Any], Any]
    back: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a record, or several.

    Attributes:
        path: The attribute, or attributes with dots between them; what is no field is said, and not
            read back.
        name: Name of the key; "" for that of the attribute.
        parts: Keys of the record that the attribute holds; they stand in the place of this one.
        form: What stands for the value; None for the value itself.
        is_optional: Whether the key is left out where the value is the default of the field.
        is_asked: Whether only those who ask for it get it.
    """

    path: str
    name: str = ""
    parts: tuple[str, ...] = ()
    form: Form | None = None
    is_optional: bool = False
    is_asked: bool = False

    @property
    def key(self) -> str:
        """Name of the key."""
        return self.name or self.path.rpartition(".")[2]


class Misfit(Exception):
    """JSON that is not of the type it is read as."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.where: list[str] = []

    def at(self, place: str) -> Misfit:
        """Note the key in which it was met."""
        self.where.insert(0, place)
        return self


class Record:
    """A dataclass that has a JSON form; see the module."""

    __slots__ = ()

    JSON: ClassVar[tuple[str | Key, ...]] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that the command-line contract fixes, without the header.

        A number that is infinite or not a number stays a float; `kvtool` prints it as null.
        """
        return _object(self)

    @classmethod
    def from_json(cls: type[R], data: Mapping[str, Any] | str) -> R:
        """Return the record that `to_json` has made this of, or a command has printed.

        Args:
            data: The JSON form, or its text. Keys that are not known are passed over, as those of a
                later version are; keys that an earlier version did not write have their defaults.

        Raises:
            UsageError: If `data` is not of this form.
        """
        from onnx_kvtool.core.reading import read

        if isinstance(data, str):
            try:
                data = json.loads(data)
            except ValueError as error:
                raise UsageError(f"a text that is no JSON is no report: {error}") from error
        try:
            found = read(cls, data)
        except Misfit as misfit:
            place = ".".join(misfit.where)
            where = f"`{place}` " if place else ""
            raise UsageError(
                f"this is not the JSON form of a `{cls.__name__}`: {where}{misfit}",
                help="give it what `to_json` of such a report returned, or its command printed",
            ) from None
        assert isinstance(found, cls)
        return found


@cache
def keys_of(record: type) -> tuple[Key, ...]:
    """Return the keys of a dataclass, in order."""
    listed: tuple[str | Key, ...] = getattr(record, "JSON", ()) or tuple(
        field.name for field in fields(record)
    )
    return tuple(key if isinstance(key, Key) else Key(key) for key in listed)


@cache
def type_of(record: type, path: str) -> Any:
    """Return the declared type of an attribute: of a field, a property, or a method."""
    first, _, rest = path.partition(".")
    hints = get_type_hints(record)
    if first in hints:
        found = hints[first]
    else:
        made = getattr(record, first)
        found = get_type_hints(made.fget if isinstance(made, property) else made)["return"]
    return type_of(found, rest) if rest else found


@cache
def defaults(record: type) -> dict[str, Field[Any]]:
    """Return the fields of a dataclass by name."""
    return {field.name: field for field in fields(record)}


def is_default(record: type, name: str, value: Any) -> bool:
    """Return whether `value` is what the field has when nobody gives it."""
    field = defaults(record).get(name)
    if field is None:
        return value is None or value == ()
    if field.default is not MISSING:
        return bool(value == field.default)
    return field.default_factory is not MISSING and bool(value == field.default_factory())


def plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, Record):
        return value.to_json()
    if hasattr(value, "__dataclass_fields__"):
        return _object(value)
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(plain(item) for item in value)
    return value


def _object(record: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    kind: type = type(record)
    for key in keys_of(kind):
        if key.is_asked:
            continue
        value = record
        for attribute in key.path.split("."):
            value = getattr(value, attribute)
        if callable(value):
            value = value()
        if key.is_optional and is_default(kind, key.path, value):
            continue
        if key.form is not None and value is not None:
            value = key.form.of(value)
        made = plain(value)
        if key.parts:
            found.update((part, made[part]) for part in key.parts if part in made)
        else:
            found[key.key] = made
    return found
