"""What reports share: how they are shown, and what a proof covered."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from onnx_kvtool import core
from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.record import Key, Record
from onnx_kvtool.core.words import counted, enumerated


class Shown(Record):
    """A report that prints as the text of its command, and shows as a page in a notebook.

    The code that shows reports is in a higher layer. It is loaded only when somebody looks at one.

    Examples:
        >>> print(kv.verify("decoder.onnx", "decoder.onnx", cases=1))  # doctest: +ELLIPSIS
        equal: decoder.onnx and decoder.onnx in onnxruntime ...
    """

    __slots__ = ()

    def __str__(self) -> str:
        return str(_shown().text(self))

    def _repr_html_(self) -> str:
        return str(_shown().html(self))

    def to_frame(self, table: str | None = None) -> Any:
        """Return one of the tables of the report as a `pandas.DataFrame`, a row for each entry.

        A value inside another is a column with a dot in its name, such as `location.node`.

        Args:
            table: A key of the JSON form that is a list, such as `caches` or `outputs`; also
                `findings` and `operators`. None for the main table of this report.

        Raises:
            UsageError: If the report has no such table.
            KvtoolError: If pandas is not installed.
        """
        return _shown().frame(self, table)


def _shown() -> Any:
    assert core.load_shown is not None  # set where the package begins
    return core.load_shown()


@dataclass(frozen=True, slots=True)
class Shrunken(Record):
    """A property that is smaller in the copies than in the models.

    Attributes:
        what: What is smaller, in the plural (`widths`, `rows of tables`).
        before: Number or size in the models.
        after: Number or size in the copies.
    """

    what: str
    before: int
    after: int

    JSON = ("what", Key("before", "from"), Key("after", "to"))


Remedy = Literal["places", "values", "lengths", "none"]
"""What closes a gap: a test of all places, other values, longer runs; or nothing."""


@dataclass(frozen=True, slots=True)
class Place:
    """A value that both models have, at a rewritten place.

    Attributes:
        a: Name of the value in the main graph of A.
        b: Name of the value in the main graph of B.
        location: The rewritten node of A. It may be in a sub-graph or a function; `a` is then a
            value of the node of the main graph around it.
    """

    a: str
    b: str
    location: Location


@dataclass(frozen=True, slots=True)
class Unnoticed(Record):
    """A place where a mistake would not have been noticed.

    Attributes:
        location: The node that was rewritten, and the value that was perturbed.
        why: Why no comparison noticed it.
    """

    location: Location
    why: str

    JSON = (Key("location", parts=("graph", "node", "value")), "why")


@dataclass(frozen=True, slots=True)
class NamedTolerance(Record):
    """The tolerance of an output, and its reason.

    Attributes:
        rtol: Relative tolerance; 0 for bit-identical outputs.
        atol: Absolute tolerance; 0 for bit-identical outputs.
        because: The type, operator or value on the path of the output that sets it.
    """

    rtol: float
    atol: float
    because: str


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that a comparison did not cover.

    Attributes:
        what: Description, one sentence without a full stop.
        remedy: What would cover it.
    """

    what: str
    remedy: Remedy


@dataclass(frozen=True, slots=True)
class Covered(Record):
    """What a comparison of two models covered.

    Attributes:
        places: Rewritten places; in `verify`, values that correspond in the two models.
        noticed: Places where a comparison noticed a planted mistake, there or in a place that is
            alike.
        unnoticed: Places where no comparison noticed the planted mistake.
        lengths: Most rows of a cache or table in use; None without any.
        rows: Rows of the largest cache or table; None without any.
        not_finite: Outputs without a finite value in any run.
        constant: Outputs with the same value in all elements of all runs.
        unproven: Outputs that were not compared because they depend on random numbers.
        tolerance: The tolerance of each output, by name.
    """

    places: int = 0
    noticed: int = 0
    unnoticed: tuple[Unnoticed, ...] = ()
    lengths: int | None = None
    rows: int | None = None
    not_finite: tuple[str, ...] = ()
    constant: tuple[str, ...] = ()
    unproven: tuple[str, ...] = ()
    tolerance: Mapping[str, NamedTolerance] = field(default_factory=dict)

    def of(self, outputs: Mapping[str, str]) -> Covered:
        """Return the same with names of the model; `outputs` has them by those of the copy."""

        def own(names: Collection[str]) -> tuple[str, ...]:
            return tuple(name for name, copy in outputs.items() if copy in names)

        known = self.tolerance
        return replace(
            self,
            not_finite=own(self.not_finite),
            constant=own(self.constant),
            unproven=own(self.unproven),
            tolerance={name: known[copy] for name, copy in outputs.items() if copy in known},
        )

    @property
    def untried(self) -> int:
        """Number of places where no mistake was planted."""
        return self.places - self.noticed - len(self.unnoticed)

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What was not covered; empty if everything was."""
        found = []
        if self.unnoticed:
            first, others = self.unnoticed[0], len(self.unnoticed) - 1
            more = f", nor at {counted(others, 'other place')}" if others else ""
            text = f"a mistake at {first.location} would not be noticed: {first.why}{more}"
            found.append(Gap(text, "values"))
        if self.untried:
            text = f"no mistake was planted at {self.untried} of {counted(self.places, 'place')}"
            found.append(Gap(text, "places"))
        if (self.lengths or 0) < (self.rows or 0):
            text = f"no run reached row {self.rows}, the longest had {self.lengths or 0} in use"
            found.append(Gap(text, "lengths"))
        for names, text, remedy in (
            (self.not_finite, "no run gave a finite value of", "values"),
            (self.constant, "all runs gave one value of", "values"),
            (self.unproven, "random numbers go into", "none"),
        ):
            if names:
                found.append(Gap(f"{text} {enumerated(names)}", cast(Remedy, remedy)))
        return tuple(found)


def missing(covered: Covered | None) -> str | None:
    """Return what a comparison did not cover, as text; None if it covered everything."""
    if covered is None:
        return "it is unknown what the comparison covered"
    return "; ".join(gap.what for gap in covered.gaps) or None
