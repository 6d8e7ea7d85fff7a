"""What an operator is, in the words by which passes choose: elementwise, view, part, mover, ...

A pass that asks what kind of thing an operator does asks here, never a list of names of its own.
The lines of the table stand in `ops.trait_table`; a test holds them against the schemas, and
against what onnx.reference computes.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onnx_kvtool.core.domains import canonical_domain

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

__all__ = ["OPAQUE", "Trait", "Traits", "TypeSource", "having", "traits", "traits_of"]


class Trait(enum.Enum):
    """One thing that is true of every version of an operator.

    "The input" is the first one, "the output" the first one; what further outputs hold is not said.
    """

    __hash__ = object.__hash__  # members are one object each; the hash of enum is slow

    SAME = enum.auto()
    """The output is the input. Implies VIEW and KEEPS_SHAPE."""

    VIEW = enum.auto()
    """The elements of the input in the same row-major order, with other dimensions, so that both
    may lie in one buffer. Implies REARRANGES."""

    REARRANGES = enum.auto()
    """Every element of the input once, the axes merged, divided or in another order; what lay along
    an axis still lies along one. Implies MOVES."""

    PART = enum.auto()
    """Some of the elements of the input: the outputs that are no indices hold a selection, in which
    one may stand twice. Implies SHIFTS."""

    REPEATS = enum.auto()
    """Every element of the input, some more than once. Implies MOVES."""

    SHIFTS = enum.auto()
    """Elements may stand at other positions of an axis than before: parts, values joined along an
    axis, what is behind padding. Implies MOVES."""

    UPDATES = enum.auto()
    """The input with something written into it, whose buffer the output may take over. With a
    `reduction`, it is computed with what was there. Implies MOVES and KEEPS_SHAPE."""

    MOVES = enum.auto()
    """Each element of the output is an element of an input, bit for bit, or a filling that is 0 in
    every type; which one does not depend on the elements that are moved. Not so for UPDATES with a
    `reduction`."""

    FILLS = enum.auto()
    """The elements are those of an attribute, or 0 and 1; inputs say at most how many there are."""

    CONVERTS = enum.auto()
    """The numbers of the input in another type, rounded in one way only, perhaps scaled. Implies
    KEEPS_SHAPE."""

    CASTS = enum.auto()
    """The numbers of the input as they are, in another type. Implies CONVERTS and ELEMENTWISE."""

    ELEMENTWISE = enum.auto()
    """Each element of the output is made of the elements at its place alone, of all inputs that do
    not stand for one number. Implies KEEPS_SHAPE where it does not broadcast."""

    BROADCASTS = enum.auto()
    """From opset 7 on the inputs are broadcast to one shape, which is that of the output. Implies
    ELEMENTWISE."""

    KEEPS_SHAPE = enum.auto()
    """The output has the shape of the input. Implies KEEPS_AXES."""

    KEEPS_AXES = enum.auto()
    """The output has the rank of the input, and each axis means what it meant there."""

    NORMALIZES = enum.auto()
    """The numbers along some axes of the input, put into proportion to each other. Implies
    KEEPS_SHAPE."""

    REDUCES = enum.auto()
    """One element is made of all those along some axes, which are named by `axes` or `axis`."""

    DECIDES = enum.auto()
    """Integers or booleans that are decided on by elements without rounding in between."""

    RANDOM = enum.auto()
    """Not the same when it is run again."""

    GIVES_SIZES = enum.auto()
    """The sizes of the input, as integers. Implies READS_SHAPE."""

    READS_SHAPE = enum.auto()
    """Nothing of the input is read but its type and shape."""

    COUNTS = enum.auto()
    """The shape of the output depends on the elements of the input."""

    CONVOLVES = enum.auto()
    """Windows of weights move over the input. Implies WINDOWED."""

    POOLS = enum.auto()
    """Windows move over the input, and what they show becomes one element. Implies WINDOWED and
    KEEPS_AXES."""

    WINDOWED = enum.auto()
    """Windows move over the input, along all axes but the first two."""

    HAS_BODY = enum.auto()
    """Runs graphs that are attributes of the node."""

    BRANCHES = enum.auto()
    """Runs one of its bodies and hands out what that gives. Implies HAS_BODY."""

    LOOPS = enum.auto()
    """Runs its body any number of times, with what it gave the time before. Implies HAS_BODY."""


_T = Trait

_IMPLIED: Mapping[Trait, tuple[Trait, ...]] = {
    _T.SAME: (_T.VIEW, _T.KEEPS_SHAPE),
    _T.VIEW: (_T.REARRANGES,),
    _T.REARRANGES: (_T.MOVES,),
    _T.PART: (_T.SHIFTS,),
    _T.REPEATS: (_T.MOVES,),
    _T.SHIFTS: (_T.MOVES,),
    _T.UPDATES: (_T.MOVES, _T.KEEPS_SHAPE),
    _T.CASTS: (_T.CONVERTS, _T.ELEMENTWISE),
    _T.CONVERTS: (_T.KEEPS_SHAPE,),
    _T.BROADCASTS: (_T.ELEMENTWISE,),
    _T.NORMALIZES: (_T.KEEPS_SHAPE,),
    _T.KEEPS_SHAPE: (_T.KEEPS_AXES,),
    _T.GIVES_SIZES: (_T.READS_SHAPE,),
    _T.CONVOLVES: (_T.WINDOWED,),
    _T.POOLS: (_T.WINDOWED, _T.KEEPS_AXES),
    _T.BRANCHES: (_T.HAS_BODY,),
    _T.LOOPS: (_T.HAS_BODY,),
}


@dataclass(frozen=True, slots=True)
class TypeSource:
    """Where the element type of the output stands, if the schema leaves it to a node.

    Attributes:
        attribute: Name of the attribute: the number of a type, or a tensor of that type.
        otherwise: The type if the attribute is absent: a type, that of the input at a position, or
            None where the node has to carry it.
    """

    attribute: str
    otherwise: ir.DataType | int | None = None


@dataclass(frozen=True, slots=True)
class Traits:
    """All that is said of one operator.

    Attributes:
        kinds: The traits, those that are implied included; none for an opaque operator.
        sizes: Names of the inputs and attributes that say, in any version, how large the output is:
            sizes, counts, repeats, pads, scales. Those of windows are not among them.
        positions: Name of the input that holds positions of elements of another input, or of what
            is written; None if none does.
        element_type: What gives the output its element type; None if inputs or the schema do.
    """

    kinds: frozenset[Trait] = frozenset()
    sizes: tuple[str, ...] = ()
    positions: str | None = None
    element_type: TypeSource | None = None

    def __contains__(self, trait: Trait) -> bool:
        return trait in self.kinds

    def any(self, *wanted: Trait) -> bool:
        """Return whether one of some traits is there."""
        return not self.kinds.isdisjoint(wanted)

    @classmethod
    def of(
        cls,
        *kinds: Trait,
        sizes: str = "",
        positions: str | None = None,
        element_type: TypeSource | None = None,
    ) -> Traits:
        """Return traits with all that they imply; `sizes` are names separated by spaces."""
        return cls(_closure(kinds), tuple(sizes.split()), positions, element_type)


OPAQUE = Traits()
"""Of an operator of which no trait is true, and of one that nobody here knows."""


def _closure(kinds: Iterable[Trait]) -> frozenset[Trait]:
    found: set[Trait] = set()
    waiting = list(kinds)
    while waiting:
        kind = waiting.pop()
        if kind not in found:
            found.add(kind)
            waiting += _IMPLIED.get(kind, ())
    if _T.ELEMENTWISE in found and _T.BROADCASTS not in found:
        found |= {_T.KEEPS_SHAPE, _T.KEEPS_AXES}
    return frozenset(found)


def traits(node: ir.Node | onnx.NodeProto) -> Traits:
    """Return the traits of the operator of a node.

    A call of a function of the model is opaque only if its name is none of the table: a caller that
    meets functions looks there first, as the specification wants it.
    """
    found = _table().get((node.domain, node.op_type))
    return traits_of(node.op_type, node.domain) if found is None else found


def traits_of(op_type: str, domain: str = "") -> Traits:
    """Return the traits of an operator; `OPAQUE` for one that is not in the table.

    The default domain may be spelled `""` and `ai.onnx`.
    """
    return _table().get((canonical_domain(domain), op_type), OPAQUE)


@functools.cache
def having(*wanted: Trait, domain: str = "") -> Set[str]:
    """Return the operators of a domain that have all of some traits; all of them without one."""
    return frozenset(
        op_type
        for (place, op_type), traits in _table().items()
        if place == domain and traits.kinds.issuperset(wanted)
    )


@functools.cache
def _table() -> Mapping[tuple[str, str], Traits]:
    from onnx_kvtool.ops.trait_table import TRAITS  # its lines are made of what stands above

    return dict(TRAITS)  # asked for every node; a plain dict answers faster
