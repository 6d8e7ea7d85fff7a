"""The name that was probably meant, for messages about one that nobody has.

Every command, option, rule, runtime, operator, value, dimension, attribute and file that is not
found is answered with the nearest one, by the functions of this module.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from onnx_kvtool.core.errors import UsageError

__all__ = ["closest", "closest_path", "did_you_mean", "missing_file_help", "unknown_name"]

_NEAR = 0.6
"""Share of characters, in order, that two names must have in common."""

_SHOWN = 12
"""Number of names up to which all of them are listed where none is near."""


def closest(word: str, words: Iterable[str]) -> str | None:
    """Return the word of `words` that `word` was probably meant to be; None when none is near.

    Case does not count. Of words that are equally near the first is taken.
    """
    from difflib import SequenceMatcher  # a millisecond, on the way to an error alone

    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(word.lower())
    best, highest = None, 0.0
    for candidate in words:
        matcher.set_seq1(candidate.lower())
        # Upper bounds first: among thousands of names few are compared in full.
        if (
            matcher.real_quick_ratio() > highest
            and matcher.quick_ratio() > highest
            and (ratio := matcher.ratio()) > highest
            and ratio >= _NEAR
        ):
            best, highest = candidate, ratio
    return best


def did_you_mean(word: str, words: Iterable[str], otherwise: str | None = None) -> str | None:
    """Return the help for a word that is none of `words`: the nearest one, else `otherwise`."""
    near = closest(word, words)
    return f"did you mean `{near}`?" if near else otherwise


def unknown_name(message: str, name: str, known: Iterable[str]) -> UsageError:
    """Return the error for a name that is none of `known`.

    Args:
        message: What is wrong.
        name: The name.
        known: The names there are, of which the nearest goes into the help; if none is near, the
            help lists them as long as they are few.
    """
    names = list(dict.fromkeys(known))
    listed = ", ".join(f"`{known_name}`" for known_name in names)
    everything = f"there are {listed}" if names else "there are none"
    if len(names) == 1:
        everything = f"there is {listed}"
    return UsageError(
        message, help=did_you_mean(name, names, everything if len(names) <= _SHOWN else None)
    )


def missing_file_help(path: str, suffix: str = "") -> str | None:
    """Return the help for a file that does not exist: the nearest one with that suffix, if any."""
    near = closest_path(path, suffix)
    return f"did you mean `{near}`?" if near else None


def closest_path(path: str, suffix: str = "") -> str | None:
    """Return the path of a file that `path`, which leads nowhere, was probably meant to be.

    Args:
        path: What was asked for; one wrong part of it is mended, and a missing suffix.
        suffix: How the names of the files that count end; every file counts where it is empty.

    Returns:
        A path that exists; None where nothing near exists, or the directory cannot be listed.
    """
    directory, name = os.path.split(path.rstrip(os.sep + (os.altsep or "")))
    try:
        with os.scandir(directory or os.curdir) as entries:
            names = sorted(
                entry.name for entry in entries if entry.is_dir() or entry.name.endswith(suffix)
            )
    except (OSError, ValueError):
        parent = closest_path(directory) if directory and directory != path else None
        found = None if parent is None else os.path.join(parent, name)
        return found if found is not None and os.path.exists(found) else None
    # What all names end with says nothing of how near they are.
    stems = {entry.removesuffix(suffix): entry for entry in names}
    stem, ending = os.path.splitext(name)
    near = closest(stem if closest(ending, [suffix]) else name, stems)
    return None if near is None else os.path.join(directory, stems[near])
