"""Which sizes are one: as the operators of a model demand it, or as a user grants it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from onnx_kvtool.core.location import Location
from onnx_kvtool.core.record import Key, Record
from onnx_kvtool.symbolic.atoms import Atom, Dimension, Element, Extent
from onnx_kvtool.symbolic.bounds import Facts, interval
from onnx_kvtool.symbolic.dims import Dim
from onnx_kvtool.symbolic.expression import Expr, integer, variable
from onnx_kvtool.symbolic.sizes import HEAVIEST, normal, words
from onnx_kvtool.symbolic.substitute import substitute

__all__ = ["Equality", "SizeEqualities"]


@dataclass(frozen=True, slots=True)
class Equality(Record):
    """Two texts that stand for one size.

    Attributes:
        name: A name, or an expression over names.
        equals: Another one, or a number.
        location: The value whose size it is, and the node that demands it.
        why: The demand, in words.
    """

    name: str
    equals: str
    location: Location
    why: str

    JSON = (
        "name",
        "equals",
        Key("location", parts=("value", "node", "index", "op", "graph")),
        "why",
    )


class SizeEqualities:
    """The sizes that are equal in every run that does not fail.

    A run fails where an operator meets sizes that it does not allow, so what an operator demands
    holds for the sizes of every output.

    Args:
        granted: Pairs of dimensions that are equal, such as `--assume same-dim:A=B` grants.

    Raises:
        ValueError: If two sizes become equal that cannot be, or a pair has a dimension that is
            None.
    """

    def __init__(self, granted: Iterable[tuple[Dim, Dim]] = ()) -> None:
        self._meaning: dict[Atom, Expr] = {}
        self._found: dict[tuple[str, str], Equality] = {}
        for a, b in granted:
            one, other = self.of_dim(a), self.of_dim(b)
            if one is None or other is None:
                raise ValueError(f"a dimension of which nothing is known cannot be {a or b}")
            if not self._unite(one, other):
                raise ValueError(f"`{a}` and `{b}` would make {one} equal to {other}")

    def __iter__(self) -> Iterator[Equality]:
        """Yield the equalities between names, in the order in which they were found."""
        return iter(self._found.values())

    @property
    def learned(self) -> int:
        """How many atoms stand for something else; it grows with each size that is equated."""
        return len(self._meaning)

    def of_dim(self, dim: Dim) -> Expr | None:
        """Return what stands for all dimensions that are equal to `dim`; None stays None.

        That is a number where there is one, else the name that was there first. An expression is
        one name in its normal form here: `s6 + 1` and `1 + s6` are one size. That it is the sum of
        `s6` and 1 is the exporter's word, and no fact.
        """
        known = normal(dim) if isinstance(dim, str) else dim
        if known is None:
            return None
        if isinstance(known, int):
            return integer(known)
        return self.resolved(variable(Dimension(known)))

    def same(self, a: Expr, b: Expr) -> bool:
        """Return whether the two are certainly one size."""
        return a == b or (bool(self._meaning) and self.resolved(a) == self.resolved(b))

    def differ(self, a: Expr, b: Expr) -> bool:
        """Return whether the two are certainly different sizes."""
        if a == b:
            return False
        low, high = interval(self.resolved(a) - self.resolved(b), Facts())
        return low > 0 or high < 0

    def resolved(self, size: Expr, *, unnamed_only: bool = False) -> Expr:
        """Return a size with each atom that equals something else replaced.

        Args:
            size: The size.
            unnamed_only: Whether names stay and only sizes without one are replaced.
        """
        if not self._meaning:
            return size
        for _ in range(len(self._meaning) + 1):
            known = {
                atom: self._meaning[atom]
                for atom in size.atoms()
                if atom in self._meaning and not (unnamed_only and isinstance(atom, Dimension))
            }
            if not known or size.weight > HEAVIEST:
                break
            size = substitute(size, {}, Facts(), known)
        return size

    def equate(self, a: Expr, b: Expr, location: Location, why: str) -> bool:
        """Take two sizes for one; return False where that cannot be.

        Args:
            a: A size.
            b: Another one.
            location: The value and the node at which they meet.
            why: What demands it, for the report.
        """
        if self.same(a, b):
            return True
        if not self._unite(self.resolved(a), self.resolved(b)):
            return False
        self.note(a, b, location, why)
        return True

    def note(self, a: Expr, b: Expr, location: Location, why: str) -> None:
        """Remember for the report that two texts stand for one size, and use it for nothing."""
        left, right = words(a), words(b)
        if left is None or right is None or left == right:
            return
        if a.number is not None:
            left, right = right, left
        self._found.setdefault((left, right), Equality(left, right, location, why))

    def _unite(self, one: Expr, other: Expr) -> bool:
        """Take two resolved sizes for one; return False where that cannot be."""
        low, high = interval(one - other, Facts())
        if low > 0 or high < 0:
            return False
        if one != other:
            self._learn(one, other)
        return True

    def _learn(self, one: Expr, other: Expr) -> None:
        """Let an atom of the two stand for the rest, the least telling atom there is.

        What both have in common says nothing: where `a + n` is `b + n`, `a` is `b`.
        """
        difference = one - other
        above = Expr.of({m: k for m, k in difference.terms if k > 0})
        below = Expr.of({m: -k for m, k in difference.terms if k < 0})
        one, other = above, below
        choices = [
            (_rank(expr), atom, rest)
            for expr, rest in ((other, one), (one, other))
            if isinstance(atom := expr.atom, (Extent, Element, Dimension))
            and atom not in set(rest.atoms())
        ]
        if choices:
            _, atom, rest = min(choices, key=lambda choice: choice[0])
            self._meaning[atom] = rest


def _rank(expr: Expr) -> int:
    atom = expr.atom
    if isinstance(atom, Extent):
        return 0
    return 1 if isinstance(atom, Element) else 2
