"""A proven start as `write_indices`: (batch_size,), int64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.choices import AssumedValue
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.emit.forms import axis_size
from onnx_kvtool.ops.operators import Mode
from onnx_kvtool.rewrite.raising.arrangement import Sizes
from onnx_kvtool.rewrite.raising.stage import Assumptions, dim_of
from onnx_kvtool.symbolic.expressions import (
    ONE,
    Choice,
    Coordinate,
    Dimension,
    Element,
    Expr,
    Extent,
    IsNegative,
    IsZero,
    Largest,
    Lookup,
    Modulo,
    Quotient,
    coordinate,
    integer,
    text,
    variable,
)
from onnx_kvtool.symbolic.index_maps import IndexMaps
from onnx_kvtool.symbolic.simplification import Facts, substitute

_ROW = coordinate(0)


class Batch(NamedTuple):
    """The batch axis, 0, of one cache.

    `is_unit`: it has one sequence in every run of the source.
    """

    cache: ir.Value
    size: Expr
    is_unit: bool


@dataclass(slots=True)
class Measures:
    """What is known of sizes.

    Attributes:
        carriers: For each symbolic dimension an input that has it, and the axis.
    """

    maps: IndexMaps
    carriers: Mapping[str, tuple[ir.Value, int]]


def check_expressible(start: Expr, sizes: Measures) -> None:
    """Refuse a start that has no form as nodes.

    Raises:
        Unproven: If one element of a tensor is taken per sequence along several of its axes.
    """
    for atom in start.atoms():
        match atom:
            case Element(value, index) if sum(0 in part.axes for part in index) > 1:
                why = f"reads a diagonal of `{value.name}`"
            case Extent(_, axis) if axis.number is None:
                why = "is the size of an axis that is chosen at run time"
            case Dimension(name) if name not in sizes.carriers:
                why = f"needs the size `{name}`, which no input has"
            case _:
                continue
        raise Unproven("start-not-expressible", f"the first position {why}")


def write_indices(
    em: Emitter,
    start: Expr,
    batch: Batch,
    sizes: Measures,
    replaced: Mapping[ir.Value, ir.Value],
) -> ir.Value | None:
    """Return the start of each sequence of a batch; None for zeros, TensorScatter's default.

    A vector with one element per sequence is used as it is. Nodes are emitted once per start and
    batch size, and shared by all caches of a graph.

    `start` is over the coordinate of axis 0. `replaced` has what took the place of values that
    earlier edits removed.
    """
    if start.number == 0:
        return None
    build = _Building(em, batch, sizes, replaced)
    vector = build.whole_vector(start)
    if vector is not None:
        return build.as_int64(vector)
    fixed = build.fixed(start)
    if fixed is not None:
        return em.constant(fixed, "write_indices")
    key = ("write_indices", start, batch.size)
    return em.once(key, lambda: build.expanded(start))


def narrowed(em: Emitter, starts: ir.Value) -> ir.Value:
    """Return int64 starts cast to 32 bits and back, so that they wrap as in the source."""

    def build() -> ir.Value:
        narrow = em.op("Cast", starts, to=int(ir.DataType.INT32))
        wide = em.op("Cast", narrow, to=int(ir.DataType.INT64))
        wide.name = em.scope.names.fresh("write_indices")
        return wide

    return em.once(("narrow starts", starts), build)


def one_row(em: Emitter, expr: Expr, sizes: Measures, carrier: ir.Value) -> ir.Value:
    """Return a value, (1,), int64, of an expression that is the same for all sequences."""
    return _Building(em, Batch(carrier, ONE, True), sizes, {}).value(expr)


@dataclass(slots=True)
class _Building:
    em: Emitter
    batch: Batch
    sizes: Measures
    replaced: Mapping[ir.Value, ir.Value]

    def whole_vector(self, start: Expr) -> ir.Value | None:
        """Return the tensor whose elements are the starts; None if there is none."""
        atom = start.atom
        if not isinstance(atom, Element):
            return None
        shape = self.sizes.maps.shape(atom.value)
        if shape is None or len(shape) != 1 or shape[0] != self.batch.size:
            return None
        # With one sequence the first element is all there is.
        is_unit = self.batch.is_unit or shape[0].number == 1
        is_all = atom.index == (_ROW,) or (is_unit and atom.index[0].number == 0)
        return atom.value if is_all else None

    def fixed(self, start: Expr) -> np.ndarray | None:
        """Return the starts if they are constants and the batch size is fixed; else None."""
        count = self.batch.size.number
        if count is None:
            return None
        rows = [substitute(start, {0: integer(b)}, Facts()).number for b in range(count)]
        return None if None in rows else np.asarray(rows, np.int64)

    def expanded(self, start: Expr) -> ir.Value:
        rows = self.value(start)
        if not start.depends_on(0) and self.batch.size.number != 1:
            rows = self.em.op("Expand", rows, self.batch_shape(), hint="write_indices")
        if rows.producer() in self.em.nodes:  # which all caches may share
            rows.name = self.em.scope.names.fresh("write_indices")
        return rows

    def batch_shape(self) -> ir.Value:
        """Return (batch_size,) as a value."""
        number = self.batch.size.number
        if number is not None:
            return self.em.constant([number], "batch_size")
        key = ("batch_size", self.batch.size)
        return self.em.once(key, lambda: self.size(self.batch.cache, 0, "batch_size"))

    def size(self, value: ir.Value, axis: int, hint: str) -> ir.Value:
        """Return the size of an axis, (1,)."""
        value = self.replaced.get(value, value)
        return axis_size(self.em, value, axis, hint)

    def as_int64(self, value: ir.Value) -> ir.Value:
        value = self.replaced.get(value, value)
        if value.dtype == ir.DataType.INT64 or value.dtype is None:
            return value
        key = ("int64", value)
        to = {"to": int(ir.DataType.INT64)}
        return self.em.once(key, lambda: self.em.op("Cast", value, attributes=to))

    def value(self, expr: Expr) -> ir.Value:
        """Return an expression as a value: (1,), or (batch_size,) if it changes with the row."""
        total: ir.Value | None = None
        for factors, coefficient in expr.ordered():
            term: ir.Value | None = None
            for atom, power in factors:
                factor = self.atom(atom)
                for _ in range(power):
                    term = factor if term is None else self.em.op("Mul", term, factor)
            if term is None:
                term = self.em.constant([coefficient])
            elif coefficient != 1:
                term = self.em.op("Mul", term, [coefficient])
            total = term if total is None else self.em.op("Add", total, term)
        return self.em.constant([0]) if total is None else total

    def atom(self, atom: object) -> ir.Value:
        op, value = self.em.op, self.value
        match atom:
            case Coordinate():
                return op("Range", 0, op("Squeeze", self.batch_shape()), 1)
            case Dimension(name):
                carrier, axis = self.sizes.carriers[name]
                return self.size(carrier, axis, "size")
            case Extent(carrier, axis):
                return self.size(carrier, axis.number or 0, "size")
            case Element(tensor, index):
                return self.element(tensor, index)
            case Lookup(numbers, index):
                return op("Gather", self.em.constant(numbers), value(index))
            case Modulo(of, by):
                return op("Mod", value(of), value(by))
            case Quotient(of, by):
                below = value(of - variable(Modulo(of, by)))
                return op("Div", below, value(by))
            case Largest(of):
                parts = [value(part) for part in sorted(of, key=str)]
                return op("Max", *parts)
            case IsNegative(of):
                return self.number(op("Less", value(of), [0]))
            case IsZero(of):
                return self.number(op("Equal", value(of), [0]))
            case Choice(condition, yes, no):
                holds = op("Equal", value(condition), [0])
                return op("Where", holds, value(no), value(yes))
        raise AssertionError(f"no atom: {atom}")

    def number(self, truth: ir.Value) -> ir.Value:
        return self.em.op("Cast", truth, to=int(ir.DataType.INT64))

    def element(self, tensor: ir.Value, index: Sequence[Expr]) -> ir.Value:
        """Return one element of a tensor, or one for each sequence."""
        shape = self.sizes.maps.shape(tensor)
        found = self.as_int64(tensor)
        # From the last axis, so that the numbers of those in front stay.
        for axis in reversed(range(len(index))):
            place = index[axis]
            if place == _ROW and shape is not None and shape[axis] == self.batch.size:
                continue
            if place.number == 0 and shape is not None and shape[axis].number == 1:
                continue  # an axis of one element, which the Reshape below drops
            found = self.em.op("Gather", found, self.value(place), axis=axis, hint="start")
        if len(index) == 1:
            return found
        return self.em.op("Reshape", found, [-1], hint="start")


# What a rule is given, and what it proves.


class ProvenUpdate(NamedTuple):
    """A node that provably writes row s of an update to row `start + s` of a tensor.

    Attributes:
        data: The tensor that is written to, (D0, ..., S, ..., Dn).
        updates: The rows.
        sizes: What is known of the size of each axis of `updates`.
        output: The result, as `data`.
        axis: The axis of `data` along which the rows count.
        places: For each axis of `data` the same axis in `updates`; None for an axis of size 1 that
            `updates` does not have. Axes of `updates` that do not occur have size 1.
        start: The first row, over the coordinates of `data`.
        mode: Whether rows wrap at the end of the axis.
    """

    data: ir.Value
    updates: ir.Value
    sizes: Sizes
    output: ir.Value
    axis: int
    places: tuple[int | None, ...]
    start: Expr
    mode: Mode


class Roll(NamedTuple):
    """A tensor whose row j is row `(j + shift) mod W` of another one of W rows.

    Attributes:
        source: The other one, with its axes in the same order.
        shift: By how much rows move up.
    """

    source: ir.Value
    shift: Expr
    node: ir.Node


@dataclass(slots=True)
class Proof(Measures):
    """One attempt to prove that a node is an update.

    Attributes:
        assumptions: What the user grants.
        sentences: The proof so far, in words.
        assumed: The assumptions that it used.
        granted: The kinds of assumptions that it used, each with a value.
        roll: How the rows of the cache move before the update; None where they stay.
        is_narrow: Whether positions are cast to 32 bits on the way, which may wrap.
    """

    assumptions: Assumptions
    opset: int
    sentences: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    granted: list[tuple[AssumedValue, ir.Value]] = field(default_factory=list)
    roll: Roll | None = None
    is_narrow: bool = False

    def another(self) -> Proof:
        """Return a copy, for an attempt that may fail without a trace."""
        told, assumed, granted = [*self.sentences], [*self.assumed], [*self.granted]
        return replace(self, sentences=told, assumed=assumed, granted=granted)

    def adopt(self, other: Proof) -> None:
        """Adopt the sentences and assumptions of a copy."""
        self.sentences, self.assumed, self.granted = other.sentences, other.assumed, other.granted
        self.roll = other.roll

    def say(self, sentence: str) -> None:
        """Add a sentence to the proof."""
        self.sentences.append(sentence)

    def assume(self, kind: AssumedValue, value: ir.Value, code: str, missing: str) -> None:
        """Use an assumption. Raise Unproven if it is not granted."""
        granted = self.assumptions.grants(kind, value)
        if granted is None:
            raise Unproven(code, missing, assumption=f"{kind}:{value.name}")
        self.granted.append((kind, value))
        if granted not in self.assumed:
            self.assumed.append(granted)

    def whole(self, axis: int, size: Expr, others: Sequence[Expr]) -> None:
        """Prove that an update covers the whole of an axis of the cache.

        `others` is what is known of the size of the update there, in several ways.

        Raises:
            Unproven: If none of `others` is certainly `size`.
        """
        if size in others:
            self.say(f"axis {axis} is written whole: it has size `{text(size)}` in both")
            return
        known = next((o for o in others if same_dim(size, o) is not None), others[0])
        if size.number is not None and known.number is not None:
            raise Unproven(
                "part-of-axis",
                f"axis {axis} has size {size.number}, and only {known.number} are written",
            )
        raise Unproven(
            "sizes-unrelated",
            f"axis {axis} has size `{text(size)}` in the cache and `{text(known)}` in the update, "
            "and only a part of it is written if they differ",
            assumption=same_dim(size, known),
        )


def same_dim(a: Expr, b: Expr) -> str | None:
    """Return the assumption that two sizes are equal; None if a size is neither name nor number."""
    one, other = dim_of(a), dim_of(b)
    if one is None or other is None or (a.number is not None and b.number is not None):
        return None
    return f"same-dim:{other}={one}" if a.number is not None else f"same-dim:{one}={other}"
