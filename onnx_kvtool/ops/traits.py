"""What an operator is, in the words that passes choose by, and groups of element types."""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx_ir as ir

from onnx_kvtool.core.domains import canonical_domain
from onnx_kvtool.core.record import Form, Misfit
from onnx_kvtool.core.storage import is_misdeclared, stored_tensor

if TYPE_CHECKING:
    import onnx


# What an operator is, in the words that passes choose by: elementwise, view, part, mover, ...
#
# A pass asks for a trait and has no list of operators of its own. The table is in
# `ops.trait_table`; a test compares it with the schemas, and with what onnx.reference computes.


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
    """Some of the elements of the input: outputs that are no indices hold a selection, perhaps one
    element twice. Implies SHIFTS."""

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


_IMPLIED: Mapping[Trait, tuple[Trait, ...]] = {
    Trait[kind]: tuple(Trait[implied] for implied in words.split())
    for kind, words in {
        "SAME": "VIEW KEEPS_SHAPE",
        "VIEW": "REARRANGES",
        "REARRANGES": "MOVES",
        "PART": "SHIFTS",
        "REPEATS": "MOVES",
        "SHIFTS": "MOVES",
        "UPDATES": "MOVES KEEPS_SHAPE",
        "CASTS": "CONVERTS ELEMENTWISE",
        "CONVERTS": "KEEPS_SHAPE",
        "BROADCASTS": "ELEMENTWISE",
        "NORMALIZES": "KEEPS_SHAPE",
        "KEEPS_SHAPE": "KEEPS_AXES",
        "GIVES_SIZES": "READS_SHAPE",
        "CONVOLVES": "WINDOWED",
        "POOLS": "WINDOWED KEEPS_AXES",
        "BRANCHES": "HAS_BODY",
        "LOOPS": "HAS_BODY",
    }.items()
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
    """All facts of one operator.

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
"""Of an operator without a trait, and of an unknown one."""


def _closure(kinds: Iterable[Trait]) -> frozenset[Trait]:
    found: set[Trait] = set()
    waiting = list(kinds)
    while waiting:
        kind = waiting.pop()
        if kind not in found:
            found.add(kind)
            waiting += _IMPLIED.get(kind, ())
    if Trait.ELEMENTWISE in found and Trait.BROADCASTS not in found:
        found |= {Trait.KEEPS_SHAPE, Trait.KEEPS_AXES}
    return frozenset(found)


def traits(node: ir.Node | onnx.NodeProto) -> Traits:
    """Return the traits of the operator of a node.

    A call of a model-local function is opaque only if the table lacks its name. A caller that may
    meet functions looks for those first, as the specification demands.
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


# Groups of element types, and their names as people write them.


ELEMENT_TYPE_ATTRIBUTES = frozenset(
    {
        "dtype", "output_datatype", "output_dtype", "precision", "softmax_precision", "stash_type",
        "to",
    }
)  # fmt: skip
"""Attributes whose integer is the number of an element type, in every operator that has them."""

SIZE_TYPES = frozenset({ir.DataType.INT64, ir.DataType.INT32})
"""Types of sizes and indices."""

WHOLE_TYPES = SIZE_TYPES | {ir.DataType.BOOL}
"""Types of what graphs compute sizes and indices with."""

FLOAT_TYPES = frozenset(
    {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE}
)
"""Types that models compute in."""

EXACT = 256
"""Up to this size integers are exact in each of `FLOAT_TYPES`, and so are sums that stay below."""


def dtype_name(dtype: ir.DataType) -> str:
    """Return the name of an element type: that of numpy, else that of ONNX in lower case.

    `float32`, `float64`, `bfloat16`, `float8e4m3fn`, `int4`, `string`.
    """
    name = dtype.name.lower()
    return {"float": "float32", "double": "float64"}.get(name, name)


_TYPES = tuple(dtype for dtype in ir.DataType if dtype != ir.DataType.UNDEFINED)

DTYPE_NAMES: tuple[str, ...] = tuple(dtype_name(dtype) for dtype in _TYPES)
"""The names of all element types, in the order of their numbers."""

_BY_SPELLING: dict[str, ir.DataType] = {
    spelling: dtype
    for dtype in _TYPES
    for spelling in (
        dtype_name(dtype),
        dtype.name.lower(),
        *(() if dtype == ir.DataType.STRING else (dtype.numpy().name.replace("_", ""),)),
    )
}


def dtype_named(name: str) -> ir.DataType | None:
    """Return the element type of that name; None when there is none.

    Case and underscores do not matter, and the names of ONNX (`float`, `DOUBLE`) and of ml_dtypes
    (`float8_e4m3fn`) are understood too.
    """
    return _BY_SPELLING.get(name.lower().replace("_", ""))


def _read(name: str) -> ir.DataType:
    found = dtype_named(name)
    if found is None:
        raise Misfit(f"is {name!r}, expected the name of an element type")
    return found


DTYPE_FORM = Form(str, dtype_name, _read)
"""How reports have an element type."""


_CONSTANTS = {
    "value_float": ir.DataType.FLOAT,
    "value_floats": ir.DataType.FLOAT,
    "value_int": ir.DataType.INT64,
    "value_ints": ir.DataType.INT64,
    "value_string": ir.DataType.STRING,
    "value_strings": ir.DataType.STRING,
}
"""Attributes of Constant that have one element type each."""


def given_type(node: ir.Node) -> ir.DataType | int | None:
    """Return the element type that an attribute gives to the output, as `to` of Cast does.

    Returns:
        The type; or the position of the input with the same type, as for EyeLike without the
        attribute; None for all other operators, and if the attribute refers to a parameter of a
        function or names no type.
    """
    source = traits(node).element_type
    if source is None:
        return None
    attribute = node.attributes.get(source.attribute)
    if attribute is None:
        known = (dtype for name, dtype in _CONSTANTS.items() if name in node.attributes)
        return next(known, source.otherwise) if node.op_type == "Constant" else source.otherwise
    if attribute.is_ref():
        return None
    if attribute.type == ir.AttributeType.TENSOR:
        dtype: ir.DataType = attribute.value.dtype  # `as_tensor()` asks for the size
        return dtype
    if attribute.type != ir.AttributeType.INT:
        return None
    try:
        return ir.DataType(attribute.as_int())
    except ValueError:
        return None


def contradiction(value: ir.Value) -> str | None:
    """Return the declaration and the content of a constant if they differ; None if they agree.

    Returns:
        A clause: `is declared as float32[4, 3], and holds int64[4, 3]`.
    """
    tensor = stored_tensor(value)
    if tensor is None or not is_misdeclared(value):
        return None
    declared = "no tensor" if value.dtype is None and value.type else _shaped(value)
    return f"is declared as {declared}, and contains {_shaped(tensor)}"


def _shaped(given: ir.Value | ir.TensorProtocol) -> str:
    dtype = "a tensor" if given.dtype is None else dtype_name(given.dtype)
    if given.shape is None:
        return dtype
    dims = (dim if isinstance(dim, int) else dim.value or "?" for dim in given.shape)
    return f"{dtype}[{', '.join(map(str, dims))}]"
