"""One layer of a decoder, in every form, with two axes exchanged at any one place.

B batch, H query heads, KV heads of keys and values, L new rows, D width of a head, C capacity. If
two of these are equal, a model with two axes exchanged still runs, and computes something else.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import onnx
from onnx import helper

from onnx_kvtool.core.choices import AttentionChoice

__all__ = ["FORMS", "SIZES", "Layer", "build", "exchanges", "feeds", "padded"]

Array = np.ndarray[Any, Any]
Form = Literal["tensor_scatter", "elements", "nd", "where", "concat"]
Exchange = tuple[str, int, int]

FORMS: tuple[Form, ...] = ("tensor_scatter", "elements", "nd", "where", "concat")
"""How the cache is updated; `where` writes one row."""

_PLACES = {
    "q": ("B", "H", "L", "D"),
    **dict.fromkeys(("new_k", "new_v"), ("B", "KV", "L", "D")),
    **dict.fromkeys(("past_k", "past_v", "present_k", "present_v"), ("B", "KV", "C", "D")),
    **dict.fromkeys(("k", "v"), ("B", "KV", "C", "D")),
    "turned": ("B", "H", "D", "C"),
    **dict.fromkeys(("scores", "masked", "weights"), ("B", "H", "L", "C")),
    "mask": ("B", "one", "L", "C"),
    "result": ("B", "H", "L", "D"),
}
"""Values of which two axes may be exchanged, and what these are in the usual layout."""

_SPREAD = {"B": 2, "H": 6, "KV": 3, "L": 5, "D": 7, "C": 11}
_PAST = 4
"""Rows in use of a cache that grows; less where the capacity leaves no room for them."""


def _sizes() -> Iterator[tuple[str, dict[str, int]]]:
    yield "all differ", _SPREAD
    for one, other in itertools.combinations(_SPREAD, 2):
        value = min(_SPREAD[one], _SPREAD[other])
        sizes = {**_SPREAD, one: value, other: value}
        if sizes["H"] % sizes["KV"]:
            sizes["KV"] = sizes["H"] if {one, other} == {"H", "KV"} else 1
        if sizes["L"] > sizes["C"]:
            sizes["L"] = max(sizes["C"] - 1, 1)
        yield f"{one} = {other}", sizes
    yield "L = C = D", {**_SPREAD, "L": 5, "C": 5, "D": 5}
    yield "B = KV = D", {**_SPREAD, "B": 3, "D": 3}
    yield "H = KV = C = D", {**_SPREAD, "H": 6, "KV": 6, "C": 6, "D": 6}
    yield "all are 3", dict.fromkeys(_SPREAD, 3)


SIZES = dict(_sizes())
"""Sizes of which each pair is equal once, and more."""


@dataclass(frozen=True)
class Layer:
    """A layer.

    Attributes:
        form: How the cache is updated.
        sizes: B, H, KV, L, D and C.
        exchanged: A place, and two axes of it that are exchanged.
        symbolic: Whether B and L have names.
        rows_first: Whether the cache is (B, C, KV, D).
        repeats: How keys and values are repeated for groups of heads: each for the heads of its
            group, or all of them anew.
        packed: Whether queries come as (B, L, H * D), and are taken apart as such or as if heads
            stood before rows.
        product: How the products are written.
        masked: How the mask comes about: from positions, or it is fed as (B, 1, L, C).
        attention: What `raise` is to make of the attention.
    """

    form: Form = "tensor_scatter"
    sizes: dict[str, int] = field(default_factory=lambda: SIZES["all differ"])
    exchanged: Exchange | None = None
    symbolic: bool = False
    rows_first: bool = False
    repeats: Literal["each", "all"] = "each"
    packed: Literal["no", "rows first", "heads first"] = "no"
    product: Literal["MatMul", "Einsum"] = "MatMul"
    masked: Literal["positions", "fed"] = "positions"
    attention: AttentionChoice = "auto"

    @property
    def new_rows(self) -> int:
        """How many rows a step writes."""
        return 1 if self.form == "where" else self.sizes["L"]

    @property
    def keeps_rows_first(self) -> bool:
        """Whether the products read the cache as (B, C, KV, D)."""
        is_grouped = self.sizes["H"] != self.sizes["KV"]
        return self.rows_first and self.product == "Einsum" and not is_grouped

    def heads_and(self, rows: str) -> str:
        """Return the letters of heads and rows in the order in which the products read them."""
        return f"{rows}h" if self.keeps_rows_first else f"h{rows}"

    @property
    def capacity(self) -> int | None:
        """What `raise` is given for a cache that grows."""
        return self.sizes["C"] if self.form == "concat" else None


def exchanges(sizes: dict[str, int]) -> Iterator[Exchange | None]:
    """Yield every place with two axes of it that have one size; None first."""
    yield None
    for place, letters in _PLACES.items():
        for a, b in itertools.combinations(range(4), 2):
            if sizes.get(letters[a], 1) == sizes.get(letters[b], 1):
                yield place, a, b


@dataclass
class _Builder:
    layer: Layer
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)

    def op(self, op_type: str, *inputs: str, to: str = "", **attributes: Any) -> str:
        name = to or f"{op_type.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], **attributes))
        return name

    def ints(self, *numbers: int) -> str:
        name = "i_" + "_".join(map(str, numbers)).replace("-", "m")
        array = np.array(numbers, np.int64)
        self.constants.setdefault(name, onnx.numpy_helper.from_array(array, name))
        return name

    def scalar(self, number: int) -> str:
        name = f"n_{number}"
        array = np.array(number, np.int64)
        self.constants.setdefault(name, onnx.numpy_helper.from_array(array, name))
        return name

    def number(self, number: float) -> str:
        name = f"f_{number}".replace("-", "m").replace(".", "_")
        array = np.array(number, np.float32)
        self.constants.setdefault(name, onnx.numpy_helper.from_array(array, name))
        return name

    def at(self, place: str, value: str, to: str = "") -> str:
        """Return a value with two axes exchanged where this is the place for it."""
        exchanged = self.layer.exchanged
        if exchanged is None or exchanged[0] != place:
            return self.op("Identity", value, to=to) if to else value
        order = [0, 1, 2, 3]
        _, a, b = exchanged
        order[a], order[b] = order[b], order[a]
        return self.op("Transpose", value, to=to, perm=order)

    def size(self, letter: str, source: str, axis: int) -> str:
        """Return a size as a vector of one: a number, or read off a value."""
        if self.layer.symbolic and letter in "BL":
            return self.op("Shape", source, start=axis, end=axis + 1)
        return self.ints(self.layer.new_rows if letter == "L" else self.layer.sizes[letter])


def build(layer: Layer) -> onnx.ModelProto:
    """Return a model with inputs q, new_k, new_v, past_k, past_v, perhaps w and mask; output y."""
    b = _Builder(layer)
    query = _queries(b)
    keys, values = (_repeated(b, _cached(b, which)) for which in "kv")
    mask = b.at("mask", b.op("Where", _seen(b), b.number(0.0), b.number(-np.inf)))
    masked = b.at("masked", b.op("Add", b.at("scores", _scores(b, query, keys)), mask))
    weights = b.at("weights", b.op("Softmax", masked, axis=-1))
    b.at("result", _weighted(b, weights, values), to="y")
    return _model(b)


def _scores(b: _Builder, query: str, keys: str) -> str:
    turned = b.layer.exchanged == ("turned", 2, 3)
    if b.layer.product == "Einsum":
        letters = f"b{b.layer.heads_and('j')}d"
        if turned:
            letters = letters.translate(str.maketrans("jd", "dj"))
        return b.op("Einsum", query, keys, equation=f"bhid,{letters}->bhij")
    if turned:  # as nobody writes a Transpose twice
        return b.op("MatMul", query, keys)
    return b.op("MatMul", query, b.at("turned", b.op("Transpose", keys, perm=[0, 1, 3, 2])))


def _weighted(b: _Builder, weights: str, values: str) -> str:
    if b.layer.product == "MatMul":
        return b.op("MatMul", weights, values)
    return b.op("Einsum", weights, values, equation=f"bhij,b{b.layer.heads_and('j')}e->bhie")


def _queries(b: _Builder) -> str:
    sizes = b.layer.sizes
    if b.layer.packed == "no":
        return b.at("q", "q")
    rows = [b.size("L", "q", 1), b.ints(sizes["H"])]
    if b.layer.packed == "heads first":
        rows.reverse()
    shape = b.op("Concat", b.size("B", "q", 0), *rows, b.ints(sizes["D"]), axis=0)
    apart = b.op("Reshape", "q", shape)
    if b.layer.packed == "rows first":
        apart = b.op("Transpose", apart, perm=[0, 2, 1, 3])
    return b.at("q", apart)


def _cached(b: _Builder, which: str) -> str:
    """Return keys or values after the step, as (B, KV, rows, D)."""
    axis = 1 if b.layer.rows_first else 2
    new, past = b.at(f"new_{which}", f"new_{which}"), b.at(f"past_{which}", f"past_{which}")
    new = b.op("Transpose", new, perm=[0, 2, 1, 3]) if b.layer.rows_first else b.op("Neg", new)
    present = b.at(f"present_{which}", _update(b, past, new, axis), f"present_{which}")
    if b.layer.rows_first and not b.layer.keeps_rows_first:
        present = b.op("Transpose", present, perm=[0, 2, 1, 3])
    return b.at(which, present)


def _update(b: _Builder, past: str, new: str, axis: int) -> str:
    sizes, form = b.layer.sizes, b.layer.form
    if form == "tensor_scatter":
        return b.op("TensorScatter", past, new, "w", axis=axis)
    if form == "concat":
        return b.op("Concat", past, new, axis=axis)
    starts = b.op("Unsqueeze", "w", b.ints(1, 2, 3))
    if form == "where":
        count = b.op("Range", b.scalar(0), b.scalar(sizes["C"]), b.scalar(1))
        rest = [k for k in range(4) if k != axis]
        hit = b.op("Equal", b.op("Unsqueeze", count, b.ints(*rest)), starts)
        return b.op("Where", hit, new, past)
    rows = _rows(b, axis)
    positions = b.op("Add", starts, rows)
    if form == "elements":
        index = b.op("Expand", positions, b.op("Shape", new))
        return b.op("ScatterElements", past, index, new, axis=axis)
    grid = b.op("Shape", new, start=0, end=3)
    other = 2 if axis == 1 else 1
    parts = {
        0: _counted(b, b.size("B", "q", 0), (1, 2)),
        other: _counted(b, b.ints(sizes["KV"]), tuple(k for k in range(3) if k != other)),
        axis: b.op("Squeeze", positions, b.ints(3)),
    }
    tuples = [b.op("Unsqueeze", b.op("Expand", parts[k], grid), b.ints(3)) for k in range(3)]
    return b.op("ScatterND", past, b.op("Concat", *tuples, axis=3), new)


def _rows(b: _Builder, axis: int) -> str:
    """Return the numbers of the new rows along an axis of four."""
    return _counted(b, b.size("L", "new_k", 2), tuple(k for k in range(4) if k != axis))


def _counted(b: _Builder, size: str, axes: tuple[int, ...]) -> str:
    count = b.op("Range", b.scalar(0), b.op("Squeeze", size), b.scalar(1))
    return b.op("Unsqueeze", count, b.ints(*axes))


def _repeated(b: _Builder, value: str) -> str:
    """Return keys or values for each query head."""
    sizes = b.layer.sizes
    group = sizes["H"] // sizes["KV"]
    if group == 1:
        return value
    each = b.layer.repeats == "each"
    wide = b.op("Unsqueeze", value, b.ints(2 if each else 1))
    two = [b.ints(sizes["KV"]), b.ints(group)]
    ends = b.op("Shape", value, start=2, end=4)
    batch = b.op("Shape", value, start=0, end=1)
    shape = b.op("Concat", batch, *(two if each else two[::-1]), ends, axis=0)
    joined = b.op("Concat", batch, b.ints(sizes["H"]), ends, axis=0)
    return b.op("Reshape", b.op("Expand", wide, shape), joined)


def _seen(b: _Builder) -> str:
    """Return which keys are seen, (B, 1, L, C)."""
    if b.layer.masked == "fed":
        return "mask"
    rows = _rows(b, 2)
    if b.layer.form == "concat":
        axis = 1 if b.layer.rows_first else 2
        before = b.op("Shape", "past_k", start=axis, end=axis + 1)
        every = b.op("Add", before, b.size("L", "new_k", 2))
    else:
        before = b.op("Unsqueeze", "w", b.ints(1, 2, 3))
        every = b.ints(b.layer.sizes["C"])
    columns = b.op("Range", b.scalar(0), b.op("Squeeze", every), b.scalar(1))
    rows = b.op("Add", rows, before)
    return b.op("LessOrEqual", b.op("Unsqueeze", columns, b.ints(0, 1, 2)), rows)


def _shapes(layer: Layer) -> dict[str, list[int | str]]:
    sizes: dict[str, int | str] = dict(layer.sizes)
    if layer.symbolic:
        sizes |= {"B": "batch", "L": "rows"}
    one: int | str = 1 if layer.form == "where" else sizes["L"]
    past: int | str = "past" if layer.form == "concat" else sizes["C"]
    cache = [past, sizes["KV"]] if layer.rows_first else [sizes["KV"], past]
    kept = sizes["H"] if layer.packed == "no" else layer.sizes["H"] * layer.sizes["D"]
    q = [sizes["B"], one, kept] if layer.packed != "no" else [sizes["B"], kept, one, sizes["D"]]
    new = [sizes["B"], sizes["KV"], one, sizes["D"]]
    found: dict[str, list[int | str]] = {"q": q, "new_k": new, "new_v": new}
    for which in "kv":
        found[f"past_{which}"] = [sizes["B"], *cache, sizes["D"]]
    if layer.form != "concat":
        found["w"] = [sizes["B"]]
    if layer.masked == "fed":
        columns = "both" if layer.form == "concat" else sizes["C"]
        found["mask"] = [sizes["B"], 1, one, columns]
    return found


_TYPES = {"w": onnx.TensorProto.INT64, "mask": onnx.TensorProto.BOOL}


def _model(b: _Builder) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info(name, _TYPES.get(name, onnx.TensorProto.FLOAT), shape)
        for name, shape in _shapes(b.layer).items()
    ]
    outputs = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None] * 4)
        for name in ("y", "present_k", "present_v")
    ]
    graph = helper.make_graph(b.nodes, "layer", inputs, outputs, [*b.constants.values()])
    opset = 24 if b.layer.form == "tensor_scatter" else 18
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def _rows_in_use(layer: Layer) -> int:
    """Return the rows in use of a cache that grows."""
    return min(_PAST, layer.sizes["C"] - layer.sizes["L"])


def feeds(layer: Layer, seed: int) -> dict[str, Array]:
    """Return inputs of the source."""
    rng = np.random.default_rng(seed)
    known = {"batch": layer.sizes["B"], "rows": layer.sizes["L"], "past": _rows_in_use(layer)}
    known["both"] = known["past"] + layer.sizes["L"]
    found: dict[str, Array] = {}
    for name, dims in _shapes(layer).items():
        shape = [known[dim] if isinstance(dim, str) else dim for dim in dims]
        if name == "w":
            found[name] = rng.integers(0, layer.sizes["C"] - layer.new_rows + 1, shape)
        elif name == "mask":
            found[name] = rng.random(shape) < 0.6
            found[name][..., 0] = True
        else:
            found[name] = rng.standard_normal(shape).astype(np.float32)
    return found


def padded(layer: Layer, given: dict[str, Array], raised: onnx.ModelProto) -> dict[str, Array]:
    """Return the same for the raised model: caches of its capacity, and how much is in use."""
    found = dict(given)
    for value in raised.graph.input:
        if value.name == "past_length":
            found[value.name] = np.array([_rows_in_use(layer)])
        elif value.name.startswith("past_"):
            axis = 1 if layer.rows_first else 2
            lacking = list(given[value.name].shape)
            lacking[axis] = value.type.tensor_type.shape.dim[axis].dim_value - lacking[axis]
            if lacking[axis] > 0:
                rest = np.full(lacking, 3.5, np.float32)
                found[value.name] = np.concatenate([given[value.name], rest], axis)
    return found
