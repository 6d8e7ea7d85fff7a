"""The sizes and starts of the runs of models, and the ways to read a model's dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Kind = Literal["batch", "length", "past", "total", "capacity", "size", "lone"]
"""What a symbolic dimension counts: sequences; new rows; rows of a growing cache; all rows that a
mask covers; rows that a fixed cache holds; something else; either sequences or rows."""

Start = Literal["zero", "anywhere", "end", "far"]

Padding = Literal["usual", "none", "left", "right"]
"""Which rows a mask leaves out: such that no query looks at nothing, none, those before the tokens
of a sequence, or those after them."""

Range = Literal[
    "moderate",
    "edges",
    "small",
    "wide",
    "positive",
    "negative",
    "large",
    "huge",
    "distant",
    "whole",
    "below",
]
"""Which values are drawn where nothing else limits them: safe ones; those around the points of the
model, zeros and ties among them; floats near 0 and a few integers; floats of ten times the usual
size and all integers of a type; floats above 0; those below 0; floats of a hundred times the usual
size; those whose squares are infinite; those that are near each other and far from 0; whole numbers
that add up to points of the model; ids that count from the end."""

Sizes: TypeAlias = Mapping[str, int]
"""Sizes of symbolic dimensions, by name."""

Shape: TypeAlias = tuple[int, ...]

CAPACITY = 13
"""Rows of a fixed cache whose size is free: more than any case writes, decode steps included."""


@dataclass(frozen=True, slots=True)
class Case:
    """One set of sizes and starts.

    Attributes:
        name: What it stands for.
        batch: Number of sequences.
        length: Number of new rows.
        past: Rows that growing caches hold already.
        start: Where new rows are written: at 0, anywhere, in one sequence up to the very end (in
            circular mode across it), or in circular mode so far on that int32 does not hold it.
        padding: Which rows a mask leaves out that has a column for each of all rows.
        chunks: New rows of each step that follows; None for the wanted number of one-row steps.
        sizes: Sizes of symbolic dimensions in this case alone.
        values: Which values are drawn for inputs that no role limits.
        capacity: Rows of fixed caches whose size is free.
        extra: Added to the sizes of pictures, and to other sizes that no role explains.
        reaches: Whether it has as many rows as windows, limits and tables of the model ask for.
        overrides: Whether inputs that have a default get another value.
    """

    name: str
    batch: int
    length: int
    past: int
    start: Start
    padding: Padding = "usual"
    chunks: tuple[int, ...] | None = None
    sizes: tuple[tuple[str, int], ...] = ()
    values: Range = "moderate"
    capacity: int = CAPACITY
    extra: int = 0
    reaches: bool = False
    overrides: bool = False


CASES: tuple[Case, ...] = (
    Case("a prompt for two empty caches", batch=2, length=3, past=0, start="zero"),
    Case(
        "one token for one sequence",
        batch=1,
        length=1,
        past=4,
        start="anywhere",
        values="small",
        extra=2,
    ),
    Case(
        "rows at three different positions",
        batch=3,
        length=2,
        past=5,
        start="anywhere",
        values="edges",
        extra=1,
        overrides=True,
    ),
    Case(
        "rows up to the end of the cache",
        batch=2,
        length=5,
        past=3,
        start="end",
        values="wide",
        extra=3,
        reaches=True,
    ),
)
"""Sizes differ within a case as far as they are free, so that an axis mistaken for another changes
a shape or a value."""


_STARTS: dict[Start, str] = {
    "zero": "to empty caches",
    "anywhere": "at different positions",
    "end": "up to the end of the cache",
}


def cases_of(count: int) -> tuple[Case, ...]:
    """Return `count` cases: those of `CASES`, then variations of them in other sizes."""
    return tuple(_case(number) for number in range(count))


def _case(number: int) -> Case:
    base, turn = CASES[number % len(CASES)], number // len(CASES)
    if turn == 0:
        return base
    # Periods without a common divisor, so that many cases go by before a pair of sizes returns.
    batch, length = 1 + (base.batch + turn) % 4, 1 + (base.length + 2 * turn) % 7
    past = 0 if base.start == "zero" else 1 + (base.past + turn) % 9
    name = f"case {number + 1}, {batch} x {length} rows {_STARTS[base.start]}"
    values = _RANGES[number % len(_RANGES)]
    return Case(name, batch, length, past, base.start, values=values, extra=number % 4)


_RANGES: tuple[Range, ...] = ("moderate", "small", "edges", "wide", "edges")
"""One more than there are starts, so that each start meets each range."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read dimensions that can be read in several ways.

    Attributes:
        changes: Other sizes and starts than those of the case, by its attributes.
        lone: What the only dimension of an input counts when nothing else tells.
        total: What the last dimension of a mask counts.
        size: Size of dimensions that count something else; None for sizes that are all different.
    """

    changes: Mapping[str, Any] = field(default_factory=dict)
    lone: Kind = "batch"
    total: Kind = "total"
    size: int | None = None


LIKELIEST = Reading()

_HEAD_SIZES = (8, 16, 32, 64, 128)

READINGS: tuple[Reading, ...] = (
    LIKELIEST,
    Reading(lone="length"),
    Reading({"past": 4}),
    Reading(total="capacity"),
    Reading(total="length"),
    Reading({"start": "zero"}),
    Reading({"start": "zero"}, lone="length"),
    Reading({"batch": 1}),
    Reading({"batch": 1, "past": 0}),
    Reading({"batch": 1, "length": 1}),
    *(Reading(size=size) for size in _HEAD_SIZES),
    *(Reading({"batch": 1, "past": 0}, size=size) for size in _HEAD_SIZES),
)
"""The likeliest first. What counts what is partly guessed from names; some exporters write models
that run for one sequence only, and some leave the head size symbolic though weights fix it."""
