"""JSON schemas (draft 2020-12) of records, from the types of their fields and from docstrings."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin

from onnx_kvtool.core.record import Key, defaults, keys_of, type_of

__all__ = ["DIALECT", "schema"]

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_SCALARS = {bool: "boolean", int: "integer", str: "string", type(None): "null"}


def schema(record: type) -> dict[str, Any]:
    """Return the schema of a record, and of the records in it under `$defs`.

    Keys may be added to a report without a new `schema_version`, so those that are not listed are
    allowed. A number that may be infinite or not a number may be null.
    """
    inner: dict[str, Any] = {}
    found = _object(record, inner)
    return {**found, "$defs": {name: inner[name] for name in sorted(inner)}} if inner else found


def _object(record: type, inner: dict[str, Any]) -> dict[str, Any]:
    said = _described(record)
    properties: dict[str, Any] = {}
    required = []
    for key in keys_of(record):
        kind = type_of(record, key.path)
        if key.parts:
            whole = _object(kind, inner)
            properties |= {part: whole["properties"][part] for part in key.parts}
            required += [part for part in key.parts if part in whole["required"]]
            continue
        text = _text(record, key, said)
        view = kind if key.form is None else _view(kind, key)
        properties[key.key] = {**({"description": text} if text else {}), **_value(view, inner)}
        if not (key.is_optional or key.is_asked):
            required.append(key.key)
    return {"type": "object", "properties": properties, "required": required}


def _view(kind: Any, key: Key) -> Any:
    """Return the type of what stands for a value, which may be absent where the value may."""
    assert key.form is not None
    is_optional = type(None) in get_args(kind)
    return key.form.view | None if is_optional else key.form.view


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
            inner[kind.__name__] = {}  # so that one that holds its own kind comes to an end
            inner[kind.__name__] = _object(kind, inner)
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
    """Return what is said of a key: of a field in the docstring, of a property in its own."""
    if key.path in said:
        text = said[key.path]
    elif "." in key.path or key.path in defaults(record):
        text = ""
    else:
        text = (inspect.getdoc(getattr(record, key.path)) or "").partition("\n\n")[0]
    return re.sub(r"\bNone\b", "null", text)


def _described(record: type) -> dict[str, str]:
    """Return what the docstring of a dataclass says of each attribute, in one line."""
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
