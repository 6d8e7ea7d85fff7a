"""What can be wrong with what commands have in common: arguments, and the model they are about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from onnx_kvtool.core.errors import UnreadableModel, UsageError
from onnx_kvtool.core.words import did_you_mean, unknown_name
from onnx_kvtool.model_io.external_data import check_external_data, external_files
from onnx_kvtool.model_io.origin import origin
from onnx_kvtool.model_io.places import is_same
from onnx_kvtool.symbolic.dimensions import dim_names, dims_of, evaluate, names_in

__all__ = [
    "check_choice",
    "check_data",
    "check_dims",
    "check_least",
    "check_sizes",
    "impossible_size",
    "listed",
    "spare_model",
]


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


def check_choice(name: str, word: str | None, words: Sequence[str]) -> None:
    """Refuse a word that is none of `words`; None is none given."""
    if word is not None and word not in words:
        expected = ", ".join(f"`{one}`" for one in words)
        help = did_you_mean(str(word), words)
        raise UsageError(f"`{name}` is `{word}`, expected one of {expected}", help=help)


def check_least(name: str, number: int | None, least: int) -> None:
    """Refuse a number below `least`; None is none given."""
    if number is not None and number < least:
        raise UsageError(f"`{name}` is {number}, expected at least {least}")


def check_sizes(dims: Mapping[str, object]) -> None:
    """Refuse a size of a symbolic dimension that is no positive integer."""
    for name, size in dims.items():
        if not isinstance(size, int) or size < 1:
            raise UsageError(f"the size of `{name}` is {size!r}, expected a positive integer")


def check_dims(model: ir.Model, dims: Mapping[str, int]) -> None:
    """Refuse a value for a dimension that no input has, or with which one would be negative."""
    check_sizes(dims)
    names = dim_names(model)
    for name in dims:
        if name not in names:
            raise unknown_name(f"no input has a dimension called `{name}`", name, sorted(names))
    if (text := impossible_size(model, dims)) is not None:
        raise UsageError(text)


def impossible_size(model: ir.Model, dims: Mapping[str, int]) -> str | None:
    """Say which dimension of an input cannot be with sizes for its names; None if all can."""
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
        path: Where it was asked for; "" for one in memory, which may know where it came from.
        need_bytes: Whether the data is going to be read.

    Raises:
        UnreadableModel: With the path in front.
    """
    try:
        check_external_data(model, need_bytes=need_bytes)
    except UnreadableModel as error:
        known = path or origin(model).path
        message = f"`{known}`: {error.message}" if known else error.message
        raise UnreadableModel(message, help=error.help) from error


def spare_model(model: ir.Model, output: str) -> None:
    """Refuse to write a report over a file of the model."""
    source = origin(model).path
    files = [file.path for file in external_files(model)]
    for path in files if source == "-" else [source, *files]:
        if is_same(path, output):
            raise UsageError(
                f"`{output}` belongs to the model, which would be overwritten",
                help="name another file for the report",
            )
