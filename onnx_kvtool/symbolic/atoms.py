"""The variables of an expression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import onnx_ir as ir

if TYPE_CHECKING:
    from onnx_kvtool.symbolic.expression import Expr

__all__ = [
    "Atom",
    "Choice",
    "Coordinate",
    "Dimension",
    "Element",
    "Extent",
    "IsNegative",
    "IsZero",
    "Largest",
    "Lookup",
    "Modulo",
    "Quotient",
]


@dataclass(frozen=True, slots=True)
class Coordinate:
    """The coordinate along an axis of the value that is described, counted from 0."""

    axis: int

    @property
    def parts(self) -> tuple[Expr, ...]:
        """The expressions inside: none."""
        return ()


@dataclass(frozen=True, slots=True)
class Dimension:
    """A symbolic dimension, by its name; one name stands for one size in a whole graph."""

    name: str

    @property
    def parts(self) -> tuple[Expr, ...]:
        """The expressions inside: none."""
        return ()


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of `value` along `axis`, where it has no name; `axis` is an expression."""

    value: ir.Value
    axis: Expr

    def __repr__(self) -> str:
        """Name the value: its own form shows what a constant holds, and reads it for that."""
        return f"Extent({self.value.name!r}, {self.axis})"

    @property
    def parts(self) -> tuple[Expr, ...]:
        """The expressions inside."""
        return (self.axis,)


@dataclass(frozen=True, slots=True)
class Element:
    """The element of `value` at `index`, about which nothing more is known.

    `Element(w, (coordinate(0),))` is a number per batch row, `Element(p, (integer(0),))` or
    `Element(p, ())` one number, `Element(p, (coordinate(2),))` a free position per row.
    """

    value: ir.Value
    index: tuple[Expr, ...]

    def __repr__(self) -> str:
        """Name the value: its own form shows what a constant holds, and reads it for that."""
        return f"Element({self.value.name!r}, {self.index})"

    @property
    def parts(self) -> tuple[Expr, ...]:
        """The expressions inside."""
        return self.index


@dataclass(frozen=True, slots=True)
class Lookup:
    """The number at place `index` of a list of constants; `index` is within the list."""

    numbers: tuple[int, ...]
    index: Expr

    @property
    def parts(self) -> tuple[Expr, ...]:
        """The expressions inside."""
        return (self.index,)


@dataclass(frozen=True, slots=True)
class Modulo:
    """`of` modulo `by`, with the sign of `by`, as Mod with `fmod=0`."""

    of: Expr
    by: Expr

    @property
    def parts(self) -> tuple[Expr, ...]:
        """The expressions inside."""
        return (self.of, self.by)


@dataclass(frozen=True, slots=True)
class Quotient:
    """`of` divided by `by` and rounded down."""

    of: Expr
    by: Expr

    @property
    def parts(self) -> tuple[Expr, ...]:
        """The expressions inside."""
        return (self.of, self.by)


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest of some expressions. The smallest is minus the largest of the negated ones."""

    of: frozenset[Expr]

    @property
    def parts(self) -> tuple[Expr, ...]:
        """The expressions inside."""
        return tuple(self.of)


@dataclass(frozen=True, slots=True)
class IsNegative:
    """1 where `of` is below zero, else 0."""

    of: Expr

    @property
    def parts(self) -> tuple[Expr, ...]:
        """The expressions inside."""
        return (self.of,)


@dataclass(frozen=True, slots=True)
class IsZero:
    """1 where `of` is zero, else 0."""

    of: Expr

    @property
    def parts(self) -> tuple[Expr, ...]:
        """The expressions inside."""
        return (self.of,)


@dataclass(frozen=True, slots=True)
class Choice:
    """`yes` where `condition` (0 or 1) is 1, else `no`."""

    condition: Expr
    yes: Expr
    no: Expr

    @property
    def parts(self) -> tuple[Expr, ...]:
        """The expressions inside."""
        return (self.condition, self.yes, self.no)


Atom: TypeAlias = (
    Coordinate
    | Dimension
    | Extent
    | Element
    | Lookup
    | Modulo
    | Quotient
    | Largest
    | IsNegative
    | IsZero
    | Choice
)
"""Each has `parts`: the expressions inside."""
