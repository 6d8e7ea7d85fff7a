"""Checks of the arguments of commands, and messages in the caller's syntax."""

from __future__ import annotations

import inspect
import os
import re
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar, cast

import onnx_ir as ir

from onnx_kvtool.commands.options import Request
from onnx_kvtool.core.errors import KvtoolError, UnreadableModel, UsageError
from onnx_kvtool.core.words import unknown_name
from onnx_kvtool.model_io.external_data import check_external_data, external_files
from onnx_kvtool.model_io.model import origin
from onnx_kvtool.model_io.places import is_same
from onnx_kvtool.symbolic.dimensions import dim_names, dims_of, evaluate, names_in


def listed(name: str, words: Sequence[str]) -> tuple[str, ...]:
    """Return the words of the argument `name`.

    Raises:
        UsageError: If it is a single text, which is a sequence of letters.
    """
    if isinstance(words, str):
        raise UsageError(
            f"`{name}` is the text `{words}`, expected a list of texts",
            help=f'write `{name}=["{words}"]`',
        )
    return tuple(words)


def check_least(name: str, number: int | None, least: int) -> None:
    """Refuse a number below `least`; None passes."""
    if number is not None and number < least:
        raise UsageError(f"`{name}` is {number}, expected at least {least}")


def check_sizes(dims: Mapping[str, object]) -> None:
    """Refuse a size of a symbolic dimension that is no positive integer."""
    for name, size in dims.items():
        if not isinstance(size, int) or size < 1:
            raise UsageError(f"the size of `{name}` is {size!r}, expected a positive integer")


def check_dims(model: ir.Model, dims: Mapping[str, int]) -> None:
    """Refuse a value for a dimension that no input has, or that makes one negative."""
    check_sizes(dims)
    names = dim_names(model)
    for name in dims:
        if name not in names:
            raise unknown_name(f"no input has a dimension called `{name}`", name, sorted(names))
    if (text := impossible_size(model, dims)) is not None:
        raise UsageError(text)


def impossible_size(model: ir.Model, dims: Mapping[str, int]) -> str | None:
    """Return which input dimension would be negative with these sizes; None if none would."""
    for value in model.graph.inputs if dims else ():
        for axis, dim in enumerate(dims_of(value) or ()):
            if isinstance(dim, str) and dims.keys() >= set(names_in(dim)):
                place = f"dimension {axis} of input `{value.name}`"
                try:
                    size = evaluate(dim, dims)
                except ZeroDivisionError:
                    return f"{place} would be divided by 0: `{dim}`"
                if size < 0:
                    return f"{place} would be {size}: `{dim}`, expected at least 0"
    return None


def check_data(model: ir.Model, path: str, *, need_bytes: bool = True) -> None:
    """Refuse a model whose external data cannot be trusted, or is missing where it is needed.

    Args:
        model: The model.
        path: The requested path; "" for a model in memory, which may know its file.
        need_bytes: Whether the data will be read.

    Raises:
        UnreadableModel: The message begins with the path.
    """
    try:
        check_external_data(model, need_bytes=need_bytes)
    except UnreadableModel as error:
        known = path or origin(model).path
        message = f"`{known}`: {error.message}" if known else error.message
        raise UnreadableModel(message, help=error.help) from error


def spare_model(model: ir.Model, output: str | None) -> None:
    """Refuse to write a report over a file of the model."""
    if output is None or output == "-":
        return
    source = origin(model).path
    files = [file.path for file in external_files(model)]
    for path in files if source == "-" else [source, *files]:
        if is_same(path, output):
            raise UsageError(
                f"`{output}` is a file of the model, and would be overwritten",
                help="name another file for the report",
            )


# Messages in the caller's syntax: keywords for a program, flags for a terminal.


_P = ParamSpec("_P")
_Q = TypeVar("_Q")
_R = TypeVar("_R")

_FLAG = re.compile(r"`--([a-z][a-z-]*)(?: ([^`]+))?`")
"""A flag between backticks, perhaps with its value."""

_MAPPINGS = {"dim": "dims", "input": "inputs"}
"""Flags that are repeated for each name, and the keyword for all of them."""


def asked(request: Callable[_P, _Q]) -> Callable[[Callable[[_Q], _R]], Callable[_P, _R]]:
    """Return a decorator: a function of a request becomes a function of the request's fields.

    The docstring gets the section `Args:`.

    Args:
        request: The class of the request.
    """
    fields = cast("type[Request]", request).fields
    public = {name: said for name, said in fields.items() if said.is_public}
    kinds = {False: inspect.Parameter.POSITIONAL_OR_KEYWORD, True: inspect.Parameter.KEYWORD_ONLY}
    parameters = [
        inspect.Parameter(
            name,
            kinds[said.kw_only],
            default=inspect.Parameter.empty if said.default is ... else said.default,
            annotation=said.type,
        )
        for name, said in sorted(public.items(), key=lambda each: each[1].kw_only)
    ]

    def decorate(function: Callable[[_Q], _R]) -> Callable[_P, _R]:
        signature = inspect.signature(function).replace(parameters=parameters)

        @wraps(function)
        def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            given = signature.bind(*args, **kwargs).arguments
            for name, value in given.items():
                if public[name].type.startswith("Sequence[str]") and value is not None:
                    given[name] = listed(name, value)
            return function(cast(Callable[..., _Q], request)(**given))

        call.__signature__ = signature  # type: ignore[attr-defined]
        call.__annotations__ = {one.name: one.annotation for one in parameters}
        call.__annotations__["return"] = signature.return_annotation
        texts = (
            textwrap.fill(
                f"{one.name}: {in_keywords(public[one.name].spoken, signature.parameters)}",
                width=96,
                initial_indent="    ",
                subsequent_indent="        ",
                break_on_hyphens=False,
                break_long_words=False,
            )
            for one in parameters
        )
        arguments = "\n".join(("Args:", *texts))
        blocks = inspect.cleandoc(function.__doc__ or "").split("\n\n")
        titles = ("Returns:", "Raises:", "Examples:")
        place = next(n for n, block in enumerate(blocks) if block.startswith(titles))
        call.__doc__ = "\n\n".join((*blocks[:place], arguments, *blocks[place:]))
        return speaking_python(call)

    return decorate


def speaking_python(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Check the types of keywords, and let errors name keywords where a command names flags.

    The command and the function share their checks, whose messages name flags.
    """
    annotations = {
        name: str(parameter.annotation)
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        for name, value in kwargs.items():
            _check_type(name, value, annotations.get(name, ""))
        try:
            return function(*args, **kwargs)
        except KvtoolError as error:
            parameters = inspect.signature(function).parameters
            error.message = in_keywords(error.message, parameters)
            error.help = None if error.help is None else in_keywords(error.help, parameters)
            error.args = (error.message,)
            raise

    return call


def _has_names(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in value)


_Kind = tuple[Callable[[Any], bool], str]

_KINDS: Mapping[str, _Kind] = {
    "None": (lambda value: value is None, "None"),
    "bool": (lambda value: isinstance(value, bool), "True or False"),
    "int": (
        lambda value: isinstance(value, Integral) and not isinstance(value, bool),
        "an integer",
    ),
    "float": (lambda value: isinstance(value, Real) and not isinstance(value, bool), "a number"),
    "str": (lambda value: isinstance(value, str), "a text"),
    "os.PathLike[str]": (lambda value: isinstance(value, os.PathLike), "a path"),
    # A single text is refused where the list is read.
    "Sequence[str]": (
        lambda value: (
            isinstance(value, str)
            or (isinstance(value, Collection) and all(isinstance(word, str) for word in value))
        ),
        "a list of texts",
    ),
    "Mapping[str, int]": (_has_names, "a mapping from names to integers"),
    "Mapping[str, Any]": (_has_names, "a mapping from names to values"),
}
"""By annotation: a test of the value, and the expected kind in words."""


def _check_type(name: str, value: Any, annotation: str) -> None:
    """Refuse a value of another type than the annotation; complex annotations pass."""
    # Any other name is that of a choice of words, which are checked where they are read.
    parts = annotation.split(" | ") if annotation else ()
    kinds = [_KINDS.get(part, _KINDS["str"] if part.isidentifier() else None) for part in parts]
    if not kinds or any(kind is None or kind[0](value) for kind in kinds):
        return
    expected = " or ".join(kind[1] for kind in kinds if kind is not None and kind[1] != "None")
    got = f"the text `{value}`" if isinstance(value, str) else f"`{value!r}`"[:_MOST]
    if isinstance(value, list | tuple | set | dict):
        got = f"a {type(value).__name__}"
    help = None
    if isinstance(value, str) and "int" in annotation and value.isdecimal():
        help = f"write `{name}={value}`"
    elif "Mapping[str, int]" in annotation:
        help = f'write `{name}={{"batch": 2}}`'
    raise UsageError(f"`{name}` is {got}, expected {expected}", help=help)


_MOST = 60
"""Most characters of a value in a message."""


def in_keywords(sentence: str, parameters: Mapping[str, inspect.Parameter]) -> str:
    """Return a message with a keyword for each flag that has one.

    Args:
        sentence: The message of a command.
        parameters: The parameters of the function for the command.
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
    """Return an argument in Python: `name=value`; without a value `name=True`, or the name."""
    if value is None:
        return f"{name}=True" if default is False or name == "verify" else name
    if name in _MAPPINGS.values():
        key, _, size = value.partition("=")
        return f'{name}={{"{key}": {size}}}'
    text = value if value.isdecimal() or value.isupper() else f'"{value}"'
    return f"{name}=[{text}]" if default == () else f"{name}={text}"
