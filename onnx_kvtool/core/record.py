"""Records: dataclasses that go to JSON and come back, with a schema."""

from __future__ import annotations

import inspect
import json
import math
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from onnx_kvtool.core.errors import UsageError

# The types of the fields describe a dataclass for its JSON form, for reading that back, and for the
# schema. `JSON` lists its keys in order, if they are not just the fields: names of attributes, or a
# `Key` for another name, another form, or several keys; `...` for the fields that it does not name.


R = TypeVar("R", bound="Record")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Form:
    """The JSON form of a value that is no plain data.

    Attributes:
        view: Type of the JSON form.
        of: Returns the JSON form of a value; never called for None.
        back: Returns the value of a JSON form.
    """

    view: Any
    of: Callable[[Any], Any]
    back: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a record, or several.

    Attributes:
        path: The attribute, or attributes with dots between them. An attribute that is no field is
            written, but not read back.
        name: Name of the key; "" for that of the attribute.
        parts: Keys of the record in the attribute, which replace this key.
        form: Form of the value; None for the value itself.
        is_optional: Whether the key is omitted if the value is the default of the field.
        is_asked: Whether the key is written only on request.
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
    """JSON that does not have the expected type."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.where: list[str] = []

    def at(self, place: str) -> Misfit:
        """Add the key of the value."""
        self.where.insert(0, place)
        return self


class Record:
    """A dataclass with a JSON form; see the module."""

    __slots__ = ()

    JSON: ClassVar[tuple[str | Key | types.EllipsisType, ...]] = (...,)

    def __init_subclass__(cls) -> None:
        if "__repr__" not in cls.__dict__:  # before `dataclass` gives it one of many lines
            cls.__repr__ = Record.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        kind: type = type(self)
        names = [name for name, f in defaults(kind).items() if f.repr]
        if isinstance(getattr(kind, "status", None), property):
            names.insert(0, "status")
        known = ((name, getattr(self, name)) for name in names)
        said = [
            f"{name}={_brief(value)}"
            for name, value in known
            if value not in (None, (), [], {}) and not is_default(kind, name, value)
        ]
        return f"{kind.__name__}({_cut(', '.join(said), 160)})"

    def to_dict(self) -> dict[str, Any]:
        """Return the same as `to_json`, under the name that other libraries use."""
        return self.to_json()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that the command-line contract fixes, without the header.

        A number that is infinite or not a number stays a float; `kvtool` prints it as null.
        """
        return _object_of(self)

    @classmethod
    def from_json(cls: type[R], data: Mapping[str, Any] | str) -> R:
        """Return the record for the result of `to_json`, or for the JSON that a command printed.

        Args:
            data: The JSON form, or its text. Unknown keys, as from a later version, are ignored.
                Missing keys, as from an earlier version, have their defaults.

        Raises:
            UsageError: If `data` is not of this form.
        """
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
    listed: tuple[str | Key | types.EllipsisType, ...] = getattr(record, "JSON", (...,))
    named = {key.path if isinstance(key, Key) else key for key in listed}
    found: list[Key] = []
    for key in listed:
        if isinstance(key, types.EllipsisType):
            found += [Key(name) for name in defaults(record) if name not in named]
        else:
            found.append(key if isinstance(key, Key) else Key(key))
    return tuple(found)


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
    """Return whether `value` is the default of the field."""
    field = defaults(record).get(name)
    if field is None:
        return value is None or value == ()
    if field.default is not MISSING:
        return bool(value == field.default)
    return field.default_factory is not MISSING and bool(value == field.default_factory())


def plain(value: Any) -> Any:
    """Return the JSON form of a value."""
    if isinstance(value, Record):
        return value.to_json()
    if hasattr(value, "__dataclass_fields__"):
        return _object_of(value)
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(plain(item) for item in value)
    return value


def _object_of(record: Any) -> dict[str, Any]:
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


def read(kind: Any, data: Any) -> Any:
    """Return `data` as a value of a type that a field of a record may have.

    Raises:
        Misfit: If it is no such value.
    """
    if kind is Any:
        return data
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _one_of(get_args(kind), data)
    if origin is Literal:
        if data not in get_args(kind):
            raise Misfit(f"is {data!r}, expected one of {', '.join(map(repr, get_args(kind)))}")
        return data
    if origin in (tuple, list, frozenset):
        return _several(origin, get_args(kind), data)
    is_record = hasattr(kind, "__dataclass_fields__")
    if not is_record and not (isinstance(origin, type) and issubclass(origin, Mapping)):
        return _scalar(kind, data)
    if not isinstance(data, Mapping):
        raise Misfit(f"is {_shown(data)}, expected an object")
    if not is_record:
        return {name: _at(name, get_args(kind)[1], item) for name, item in data.items()}
    made = getattr(kind, "of_json", None)
    return filled(kind, data) if made is None else made(data)


def _scalar(kind: Any, data: Any) -> Any:
    if kind is float and data is None:
        return math.nan  # how to print numbers that JSON cannot represent
    wanted = (int, float) if kind is float else kind
    if not isinstance(data, wanted) or (isinstance(data, bool) and kind is not bool):
        raise Misfit(f"is {_shown(data)}, expected {_NAMES.get(kind, str(kind))}")
    return data


_NAMES = {
    bool: "a truth value",
    float: "a number",
    int: "an integer",
    str: "a text",
    type(None): "null",
}


def _one_of(kinds: Sequence[Any], data: Any) -> Any:
    # None first: a null number is missing, not infinite.
    misfits = []
    for kind in sorted(kinds, key=lambda kind: kind is not type(None)):
        try:
            return read(kind, data)
        except Misfit as misfit:  # noqa: PERF203 - few, and each is another type
            misfits.append(misfit)
    raise max(misfits, key=lambda misfit: len(misfit.where))


def _several(origin: Callable[[Any], Any], kinds: tuple[Any, ...], data: Any) -> Any:
    if not isinstance(data, (list, tuple)):
        raise Misfit(f"is {_shown(data)}, expected a list")
    if origin is tuple and kinds[-1] is not ...:
        if len(data) != len(kinds):
            raise Misfit(f"has {len(data)} elements, expected {len(kinds)}")
        each = kinds
    else:
        each = (kinds[0],) * len(data)
    pairs = enumerate(zip(each, data, strict=True))
    return origin([_at(f"{i}", kind, item) for i, (kind, item) in pairs])


def filled(kind: Any, data: Mapping[str, Any], **rest: Any) -> Any:
    """Return a dataclass of the keys of an object; `rest` has the fields without a key.

    Raises:
        Misfit: If a key does not fit its field, or one without a default is missing.
    """
    known = defaults(kind)
    found: dict[str, Any] = {}
    for key in keys_of(kind):
        if key.path not in known or key.path in rest:
            continue
        if key.parts:
            found[key.path] = read(type_of(kind, key.path), {p: data.get(p) for p in key.parts})
        elif key.key in data:
            form, value = key.form, data[key.key]
            if form is None:
                found[key.path] = _at(key.key, type_of(kind, key.path), value)
            else:
                found[key.path] = (
                    None if value is None else form.back(_at(key.key, form.view, value))
                )
    try:
        return kind(**found, **rest)
    except TypeError:
        keys = {key.path: key.key for key in keys_of(kind)}
        missing = [keys[n] for n in known if n in keys and n not in found]
        raise Misfit(f"has no `{missing[0]}`") from None


def taken(kind: type[T], source: object, **other: Any) -> T:
    """Return a dataclass whose fields are `other`, and attributes of `source` of the same names."""
    names = (field.name for field in fields(kind) if field.name not in other)  # type: ignore[arg-type]
    return kind(**{name: getattr(source, name) for name in names}, **other)


def _at(place: str, kind: Any, data: Any) -> Any:
    try:
        return read(kind, data)
    except Misfit as misfit:
        raise misfit.at(place) from None


def _shown(data: Any) -> str:
    return _cut(repr(data), 40)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _brief(value: Any) -> str:
    """Return the short `repr` of a field: the number of elements of a collection."""
    if isinstance(value, (list, tuple, set, frozenset, Mapping)):
        return f"<{len(value)}>"
    return _cut(repr(value), 50)


# JSON schemas (draft 2020-12) of records, from the types of their fields and from docstrings.


DIALECT = "https://json-schema.org/draft/2020-12/schema"

_SCALARS = {bool: "boolean", int: "integer", str: "string", type(None): "null"}


def schema(record: type) -> dict[str, Any]:
    """Return the schema of a record, with those of the records in it under `$defs`.

    It allows other keys, because reports may get keys without a new `schema_version`. A number that
    may be infinite or NaN may be null.
    """
    inner: dict[str, Any] = {}
    found = _object_schema(record, inner)
    return {**found, "$defs": {name: inner[name] for name in sorted(inner)}} if inner else found


def _object_schema(record: type, inner: dict[str, Any]) -> dict[str, Any]:
    said = _described(record)
    properties: dict[str, Any] = {}
    required = []
    for key in keys_of(record):
        kind = type_of(record, key.path)
        if key.parts:
            whole = _object_schema(kind, inner)
            properties |= {part: whole["properties"][part] for part in key.parts}
            required += [part for part in key.parts if part in whole["required"]]
            continue
        text = _text(record, key, said)
        view = kind
        if key.form is not None:
            view = key.form.view | None if type(None) in get_args(kind) else key.form.view
        properties[key.key] = {**({"description": text} if text else {}), **_value(view, inner)}
        if not (key.is_optional or key.is_asked):
            required.append(key.key)
    return {"type": "object", "properties": properties, "required": required}


def _value(kind: Any, inner: dict[str, Any]) -> dict[str, Any]:
    if kind is Any:
        return {}
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _either([_value(one, inner) for one in arguments])
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (tuple, list, frozenset):
        return _array(origin, arguments, inner)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _value(arguments[1], inner)}
    if hasattr(kind, "__dataclass_fields__"):
        if kind.__name__ not in inner:
            inner[kind.__name__] = {}  # so that a recursive type ends
            inner[kind.__name__] = _object_schema(kind, inner)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    return {"type": ["number", "null"]} if kind is float else {"type": _SCALARS[kind]}


def _array(origin: Any, kinds: tuple[Any, ...], inner: dict[str, Any]) -> dict[str, Any]:
    if origin is tuple and kinds[-1] is not ...:
        first = [_value(kind, inner) for kind in kinds]
        return {"type": "array", "prefixItems": first, "items": False, "minItems": len(first)}
    return {"type": "array", "items": _value(kinds[0], inner)}


def _either(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the schema of a union; of scalars, a list of types."""
    if all(set(one) == {"type"} for one in schemas):
        names: dict[str, None] = {}
        for one in schemas:
            kinds = one["type"]
            names |= dict.fromkeys(kinds if isinstance(kinds, list) else [kinds])
        if "number" in names:
            names.pop("integer", None)
        return {"type": list(names)}
    words = [one for one in schemas if set(one) == {"enum"}]
    if words and all(one in words or one == {"type": "null"} for one in schemas):
        return {"enum": [*(w for one in words for w in one["enum"]), None]}
    return {"anyOf": schemas}


def _text(record: type, key: Key, said: Mapping[str, str]) -> str:
    """Return the description of a key: from the docstring of the record, or of the property."""
    if key.path in said:
        text = said[key.path]
    elif "." in key.path or key.path in defaults(record):
        text = ""
    else:
        text = (inspect.getdoc(getattr(record, key.path)) or "").partition("\n\n")[0]
    return re.sub(r"\bNone\b", "null", text)


def _described(record: type) -> dict[str, str]:
    """Return the description of each attribute of a dataclass, as one line."""
    text = inspect.getdoc(record) or ""
    found = re.search(r"^Attributes:\n((?:    .*\n?|\n)+)", text, re.MULTILINE)
    said: dict[str, str] = {}
    name = ""
    for line in found[1].splitlines() if found else []:
        if entry := re.match(r"    (\w+): (.*)", line):
            name = entry[1]
            said[name] = entry[2].strip()
        elif line.startswith("        ") and name:
            said[name] += f" {line.strip()}"
    return said
