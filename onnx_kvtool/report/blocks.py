"""The blocks of a text report, lines and tables, and the grouping of equal facts."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

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


@dataclass(frozen=True, slots=True)
class Line:
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


@dataclass(frozen=True, slots=True)
class Marked:
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


@dataclass(frozen=True, slots=True)
class Group:
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
    found: defaultdict[tuple[str, Hashable], list[int]] = defaultdict(list)
    for place, (name, key) in enumerate(named):
        found[without_numbers(name), key].append(place)
    groups: list[tuple[str, list[int]]] = []
    for places in found.values():
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
    distinct = list(dict.fromkeys(names))
    if len(distinct) == 1:
        return distinct[0]
    parts = [re.split(r"(\d+)", name) for name in distinct]
    if len({without_numbers(name) for name in distinct}) > 1:
        return None
    changing = [i for i, column in enumerate(zip(*parts, strict=True)) if len(set(column)) > 1]
    if len(changing) != 1 or not all(_PLAIN.fullmatch(p[changing[0]]) for p in parts):
        return None
    (place,) = changing
    numbers = sorted(int(p[place]) for p in parts)
    first = parts[0]
    return "".join((*first[:place], "{" + _ranges(numbers) + "}", *first[place + 1 :]))


def _ranges(numbers: Sequence[int]) -> str:
    texts: list[str] = []
    start = previous = numbers[0]
    for number in (*numbers[1:], None):
        if number == previous + 1:
            previous = number
            continue
        run = range(start, previous + 1)
        texts.extend([f"{start}..{previous}"] if len(run) > 2 else map(str, run))
        if number is not None:
            start = previous = number
    return ",".join(texts)


def without_numbers(name: str) -> str:
    """Return a name with `#` for each number in it."""
    return _NUMBER.sub("#", name)


def common(texts: Sequence[str]) -> str:
    """Return the common form of texts with one pattern, numbers that differ as `{}`."""
    columns = zip(*(re.split(r"(\d+)", text) for text in texts), strict=True)
    return "".join(column[0] if len(set(column)) == 1 else "{}" for column in columns)
