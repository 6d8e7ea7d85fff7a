"""What is known of the values of a model while inference goes on."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.record import Key, Record
from onnx_kvtool.symbolic.broadcasting import SizeEqualities
from onnx_kvtool.symbolic.dimensions import Dims, Shape
from onnx_kvtool.symbolic.expressions import Atom, Expr, Extent, Largest, integer, variable
from onnx_kvtool.symbolic.simplification import Facts, simplified


@dataclass(frozen=True, slots=True)
class Lost(Record):
    """Where a fact was lost first.

    Attributes:
        location: The value and the node that makes it; for an input, no node.
        code: Stable identifier of the kind of reason.
        why: The reason, a clause without a full stop.
    """

    location: Location
    code: str
    why: str


@dataclass(frozen=True, slots=True)
class Conflict(Record):
    """Two contradictory facts.

    Attributes:
        code: Stable identifier of the kind of conflict.
        location: The value and the node where the two meet.
        declared: What the file or the caller states: a shape as numbers, names and None; text if it
            is no shape.
        inferred: What inference found, or what the node requires, in the same form.
        message: Both as one sentence without a full stop.
        chain: The nodes that lead to `inferred`, in order, each with its result.
    """

    code: str
    location: Location
    declared: Dims | str
    inferred: Dims | str
    message: str
    chain: tuple[str, ...] = ()

    JSON = (Key("location", parts=("value", "node", "index", "op", "graph")), ...)


@dataclass(slots=True)
class Knowledge:
    """Types and shapes so far; a value that is not in `shapes` has an unknown rank.

    Attributes:
        types: Type of each value that has one.
        shapes: Size of each axis of each value of known rank.
        lost: Why the type or the rank of a value is unknown.
        lost_sizes: Why a size is unknown, by the atom that stands for it.
        equalities: Sizes that are equal.
        conflicts: Contradictions.
        legal: Sizes that are negative only in runs that fail.
        assumed: Sizes that are taken to be at least 1, each with the first place that needs it.
        may_be_empty: Sizes that may be 0; sizes that need them to be at least 1 stay unknown.
        unnamed_may_be_empty: Whether all sizes without a text may be 0.
        bounds: Facts about sizes that are granted.
    """

    types: dict[ir.Value, ir.TypeProtocol] = field(default_factory=dict)
    shapes: dict[ir.Value, Shape] = field(default_factory=dict)
    lost: dict[ir.Value, Lost] = field(default_factory=dict)
    lost_sizes: dict[Atom, Lost] = field(default_factory=dict)
    equalities: SizeEqualities = field(default_factory=SizeEqualities)
    conflicts: list[Conflict] = field(default_factory=list)
    legal: set[Expr] = field(default_factory=set)
    assumed: dict[Expr, Location] = field(default_factory=dict)
    may_be_empty: frozenset[Expr] = frozenset()
    unnamed_may_be_empty: bool = False
    bounds: Facts = field(default_factory=Facts)

    @property
    def may_say_more(self) -> bool:
        """Whether a size is the larger one of others, which bounds may decide."""
        sizes = (size for shape in self.shapes.values() for size in shape)
        return any(isinstance(atom, Largest) for size in sizes for atom in size.atoms())

    def within(self, size: Expr) -> Expr:
        """Return a size, simplified by the granted bounds."""
        if not self.bounds.nonnegative or size.number is not None:
            return size
        return simplified(self.equalities.resolved(size), self.bounds)

    def unknown_size(self, value: ir.Value, axis: int, lost: Lost) -> Expr:
        """Return the unknown size of `value` along `axis`, and remember the reason."""
        atom = Extent(value, integer(axis))
        self.lost_sizes[atom] = lost
        return variable(atom)
