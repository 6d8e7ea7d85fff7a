"""What callers from Python can get wrong that the command line cannot: values of the wrong kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.suggestion import did_you_mean

__all__ = ["check_choice", "check_least", "check_sizes", "listed"]


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
