"""Numbers, names and text of models, for people: counted, escaped, suggested."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from onnx_kvtool.core.errors import UsageError

# Numbers and names for people: bytes, counts, lists.


_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")


def binary_bytes(number: float) -> str:
    """Return a number of bytes in the largest unit of 1024 that it fills: `1.5 KiB`.

    One digit behind the point is shown, and none where it would be 0.
    """
    size, unit = float(number), 0
    # 1023.95 would be shown as 1024.0 of a unit that it fills.
    while size >= 1023.95 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    text = f"{size:.1f}".removesuffix(".0")
    return f"{text} {_UNITS[unit]}"


def shape_text(shape: Iterable[object] | None) -> str:
    """Return a shape as text: `(batch, 32, ?)`; `-` for an unknown rank."""
    if shape is None:
        return "-"
    return "(" + ", ".join("?" if dim is None else str(dim) for dim in shape) + ")"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return `1 node` or `1,234 nodes`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def enumerated(names: Iterable[str], most: int = 4) -> str:
    """Return names in backticks, separated by commas; those after `most` are counted."""
    all_names = list(names)
    shown = ", ".join(f"`{name}`" for name in all_names[:most])
    rest = len(all_names) - most
    return f"{shown} and {rest:,} more" if rest > 0 else shown


_SIZES = {"b": 1, **{f"{p}b": 1000**n for n, p in enumerate("kmgtp", 1)}}
_SIZES |= {f"{p}ib": 1024**n for n, p in enumerate("kmgtp", 1)}


def bytes_of(text: str) -> int | None:
    """Return the bytes that a text such as `1.5GiB`, `300 MB` or `4096` states; None for others.

    A unit is a power of 1024 with an `i` and of 1000 without; case does not matter.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    unit = None if found is None else _SIZES.get(found[2].lower() or "b")
    return None if found is None or unit is None else int(float(found[1]) * unit)


# Text that comes from a model, made safe to print.


_COMMAND = re.compile(r"(?P<before>^ *):(?=:)|#(?=#(\[|vso\[))")
"""The first character of what the log of a CI job obeys: GitHub Actions, Azure Pipelines."""


def escape(text: str) -> str:
    r"""Return `text` in one line, with whatever acts on its reader written as an escape (`\x1b`).

    Strings in a model are arbitrary: a line break would fake a line of the report, an escape
    sequence would act on the terminal, and `::error` at the start or `##[error]` anywhere is a
    command to the log of a CI job. Spaces stay; so does every printable character of any script.
    """
    if not text.isprintable():
        text = "".join(char if char.isprintable() else _written(char) for char in text)
    if "::" in text or "##" in text:
        text = _COMMAND.sub(lambda found: (found["before"] or "") + _code(found[0][-1]), text)
    return text


def escape_lines(text: str) -> str:
    """Return text of several lines with each line escaped, such as a traceback."""
    return "\n".join(map(escape, text.split("\n")))


def _written(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode()


def _code(char: str) -> str:
    return f"\\x{ord(char):02x}"


# Suggestions for unknown names.
#
# Every unknown command, option, rule, runtime, operator, value, dimension, attribute and file gets
# the nearest one as help, from the functions of this module.


_NEAR = 0.6
"""Share of characters, in order, that two names must have in common."""

_SHOWN = 12
"""Most names that the help lists in full."""


def closest(word: str, words: Iterable[str]) -> str | None:
    """Return the most similar word of `words`; None if none is similar.

    Case does not count. Of words that are equally near the first is taken.
    """
    from difflib import SequenceMatcher  # costs a millisecond, only before an error

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

    The help has the nearest of these names, or some of them if none is near.
    """
    names = list(dict.fromkeys(known))
    if not names:
        return UsageError(message, help="there are none")
    listed = enumerated(names, _SHOWN if len(names) <= _SHOWN else 4)
    choice = listed if len(names) == 1 else f"one of {listed}"
    return UsageError(message, help=did_you_mean(name, names, f"use {choice}"))


def missing_file_help(path: str, suffix: str = "") -> str | None:
    """Return the help for a file that does not exist: the nearest one with that suffix, if any."""
    near = closest_path(path, suffix)
    return f"did you mean `{near}`?" if near else None


def closest_path(path: str, suffix: str = "") -> str | None:
    """Return the existing file most similar to the missing `path`.

    It differs in one wrong part, or by a missing suffix. None where nothing near exists, or the
    directory cannot be listed.
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
    # The common suffix of all names does not count.
    stems = {entry.removesuffix(suffix): entry for entry in names}
    stem, ending = os.path.splitext(name)
    near = closest(stem if closest(ending, [suffix]) else name, stems)
    return None if near is None else os.path.join(directory, stems[near])
