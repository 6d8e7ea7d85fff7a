"""The blocks of a text report, lines and tables, and the grouping of equal facts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from onnx_kvtool.core.words import counted

if TYPE_CHECKING:
    from onnx_kvtool.analysis.caches import Cache


# Sentences that differ only in names, as those of the layers of a decoder.


_T = TypeVar("_T")

_NAME = re.compile(r"(?<!size )`[^`\s()\[\]]*[^`\s()\[\]0-9][^`\s()\[\]]*`")
"""A name between backticks: one word, no number, and not that of a size."""


def form(sentences: Sequence[str]) -> tuple[str, ...]:
    """Return sentences with a number for each name, which are the same for all layers.

    Sizes and expressions stay: they are part of a proof.
    """
    numbers: dict[str, int] = {}
    return tuple(
        _NAME.sub(lambda name: f"`#{numbers.setdefault(name[0], len(numbers))}`", sentence)
        for sentence in sentences
    )


def groups_alike(items: Iterable[_T], key: Callable[[_T], Hashable]) -> list[list[_T]]:
    """Gather items with the same key, in the order of their first ones."""
    groups: dict[Hashable, list[_T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def and_others(label: str, others: int) -> str:
    """Return a label with the number of others that are alike."""
    return f"{label} and {counted(others, 'other')} alike" if others else label


# The blocks of a report for people, independent of where it is printed.


VERDICT_STYLES = {
    "equal": "green",
    "different": "bold red",
    "skipped": "yellow",
    "unrunnable": "yellow",
}
"""Style of the label of a comparison, by how it ended."""


class Line(NamedTuple):
    """`label: text` on one line.

    Attributes:
        label: What the text is about.
        text: The text; names in it come from a model and are not escaped yet.
        style: Style of the label, in rich's words.
    """

    label: str
    text: str
    style: str = "bold"


class Grid:
    """A table; each cell is on one line.

    Args:
        titles: Titles of the columns; one text with commas between them if none has a comma.
        rows: Cells of each row, as many as there are columns; not escaped yet.
        spare: Titles of columns that a narrow terminal omits, the least important first.
    """

    def __init__(
        self, titles: str | Iterable[str], rows: Iterable[Iterable[str]], spare: str = ""
    ) -> None:
        self.header = tuple(titles.split(", ") if isinstance(titles, str) else titles)
        self.rows = tuple(map(tuple, rows))
        self.spare = spare.split(", ")


class Marked(NamedTuple):
    """A line of its own with some places highlighted on a terminal.

    Attributes:
        text: The line, all of it printable.
        spans: Places as (begin, end), counted in characters.
    """

    text: str
    spans: tuple[tuple[int, int], ...] = ()


Block = Line | Grid | Marked


def named(path: str) -> str:
    """Return the name of a model by its path: `-` for standard input, "" for one in memory."""
    return {"-": "standard input", "": "a model in memory"}.get(path, path)


# Caches of several layers that differ only in their names, gathered in one line.


_NUMBER = re.compile(r"\d+")


class Group(NamedTuple):
    """Caches with the same facts.

    Attributes:
        name: Their common name, `key_cache.{0..31}`, or the name of the only one.
        caches: The caches, in the order of the table.
        places: Their positions in the table.
        reason: Why they cannot be updated in place, with `{}` for the changing number; None if
            they can.
    """

    name: str
    caches: tuple[Cache, ...]
    places: tuple[int, ...]
    reason: str | None


def cache_groups(caches: Sequence[Cache]) -> list[Group]:
    """Gather caches whose names differ in one number and whose other facts are equal.

    The groups come in the order of their first members.
    """
    keys: list[tuple[str, Hashable]] = []
    for cache in caches:
        key = (
            cache.kind,
            cache.location.op,
            cache.dtype,
            cache.shape,
            cache.axis,
            cache.mode,
            cache.is_growing,
            cache.batch_axis,
            cache.past is None,
            cache.in_place.possible,
            without_numbers(cache.in_place.reason or ""),
        )
        keys.append((cache.past or cache.present or "", key))
    return [_group(name, places, caches) for name, places in name_groups(keys)]


def name_groups(named: Sequence[tuple[str, Hashable]]) -> list[tuple[str, list[int]]]:
    """Gather items that differ only in one number of their names.

    Returns:
        The common name, `key.{0..31}`, and the positions of the members of each group, in the order
        of their first ones.
    """
    keys = [(without_numbers(name), key) for name, key in named]
    groups: list[tuple[str, list[int]]] = []
    for places in groups_alike(range(len(named)), keys.__getitem__):
        common = joined([named[place][0] for place in places])
        if common is None:
            groups.extend((named[place][0], [place]) for place in places)
        else:
            groups.append((common, places))
    return sorted(groups, key=lambda group: group[1][0])


def _group(name: str, places: Sequence[int], caches: Sequence[Cache]) -> Group:
    members = tuple(caches[p] for p in places)
    reason = members[0].in_place.reason
    if reason is not None and len(members) > 1:
        reason = common([m.in_place.reason or "" for m in members])
    return Group(name, members, tuple(places), reason)


_PLAIN = re.compile(r"0|[1-9][0-9]{0,8}")
"""A number without leading zeros, and too short for a digest."""


def joined(names: Sequence[str]) -> str | None:
    """Return one name for several that differ in one number: `key.{0,2..5}`.

    None when they differ otherwise. One name stands for itself.
    """
    if len({without_numbers(name) for name in names}) > 1:
        return None
    columns = zip(*(re.split(r"(\d+)", name) for name in names), strict=True)
    parts = [list(dict.fromkeys(column)) for column in columns]
    changing = [part for part in parts if len(part) > 1]
    if len(changing) > 1 or not all(map(_PLAIN.fullmatch, itertools.chain(*changing))):
        return None
    return "".join(part[0] if len(part) == 1 else _listed(part) for part in parts)


def _listed(numbers: Iterable[str]) -> str:
    """Return numbers in braces, three and more in a row by their ends: `{0,2..5}`."""
    texts: list[str] = []
    for run in runs(sorted(map(int, numbers))):
        texts.extend([f"{run[0]}..{run[-1]}"] if len(run) > 2 else map(str, run))
    return "{" + ",".join(texts) + "}"


def runs(numbers: Iterable[int]) -> Iterator[list[int]]:
    """Yield ascending numbers in lists, each of numbers that follow one another."""
    for _, run in itertools.groupby(enumerate(numbers), lambda each: each[1] - each[0]):
        yield [number for _, number in run]


def shortened(names: Sequence[str], most: int) -> str:
    """Return the first names with the number of the others: `a, b and 3 more`."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def without_numbers(name: str) -> Hashable:
    """Return a key that names share which differ in their numbers alone."""
    return tuple(_NUMBER.split(name))


def common(texts: Sequence[str]) -> str:
    """Return the common form of texts with one pattern, numbers that differ as `{}`."""
    columns = zip(*(re.split(r"(\d+)", text) for text in texts), strict=True)
    return "".join(column[0] if len(set(column)) == 1 else "{}" for column in columns)
