"""Random graphs that write into a cache by an index which may or may not count up from a start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto as T
from onnx import helper, numpy_helper

__all__ = ["Builder", "Drawn", "World", "draw_update", "worlds"]

B, H, S, D, L = 2, 3, 5, 2, 2
"""Sizes at which constants are made; the graph is run at others too."""


@dataclass(frozen=True, slots=True)
class World:
    """Sizes and numbers for one run."""

    sizes: dict[str, int]
    starts: tuple[int, ...]
    start: int
    positions: tuple[int, ...]

    def inputs(self, drawn: Drawn) -> dict[str, Any]:
        """Return arrays for all inputs."""
        rng = np.random.default_rng(7)
        found: dict[str, Any] = {}
        for name, dims in drawn.floats.items():
            shape = [self.sizes[d.lstrip("X")] if isinstance(d, str) else d for d in dims]
            found[name] = rng.standard_normal(shape).astype(np.float32)
        b, length = self.sizes["B"], self.sizes["L"]
        found["w"] = np.asarray([self.starts[i % len(self.starts)] for i in range(b)], np.int64)
        found["p"] = np.asarray(self.start, np.int64)
        listed = [self.positions[i % len(self.positions)] for i in range(length)]
        found["pos"] = np.asarray(listed, np.int64)
        return found


@dataclass(slots=True)
class Drawn:
    """A model, the shapes of its float inputs, and whether their sizes are symbolic."""

    model: onnx.ModelProto
    floats: dict[str, tuple[int | str, ...]]
    is_symbolic: bool


@dataclass(slots=True)
class Builder:
    """The nodes and constants of a graph, and where choices come from."""

    data: st.DataObject
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def pick(self, *choices: Any) -> Any:
        return self.data.draw(st.sampled_from(choices))

    def op(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(op, list(inputs), [name], name=f"n_{name}", **attributes)
        )
        return name

    def const(self, array: Any, dtype: Any = np.int64) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def size(self, value: str, axis: int) -> str:
        return self.op("Squeeze", self.op("Shape", value, start=axis, end=axis + 1))

    def count(self, value: str, axis: int, fixed: int) -> str:
        """0, 1, ... along an axis, as a Range or as a constant; or something close to it."""
        kind = self.pick("range", "range", "range", "constant", "any")
        if kind == "constant":
            return self.const(np.arange(fixed))
        if kind == "range":
            start, step = self.pick((0, 1), (0, 1), (0, 1), (0, 1), (1, 1), (0, 2))
            end = self.size(value, axis)
            if (start, step) != (0, 1):
                end = self.op("Add", self.op("Mul", end, self.const(step)), self.const(start))
            return self.op("Range", self.const(start), end, self.const(step))
        numbers = st.lists(st.integers(-1, fixed), min_size=fixed, max_size=fixed)
        return self.const(self.data.draw(numbers))

    def column(self, value: str) -> str:
        return self.op("Unsqueeze", value, self.const([1]))

    def row_grid(self, update: str, axis: int, per_batch: bool) -> str:
        """Positions: (L,), or (B, L) where `per_batch`."""
        kind = self.pick("count", "count", "count", "pos")
        rows = "pos" if kind == "pos" else self.count(update, axis, L)
        start = self.pick("p", "p", "w" if per_batch else "p", "none", "number")
        if start == "p":
            rows = self.op("Add", rows, "p")
        elif start == "number":
            rows = self.op("Add", rows, self.const(self.pick(1, 2, -1, 3)))
        if per_batch and start == "w":
            rows = self.op("Add", self.column("w"), rows)
        for _ in range(self.pick(0, 0, 0, 1, 1, 2)):
            rows = self.change(rows)
        return rows

    def change(self, rows: str) -> str:
        """Put something on top of positions: harmless, circular, or wrong."""
        kind = self.pick(
            "mod", "mod", "mod", "wrap", "clamp", "min", "mul", "neg", "where", "cast", "same"
        )
        if kind == "mod":
            return self.op("Mod", rows, self.const(self.pick(S, S, S, S - 1, S + 1, 1)))
        if kind == "wrap":
            below = self.op("Less", rows, self.const(0))
            wrapped = self.op("Add", rows, self.const(self.pick(S, S, S - 1)))
            return self.op("Where", below, wrapped, rows)
        if kind == "clamp":
            return self.op("Max", rows, self.const(self.pick(0, 0, 1)))
        if kind == "min":
            return self.op("Min", rows, self.const(self.pick(S - 1, S - 1, S, 2)))
        if kind == "mul":
            return self.op("Mul", rows, self.const(self.pick(1, 1, 2, -1)))
        if kind == "neg":
            return self.op("Sub", self.const(self.pick(S - 1, 1)), rows)
        if kind == "where":
            small = self.op(self.pick("Less", "Greater"), rows, self.const(self.pick(0, 2)))
            return self.op("Where", small, self.const(self.pick(2**30, 0, 3)), rows)
        if kind == "cast":
            return self.op("Cast", self.op("Cast", rows, to=T.INT32), to=T.INT64)
        return self.op("Identity", rows)


Dress = Callable[[Builder, list[Any], list[Any]], list[Any]]
"""Makes `upd`, of the dimensions given, of an input `src`, and returns the dimensions of that."""


def draw_update(data: st.DataObject, dress: Dress | None = None) -> Drawn:
    """Draw a model with one update of `cache` by `upd`, which `dress` makes of `src`."""
    b = Builder(data)
    form = b.pick("elements", "rows", "tuples", "tuples", "triples", "one_hot", "concat")
    symbolic = b.pick(True, False)
    heads = form == "triples" or b.pick(True, False)
    cache: list[int | str] = ["B", H, "S", D] if heads else ["B", "S", D]
    axis = 2 if heads else 1
    if form in ("tuples", "rows") and heads and b.pick(True, False):
        cache, axis = ["B", "S", H, D], 1
    if b.pick(*[False] * 5, True) and form != "triples":
        cache, axis = ["S", "B", *cache[2:]], 0
    update = list(cache)
    update[cache.index("S")] = "L"
    batch = cache.index("B")
    update[batch] = b.pick("B", "B", "B", "B", "XB", 1)
    draw = {"elements": _elements, "rows": _rows, "tuples": _tuples, "triples": _triples}
    draw |= {"one_hot": _one_hot, "concat": _concat}
    if form == "one_hot":
        update[axis] = 1
    floats = {"cache": cache, "upd": update}
    if dress is not None:
        floats = {"cache": cache, "src": dress(b, update, cache)}
    output = draw[form](b, cache, update, axis)
    return _model(b, floats, output, symbolic)


def _elements(b: Builder, cache: list, update: list, axis: int) -> str:
    per_batch = cache[0] == "B" and b.pick(True, False)
    rows = b.row_grid("upd", axis, per_batch)
    rank = len(cache)
    if rows == "pos" or not per_batch:
        placed = b.op("Reshape", rows, b.const([-1 if k == axis else 1 for k in range(rank)]))
    else:
        grid = b.op("Add", rows, b.op("Mul", b.column("w"), b.const(0)))
        between = list(range(1, axis)) + list(range(axis + 1, rank))
        placed = b.op("Unsqueeze", grid, b.const(between)) if between else grid
    index = b.op("Expand", placed, b.op("Shape", "upd"))
    given = b.pick(axis, axis, axis, axis - rank, (axis + 1) % rank)
    return b.op("ScatterElements", "cache", index, "upd", axis=given)


def _rows(b: Builder, cache: list, update: list, axis: int) -> str:
    rank = len(cache)
    perm = [axis, *(k for k in range(rank) if k != axis)]
    if b.pick(*[False] * 4, True):
        perm = b.data.draw(st.permutations(range(rank)))
    back = [perm.index(k) for k in range(rank)]
    rows = b.row_grid("upd", axis, False)
    index = b.op("Unsqueeze", rows, b.const([-1]))
    moved = b.op("Transpose", "cache", perm=perm)
    fresh = b.op("Transpose", "upd", perm=perm)
    out = b.op("ScatterND", moved, index, fresh)
    return b.op("Transpose", out, perm=back)


def _grid(b: Builder, parts: Sequence[str]) -> str:
    """Broadcast index components to one shape and stack them."""
    total = parts[0]
    for part in parts[1:]:
        total = b.op("Add", total, part)
    shape = b.op("Shape", total)
    ready = [b.op("Unsqueeze", b.op("Expand", p, shape), b.const([-1])) for p in parts]
    return b.op("Concat", *ready, axis=-1)


def _tuples(b: Builder, cache: list, update: list, axis: int) -> str:
    rank = len(cache)
    perm = [0, axis, *(k for k in range(1, rank) if k != axis)] if axis else list(range(rank))
    back = [perm.index(k) for k in range(rank)]
    moved, fresh = "cache", "upd"
    if perm != list(range(rank)):
        moved, fresh = b.op("Transpose", "cache", perm=perm), b.op("Transpose", "upd", perm=perm)
    first = b.count("upd", perm[0], B)
    rows = b.row_grid("upd", axis or 1, b.pick(True, True, False))
    parts = [b.column(first), rows]
    if b.pick(*[False] * 6, True):
        parts.reverse()
    out = b.op("ScatterND", moved, _grid(b, parts), fresh)
    return out if perm == back == list(range(rank)) else b.op("Transpose", out, perm=back)


def _triples(b: Builder, cache: list, update: list, axis: int) -> str:
    batch = b.op("Unsqueeze", b.count("upd", 0, B), b.const([1, 2]))
    head = b.op("Unsqueeze", b.count("upd", 1, H), b.const([1]))
    rows = b.row_grid("upd", axis, False)
    start = b.pick("none", "batch", "head")
    if start == "batch":
        rows = b.op("Add", rows, b.op("Unsqueeze", "w", b.const([1, 2])))
    elif start == "head":
        rows = b.op("Add", rows, head)
    return b.op("ScatterND", "cache", _grid(b, [batch, head, rows]), "upd")


def _one_hot(b: Builder, cache: list, update: list, axis: int) -> str:
    rank = len(cache)
    places = b.count("cache", axis, S)
    if cache[0] == "B" and b.pick(True, True, False):
        mask = b.op("Equal", b.column("w"), places)
        between = [k for k in range(1, rank) if k != axis]
        mask = b.op("Unsqueeze", mask, b.const(between)) if between else mask
    else:
        mask = b.op("Equal", "p", places)
        mask = b.op("Unsqueeze", mask, b.const(list(range(1, rank - axis))))
    if b.pick(True, False):
        one, other = b.pick(("upd", "cache"), ("upd", "cache"), ("cache", "upd"))
        if b.pick(True, False):
            mask, one, other = b.op("Not", mask), other, one
        return b.op("Where", mask, one, other)
    chosen = b.op("Cast", mask, to=T.FLOAT)
    kept = b.op("Sub", b.const(b.pick(1, 1, 2), np.float32), chosen)
    return b.op("Add", b.op("Mul", "cache", kept), b.op("Mul", chosen, "upd"))


def _concat(b: Builder, cache: list, update: list, axis: int) -> str:
    at, zero = b.const([axis]), b.const([0])
    start = b.op("Reshape", "p", b.const([1]))
    for _ in range(b.pick(0, 0, 1)):
        start = b.change(start)
    length = b.op("Shape", "upd", start=axis, end=axis + 1)
    resumed = b.op("Add", start, b.pick(length, length, b.const([1])))
    first = b.op("Slice", "cache", b.pick(zero, zero, b.const([1])), start, at)
    last = b.op("Slice", "cache", resumed, b.pick(b.const([2**63 - 1]), b.const([S])), at)
    between, front, back = [first, "upd", last], ["upd", last], [first, "upd"]
    parts = b.pick(between, between, between, front, back, [last, "upd", first])
    return b.op("Concat", *parts, axis=axis)


def _model(b: Builder, values: dict[str, list], output: str, symbolic: bool) -> Drawn:
    fixed = {"B": B, "S": S, "L": L, "XB": B}

    def dims(shape: Sequence[int | str]) -> list[int | str]:
        keep = ("B", "L", "XB") if symbolic else ()
        return [d if isinstance(d, int) or d in keep else fixed[d] for d in shape]

    floats = {name: tuple(dims(shape)) for name, shape in values.items()}
    info = helper.make_tensor_value_info
    inputs = [info(name, T.FLOAT, shape) for name, shape in floats.items()]
    inputs += [info("w", T.INT64, dims(["B"])), info("p", T.INT64, [])]
    inputs.append(info("pos", T.INT64, dims(["L"])))
    graph = helper.make_graph(
        b.nodes, "g", inputs, [info(output, T.FLOAT, floats["cache"])], b.constants
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return Drawn(model, floats, symbolic)


def worlds(data: st.DataObject, drawn: Drawn) -> list[World]:
    """Draw sizes and numbers to run a model at."""
    sizes = [{"B": B, "L": L, "S": S}]
    if drawn.is_symbolic:
        sizes += [{"B": 1, "L": 1, "S": S}, {"B": 3, "L": 3, "S": S}, {"B": 2, "L": S, "S": S}]
    number = st.integers(-2, S)
    found = []
    for one in sizes:
        for small in (True, False):
            high = max(S - one["L"], 0)
            each = st.integers(0, high) if small else number
            start = data.draw(each)
            starts = tuple(data.draw(st.lists(each, min_size=3, max_size=3)))
            first = data.draw(each)
            counted = tuple(range(first, first + max(one["L"], 1)))
            free = tuple(data.draw(st.lists(number, min_size=5, max_size=5)))
            found.append(World(one, starts, start, counted if small else free))
    return found
