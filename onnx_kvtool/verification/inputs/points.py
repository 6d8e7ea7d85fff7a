"""Numbers in a model that its inputs should reach: thresholds, bounds, windows, rows of tables."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from onnx_kvtool.core.domains import canonical_domain
from onnx_kvtool.core.storage import stored_tensor
from onnx_kvtool.core.walk import maker, nodes, read_values, subgraphs
from onnx_kvtool.ops.schema import NEWEST, op_facts
from onnx_kvtool.ops.traits import Trait, given_type, traits, traits_of
from onnx_kvtool.ops.view import given_input, given_integer
from onnx_kvtool.verification.inputs.corners import Corners, corners_of, stays_within, words
from onnx_kvtool.verification.inputs.roles import is_default, small_numbers

_MOST_NUMBERS = 64
"""Numbers that are kept; more would leave each of them too few elements of an input."""

_LONGEST = 1 << 20
"""Of a number that may count rows."""


@dataclass(frozen=True, slots=True)
class Directions:
    """Where two models say different things, so that inputs are directed there.

    Attributes:
        ids: Rows that differ, by the name of the table: an initializer of either model that is
            indexed by an input.
        values: Numbers around which input values are drawn, as thresholds that differ.
        lengths: Numbers of rows around which the rows of caches lie, as windows that differ.
    """

    ids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    values: tuple[float, ...] = ()
    lengths: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Points:
    """What the graph of a model says of the values and lengths where it changes its way.

    Attributes:
        numbers: Thresholds, bounds, moduli and the like, ascending.
        lengths: Numbers of rows that may be windows, limits or the rows of tables, ascending.
        sizing: Inputs that decide sizes, positions or trips, or that divide in a way that is not
            known, so that only small values are safe.
        divisors: Inputs that integers are divided by directly.
        scaled: Inputs of integers that are computed with as floats, or raised to a power.
        elements: Elements of all weights, which say what a row of input costs.
        special: Whether the model asks for infinities and NaNs.
        varying: Outputs that depend on what inputs hold, not on their sizes alone.
        corners: How the model computes, where that decides which inputs it is right on.
    """

    numbers: tuple[float, ...] = ()
    lengths: tuple[int, ...] = ()
    sizing: frozenset[str] = frozenset()
    divisors: frozenset[str] = frozenset()
    scaled: frozenset[str] = frozenset()
    elements: int = 0
    special: bool = False
    varying: frozenset[str] = frozenset()
    corners: Corners = field(default_factory=Corners)

    def joined(self, other: Points) -> Points:
        """Return the points of two models: what one of them reaches is dangerous for both."""
        return Points(
            _fewest({*self.numbers, *other.numbers}),
            tuple(sorted({*self.lengths, *other.lengths})),
            self.sizing | other.sizing,
            self.divisors | other.divisors,
            self.scaled & other.scaled,  # what one computes in integers, both do
            max(self.elements, other.elements),
            self.special or other.special,
            self.varying,
            replace(self.corners, signed=self.corners.signed | other.corners.signed),
        )

    def directed(self, directions: Directions) -> Points:
        """Return these points and those where two models differ."""
        if not directions.values and not directions.lengths:
            return self
        lengths = {*self.lengths, *directions.lengths}
        numbers = {*self.numbers, *directions.values}
        return replace(self, numbers=_fewest(numbers), lengths=tuple(sorted(lengths)))


def points_of(model: ir.Model) -> Points:
    """Return the points of `model`, in one pass; of constants only small ones are read."""
    reader = _Reader(model)
    tensors = (value.const_value for value in model.graph.initializers.values())
    return Points(
        _fewest(reader.numbers),
        tuple(sorted(reader.lengths)),
        reader.reaching(reader.sizing),
        frozenset(reader.divisors),
        reader.reaching(reader.scaled),
        sum(tensor.size for tensor in tensors if tensor is not None),
        reader.special,
        _varying(model),
        corners_of(model),
    )


def _varying(model: ir.Model) -> frozenset[str]:
    """Return the outputs that depend on what inputs hold; those of bodies count in any case."""
    initializers = model.graph.initializers
    known = {value for value in model.graph.inputs if value.name not in initializers}
    for node in model.graph:
        kinds = traits(node)
        reads = not known.isdisjoint(node.inputs)
        if Trait.HAS_BODY in kinds or (reads and Trait.READS_SHAPE not in kinds):
            known.update(node.outputs)
    return frozenset(value.name or "" for value in model.graph.outputs if value in known)


def _fewest(numbers: Iterable[float]) -> tuple[float, ...]:
    """Return numbers in ascending order, those nearest to 0 where there are too many."""
    nearest = sorted(set(numbers), key=lambda number: (abs(number), number))
    return tuple(sorted(nearest[:_MOST_NUMBERS]))


_COMPARED = words(
    "Add Sub Div Mod Pow Max Min Clip Where Equal Less LessOrEqual Greater GreaterOrEqual "
    "BitShift BitwiseAnd PRelu"
)
"""Operators with a constant where the result changes its way."""

_BOUNDING = words("Max Min Clip Equal Less LessOrEqual Greater GreaterOrEqual")
"""Those that bound a value or tell it from others, however large it is."""

_FAR, _FARTHEST = 100.0, 10_000.0
"""Largest float that counts, of other operators and of these."""

_LIMITING = words(
    "Add Sub Mod Div Max Min Clip Where Equal Less LessOrEqual Greater GreaterOrEqual Range Slice "
    "Trilu"
)
"""Operators that limit rows by integers: windows, capacities, the ends of tables."""

_READ = _COMPARED | _LIMITING

_CUT = words("Slice Gather RotaryEmbedding")
"""Operators that take a part of a table."""

_OWN: Mapping[str, tuple[float, ...]] = {
    "Exp": (5.0, 90.0),
    "HardSwish": (-3.0, 3.0),
    "HardSigmoid": (-3.0, -2.5, 2.5, 3.0),
    "ThresholdedRelu": (1.0,),
    "Shrink": (-0.5, 0.5),
    "Round": (0.5, 1.5, 2.5, -0.5),
    "Floor": (-1.0, 1.0),
    "Ceil": (-1.0, 1.0),
    "Log": (1e-6,),
    "Sqrt": (1e-6,),
    "Acos": (-1.0, 1.0),
    "Asin": (-1.0, 1.0),
    "Selu": (-1.0,),
    "Gelu": (-3.0, 3.0),
}
"""Numbers where operators themselves change their way; of Exp, where float32 ends."""

_SIZING = words(
    "axes axis starts ends steps shape repeats tiles depth split pads k sizes scales "
    "roi rois batch_indices sequence_lens start limit delta max_trip_count dft_length size "
    "position_ids"
)
"""Formal names of inputs that decide sizes or places, beside those of the table of traits."""

_PLAIN = (
    Trait.ELEMENTWISE,
    Trait.CONVERTS,
    Trait.MOVES,
    Trait.REDUCES,
    Trait.CONVOLVES,
    Trait.POOLS,
    Trait.NORMALIZES,
    Trait.READS_SHAPE,
    Trait.HAS_BODY,
    Trait.KEEPS_AXES,
)
"""Traits of operators that take any integers as what they compute with."""

_PRODUCTS = words("MatMul MatMulInteger QLinearMatMul Gemm Einsum Det NonZero Unique")

_FLOATING = words(
    "Mean Pow AveragePool Resize ReduceMean ReduceL2 ReduceLogSum ReduceLogSumExp ReduceProd "
    "DequantizeLinear"
)
"""Operators that compute integers as floats, or that overflow in ways which are not defined."""

_PLACES = frozenset({"ArgMax", "ArgMin", "NonZero", "Shape", "Size"})
"""Operators that give places within what they read, whatever its values are."""


class _Reader:
    """Reads the nodes of a model once."""

    def __init__(self, model: ir.Model) -> None:
        self.numbers: set[float] = set()
        self.lengths: set[int] = set()
        self.sizing: list[ir.Value] = []
        self.scaled: list[ir.Value] = []
        self.divisors: set[str] = set()
        self.special = False
        self._given = {*model.graph.inputs}
        self._functions = model.functions
        self._above: defaultdict[ir.Value, list[ir.Value]] = defaultdict(list)
        self._found: dict[ir.Value, bool] = {}
        for _, _, node in nodes(model):
            self._note(node)

    def reaching(self, ends: Sequence[ir.Value]) -> frozenset[str]:
        """Return the inputs whose elements go into one of `ends`."""
        seen = {*ends}
        waiting = list(ends)
        while waiting:
            value = waiting.pop()
            producer = value.producer()
            above = [*self._above.get(value, ())]
            if producer is not None and not _ends_here(producer, value):
                above += read_values(producer)
                for _, body in subgraphs(producer):
                    above.extend(body.outputs)
                function = self._functions.get(producer.op_identifier())
                above.extend(() if function is None else function.outputs)
            new = {*above} - seen
            seen |= new
            waiting += new
        return frozenset(value.name or "" for value in seen & self._given)

    def _note(self, node: ir.Node) -> None:
        if (function := self._functions.get(node.op_identifier())) is not None:
            for parameter, argument in zip(function.inputs, node.inputs, strict=False):
                if argument is not None:
                    self._above[parameter].append(argument)
                    if (is_float := self._is_float(argument)) is not None:
                        self._found[parameter] = is_float
            return
        self._note_types(node)
        for _, body in subgraphs(node) if node.attributes.data else ():
            for parameter in body.inputs:
                self._above[parameter] += read_values(node)
            if Trait.LOOPS in traits(node) and node.op_type == "Loop":
                self.sizing.extend(list(body.outputs)[:1])
        self._note_attributes(node)
        for index, value in enumerate(node.inputs):
            if value is None:
                continue
            is_constant = value.const_value is not None or maker(value, "Constant") is not None
            if value in self._given or not is_constant:
                self._note_reading(node, index, value)
            elif node.op_type in _READ and (constant := tuple(small_numbers(value))):
                self._note_constant(node, constant)
            elif node.op_type in _CUT:
                self._note_table(node, index, value)

    def _is_float(self, value: ir.Value) -> bool | None:
        """Return whether a value holds floats; None if nobody knows."""
        dtype = value.dtype
        return self._found.get(value) if dtype is None else dtype.is_floating_point()

    def _note_types(self, node: ir.Node) -> None:
        """Note whether outputs hold floats, where the model does not declare it."""
        if all(value.dtype is not None for value in node.outputs):
            return
        given = given_type(node)
        for index, value in enumerate(node.outputs):
            found, places = _typing(node.op_type, index) if is_default(node) else (None, ())
            if isinstance(given, ir.DataType):
                found = given.is_floating_point()
            for place in places:
                operand = given_input(node, place)
                if found is None and operand is not None:
                    found = self._is_float(operand)
            if found is not None:
                self._found[value] = found

    def _note_attributes(self, node: ir.Node) -> None:
        if node.op_type in ("IsInf", "IsNaN"):
            self.special = True
        if is_default(node):
            self.numbers.update(_OWN.get(node.op_type, ()))
        for name in ("min", "max", "alpha", "lambd") if node.attributes.data else ():
            attribute = node.attributes.get(name)
            number = None if attribute is None or attribute.is_ref() else attribute.value
            if isinstance(number, float) and math.isfinite(number):
                self.numbers.add(number)
        self._note_length(given_integer(node, "local_window_size"))

    def _note_constant(self, node: ir.Node, constant: tuple[float, ...]) -> None:
        if is_default(node) and node.op_type in _COMPARED:
            most = _FARTHEST if node.op_type in _BOUNDING else _FAR
            near = [n for n in constant if isinstance(n, int) or abs(n) <= most]
            self.numbers.update(near)
            if node.op_type in ("Add", "Sub"):
                self.numbers.update(-n for n in near)
        if node.op_type in _LIMITING:
            for number in filter(math.isfinite, constant):
                self._note_length(abs(int(number)) if number == int(number) else None)

    def _note_length(self, number: int | None) -> None:
        if number is not None and 2 < number <= _LONGEST:
            self.lengths.add(number)

    def _note_table(self, node: ir.Node, index: int, value: ir.Value) -> None:
        """Note the rows of a large constant that a part is taken of.

        The rows of token embeddings are no length; they are taken at what an input holds.
        """
        sizes = () if value.shape is None else tuple(value.shape)
        if index == 0 and node.op_type == "Gather" and len(node.inputs) > 1:
            indices = node.inputs[1]
            sizes = () if indices is None or indices in self._given else sizes[:1]
        elif node.op_type != "RotaryEmbedding" and (index or node.op_type != "Slice"):
            return
        for size in sizes:
            self._note_length(size if isinstance(size, int) else None)

    def _note_reading(self, node: ir.Node, index: int, value: ir.Value) -> None:
        """Note what limits the values that `node` reads at run time."""
        is_float = self._is_float(value) is True
        is_sizing, is_plain = _reading(canonical_domain(node.domain), node.op_type, index)
        if is_sizing or not (is_float or is_plain):
            if not stays_within(node, index):
                self.sizing.append(value)
        elif is_float:
            return
        elif node.op_type in ("Div", "Mod"):
            self._note_division(node, index, value)
        elif node.op_type in ("Pow", "BitShift") and index == 1:
            self.sizing.append(value)
        elif node.op_type in _FLOATING or (
            node.op_type in ("Cast", "CastLike")
            and any(self._is_float(result) is not False for result in node.outputs)
        ):
            self.scaled.append(value)

    def _note_division(self, node: ir.Node, index: int, value: ir.Value) -> None:
        """Note a division of integers: one by 0 fails, and the least by -1 ends the process."""
        divisor = given_input(node, 1)
        if divisor is None:
            return
        if divisor in self._given and stored_tensor(divisor) is None:
            if index == 1:
                self.divisors.add(value.name or "")
            return
        known = tuple(small_numbers(divisor))
        if not known or not {0, -1}.isdisjoint(known):
            self.sizing.append(value)


@functools.cache
def _reading(domain: str, op_type: str, index: int) -> tuple[bool, bool]:
    """Return whether an input of an operator says a size or a place, and whether others are plain.

    A plain one may be any integer that the operator computes with.
    """
    kinds = traits_of(op_type, domain)
    facts = op_facts(op_type, NEWEST) if not domain else None
    formal = None if facts is None else facts.input(index)
    names = {*kinds.sizes, *_SIZING, kinds.positions}
    is_sizing = formal is not None and formal.name in names
    is_sizing |= op_type == "Loop" and index < 2  # how often the body runs
    return is_sizing, not domain and (kinds.any(*_PLAIN) or op_type in _PRODUCTS)


@functools.cache
def _typing(op_type: str, index: int) -> tuple[bool | None, tuple[int, ...]]:
    """Return whether an output of an operator holds floats, or the inputs whose type it has."""
    facts = op_facts(op_type, NEWEST)
    formal = None if facts is None else facts.output(index)
    if facts is None or formal is None:
        return None, ()
    is_floating = {"float" in name or name == "tensor(double)" for name in formal.types}
    places = (
        place
        for place, taken in enumerate(facts.inputs)
        if taken.type_parameter == formal.type_parameter
    )
    return (is_floating.pop() if len(is_floating) == 1 else None), tuple(places)


def _ends_here(producer: ir.Node, value: ir.Value) -> bool:
    """Return whether the elements of `value` are no function of what its producer reads."""
    if not is_default(producer):
        return False
    if Trait.READS_SHAPE in traits(producer) or producer.op_type in _PLACES:
        return True
    return producer.op_type == "TopK" and value is not producer.outputs[0]
