"""JSON read as a declared type: what `Record.from_json` does."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from onnx_kvtool.core.record import Misfit, defaults, keys_of, type_of

__all__ = ["filled", "read"]


def read(kind: Any, data: Any) -> Any:
    """Return `data` as a value of a type.

    Args:
        kind: A dataclass, a scalar, a Literal, or a union, tuple, list, set or mapping of these.
        data: What JSON holds.

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
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(get_args(kind)[1], data)
    if hasattr(kind, "__dataclass_fields__"):
        return _record(kind, data)
    return _scalar(kind, data)


def _scalar(kind: Any, data: Any) -> Any:
    if kind is float and data is None:
        return math.nan  # what a number is printed as that JSON has no form of
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
    # None first, so that a missing number is not taken for one that is not finite.
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


def _mapping(kind: Any, data: Any) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise Misfit(f"is {_shown(data)}, expected an object")
    return {name: _at(name, kind, item) for name, item in data.items()}


def _record(kind: Any, data: Any) -> Any:
    if not isinstance(data, Mapping):
        raise Misfit(f"is {_shown(data)}, expected an object")
    made = getattr(kind, "of_json", None)
    return filled(kind, data) if made is None else made(data)


def filled(kind: Any, data: Mapping[str, Any], **rest: Any) -> Any:
    """Return a dataclass of the keys of an object.

    Args:
        kind: The dataclass.
        data: The object; keys that are not there have the defaults of their fields.
        rest: Fields that no key has.

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
            value = data[key.key]
            if key.form is None:
                found[key.path] = _at(key.key, type_of(kind, key.path), value)
            else:
                view = None if value is None else _at(key.key, key.form.view, value)
                found[key.path] = None if view is None else key.form.back(view)
    try:
        return kind(**found, **rest)
    except TypeError:
        keys = {key.path: key.key for key in keys_of(kind)}
        missing = [keys[n] for n in known if n in keys and n not in found]
        raise Misfit(f"has no `{missing[0]}`") from None


def _at(place: str, kind: Any, data: Any) -> Any:
    try:
        return read(kind, data)
    except Misfit as misfit:
        raise misfit.at(place) from None


def _shown(data: Any) -> str:
    text = repr(data)
    return text if len(text) <= 40 else f"{text[:37]}..."
