"""Errors in the words of who reads them: keywords to a program, flags to a terminal."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from onnx_kvtool.core.errors import KvtoolError

__all__ = ["in_keywords", "speaking_python"]

_P = ParamSpec("_P")
_R = TypeVar("_R")

_FLAG = re.compile(r"`--([a-z][a-z-]*)(?: ([^`]+))?`")
"""A flag between backticks, perhaps with its value."""

_MAPPINGS = {"dim": "dims", "input": "inputs"}
"""Flags that are given once for each name, and the keyword that takes all of them."""


def speaking_python(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let the errors of a public function name its keywords, where its command names flags.

    The checks behind a command and its function are the same, and their sentences name flags.
    """

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except KvtoolError as error:
            parameters = inspect.signature(function).parameters
            error.message = in_keywords(error.message, parameters)
            error.help = None if error.help is None else in_keywords(error.help, parameters)
            error.args = (error.message,)
            raise

    return call


def in_keywords(sentence: str, parameters: Mapping[str, inspect.Parameter]) -> str:
    """Return a sentence with a keyword for each flag that has one.

    A flag without a keyword, such as `--debug`, stays.

    Args:
        sentence: What a command says.
        parameters: Those of the function that has the name of the command.
    """

    def keyword(found: re.Match[str]) -> str:
        flag, value = found[1].replace("-", "_"), found[2]
        if value is None and (off := flag.removeprefix("no_")) != flag and off in parameters:
            return f"`{off}=False`"
        name = next((n for n in (flag, _MAPPINGS.get(flag), f"{flag}s") if n in parameters), None)
        if name is None:
            return found[0]
        return f"`{_assigned(name, value, parameters[name].default)}`"

    return _FLAG.sub(keyword, sentence)


def _assigned(name: str, value: str | None, default: Any) -> str:
    """Return how `name` is given `value` in a call; with None how it is switched on, or named."""
    if value is None:
        return f"{name}=True" if default is False or name == "verify" else name
    if name in _MAPPINGS.values():
        key, _, size = value.partition("=")
        return f'{name}={{"{key}": {size}}}'
    text = value if value.isdecimal() or value.isupper() else f'"{value}"'
    return f"{name}=[{text}]" if default == () else f"{name}={text}"
