"""Attention in many nodes, built from choices, and what runs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper

from onnx_kvtool.core.walk import nodes
from onnx_kvtool.model_io.model import clone
from onnx_kvtool.rewrite.raise_ import raise_model
from onnx_kvtool.rewrite.raising.stage import RaiseOutcome, RaiseSettings
from onnx_kvtool.runtime.engine.evaluator import Evaluator

__all__ = ["Form", "Layout", "MaskForm", "Runs", "build", "feeds", "fused", "run"]

B, L, S, D, E = 2, 5, 11, 7, 13
"""Sizes that cannot be taken for each other; heads are 3 times a group of 2."""

Layout = Literal["four", "five", "three", "joined", "two", "einsum"]
MaskKind = Literal["add", "add-scaled", "sub", "where", "where-inverted"]

_DTYPES = {
    "float32": (onnx.TensorProto.FLOAT, np.float32),
    "float16": (onnx.TensorProto.FLOAT16, np.float16),
    "bfloat16": (onnx.TensorProto.BFLOAT16, ml_dtypes.bfloat16),
    "float64": (onnx.TensorProto.DOUBLE, np.float64),
}


@dataclass(frozen=True)
class MaskForm:
    """One mask.

    Attributes:
        kind: How it meets the scores.
        shape: Its sizes, as letters; 1 for an axis along which it is broadcast.
        fill: What a bool puts in place of scores.
    """

    kind: MaskKind = "add"
    shape: str = "B1LS"
    fill: Literal["inf", "lowest"] = "inf"


@dataclass(frozen=True)
class Form:
    """One way to write attention.

    Attributes:
        layout: Rank and order of the scores: (B, H, L, S), grouped (B, KV, G, L, S), (N, L, S)
            without heads, (B * H, L, S), (L, S), or (B, H, L, S) by Einsum.
        heads: Query heads for each head of keys and values, and the latter.
        stored: Whether keys come as (B, KV, D, S).
        rows_first: Whether queries, keys and values come as (B, rows, heads, width).
        turned: Whether keys are transposed through three axes.
        scales: Where the scores are scaled.
        softcap: Limit of the scores; 0 for none.
        masks: The masks, in the order in which they meet the scores.
        guard: Whether probabilities that are no number become zeros.
        precise: Whether the Softmax is computed in float32.
        back: Whether the result is brought to (B, L, H * E).
        dtype: Element type.
        symbolic: Whether sizes have names.
        opset: Version of the default domain.
        sizes: Batch, queries, keys, and the widths of keys and of values.
    """

    layout: Layout = "four"
    group: int = 1
    kv: int = 3
    stored: bool = False
    rows_first: bool = False
    turned: bool = False
    scales: tuple[str, ...] = ("scores",)
    softcap: float = 0.0
    masks: tuple[MaskForm, ...] = ()
    guard: bool = False
    precise: bool = False
    back: bool = True
    dtype: str = "float32"
    symbolic: bool = True
    opset: int = 18
    sizes: tuple[int, int, int, int, int] = (B, L, S, D, E)

    @property
    def width(self) -> int:
        """Size of a head of queries and keys."""
        return self.sizes[3]

    @property
    def value_width(self) -> int:
        """Size of a head of values."""
        return self.sizes[4]


@dataclass
class _Builder:
    form: Form
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op_type.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], name, **attributes))
        return name

    def ints(self, *numbers: int) -> str:
        return self.tensor(np.array(numbers, np.int64))

    def number(self, number: float) -> str:
        return self.tensor(np.array(number).astype(_DTYPES[self.form.dtype][1]))

    def tensor(self, array: np.ndarray[Any, Any]) -> str:
        name = f"c{len(self.constants)}"
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        raw = array.tobytes()
        self.constants.append(helper.make_tensor(name, kind, array.shape, raw, raw=True))
        return name

    def sizes(self, value: str, *parts: int | str) -> str:
        """Return a vector of sizes: numbers, and axes of `value` where they are texts."""
        items = [
            self.op("Shape", value, start=int(part), end=int(part) + 1)
            if isinstance(part, str)
            else self.ints(part)
            for part in parts
        ]
        return self.op("Concat", *items, axis=0)


def build(form: Form) -> onnx.ModelProto:
    """Return a model with inputs q, k, v and one for each mask, and the output y."""
    b = _Builder(form)
    query, key, value = _operands(b)
    scores = _scores(b, query, key)
    probabilities = _probabilities(b, scores)
    result = _result(b, probabilities, value)
    kind = _DTYPES[form.dtype][0]
    inputs = [
        helper.make_tensor_value_info(name, kind, _dims(form, letters))
        for name, letters in _inputs(form).items()
    ]
    for place, mask in enumerate(form.masks):
        is_bool = mask.kind.startswith("where")
        inputs.append(
            helper.make_tensor_value_info(
                f"m{place}",
                onnx.TensorProto.BOOL if is_bool else kind,
                _dims(form, mask.shape),
            )
        )
    b.nodes.append(helper.make_node("Identity", [result], ["y"], "out"))
    output = helper.make_tensor_value_info("y", kind, None)
    graph = helper.make_graph(b.nodes, "attention", inputs, [output], b.constants)
    imports = [helper.make_opsetid("", form.opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def _sizes(form: Form) -> dict[str, int]:
    batch, rows, keys, width, value_width = form.sizes
    heads = form.group * form.kv
    known = {"B": batch, "H": heads, "K": form.kv, "G": form.group, "N": batch * heads, "1": 1}
    return {**known, "L": rows, "S": keys, "D": width, "E": value_width}


def _dims(form: Form, letters: str) -> list[int | str]:
    sizes = _sizes(form)
    return [
        {"B": "batch", "L": "rows", "S": "keys", "N": "both"}[letter]
        if form.symbolic and letter in "BLSN"
        else sizes[letter]
        for letter in letters
    ]


def _inputs(form: Form) -> dict[str, str]:
    if form.layout == "two":
        return {"q": "LD", "k": "SD", "v": "SE"}
    if form.layout == "three":
        return {"q": "NLD", "k": "NSD", "v": "NSE"}
    if form.rows_first:
        return {"q": "BLHD", "k": "BSKD", "v": "BSKE"}
    return {"q": "BHLD", "k": "BKDS" if form.stored else "BKSD", "v": "BKSE"}


def _operands(b: _Builder) -> tuple[str, str, str]:
    form = b.form
    query, key, value = "q", "k", "v"
    if form.rows_first and form.layout not in ("two", "three"):
        query, key, value = (b.op("Transpose", x, perm=[0, 2, 1, 3]) for x in "qkv")
    if "q" in form.scales:
        query = b.op("Mul", query, b.number(0.25))
    if form.layout == "five":
        query = b.op("Reshape", query, b.ints(0, form.kv, form.group, -1, form.width))
        key, value = (b.op("Unsqueeze", x, b.ints(2)) for x in (key, value))
    elif form.group > 1:
        key, value = (_repeated(b, x, name) for x, name in ((key, "k"), (value, "v")))
    if form.layout == "joined":
        query = b.op("Reshape", query, b.sizes(query, -1, "2", form.width))
        key = b.op("Reshape", key, b.sizes(key, -1, "2", form.width))
        value = b.op("Reshape", value, b.sizes(value, -1, "2", form.value_width))
    return query, key, value


def _repeated(b: _Builder, value: str, name: str) -> str:
    """Repeat keys or values for the query heads of a group."""
    form = b.form
    last = {"k": S if form.stored else form.width, "v": form.value_width}[name]
    apart = b.op("Unsqueeze", value, b.ints(2))
    stored = name == "k" and form.stored
    ends: tuple[int | str, ...] = (form.width, "3") if stored else ("2", last)
    wide = b.op("Expand", apart, b.sizes(value, "0", form.kv, form.group, *ends))
    return b.op("Reshape", wide, b.sizes(value, "0", form.kv * form.group, *ends))


def _columns(b: _Builder, key: str) -> str:
    """Return keys with their rows as columns."""
    form = b.form
    if form.stored:
        return key
    if form.layout == "four" and form.turned:
        heads = form.kv * form.group
        flat = b.op("Reshape", key, b.sizes(key, -1, "2", form.width))
        columns = b.op("Transpose", flat, perm=[0, 2, 1])
        return b.op("Reshape", columns, b.sizes(key, "0", heads, form.width, "2"))
    rank = {"two": 2, "three": 3, "joined": 3, "five": 5}.get(form.layout, 4)
    return b.op("Transpose", key, perm=[*range(rank - 2), rank - 1, rank - 2])


def _scores(b: _Builder, query: str, key: str) -> str:
    form = b.form
    if form.layout == "einsum":
        equation = "bhid,bhdj->bhij" if form.stored else "bhid,bhjd->bhij"
        scores = b.op("Einsum", query, key, equation=equation)
    else:
        columns = _columns(b, key)
        if "k" in form.scales:
            columns = b.op("Mul", columns, b.number(0.5))
        scores = b.op("MatMul", query, columns)
    if "scores" in form.scales:
        scores = b.op("Mul", scores, b.number(0.375))
    if "divided" in form.scales:
        scores = b.op("Div", scores, b.number(3.0))
    if form.softcap:
        capped = b.op("Tanh", b.op("Div", scores, b.number(form.softcap)))
        scores = b.op("Mul", capped, b.number(form.softcap))
    for place, mask in enumerate(form.masks):
        scores = _masked(b, scores, f"m{place}", mask)
    return scores


def _masked(b: _Builder, scores: str, name: str, mask: MaskForm) -> str:
    form = b.form
    if form.layout == "five" and len(mask.shape) == 4:
        name = b.op("Unsqueeze", name, b.ints(1))
    if mask.kind == "add":
        return b.op("Add", scores, name)
    if mask.kind == "sub":
        return b.op("Sub", scores, name)
    if mask.kind == "add-scaled":
        return b.op("Mul", b.op("Add", name, scores), b.number(0.5))
    dtype = _DTYPES[form.dtype][1]
    lowest = ml_dtypes.finfo(dtype).min
    fill = b.number(float("-inf") if mask.fill == "inf" else float(lowest))
    if mask.kind == "where":
        return b.op("Where", name, scores, fill)
    return b.op("Where", name, fill, scores)


def _probabilities(b: _Builder, scores: str) -> str:
    form = b.form
    if form.precise:
        scores = b.op("Cast", scores, to=onnx.TensorProto.FLOAT)
    probabilities = b.op("Softmax", scores, axis=-1)
    if form.precise:
        probabilities = b.op("Cast", probabilities, to=_DTYPES[form.dtype][0])
    if form.guard:
        test = b.op("IsNaN", probabilities)
        probabilities = b.op("Where", test, b.number(0.0), probabilities)
    return probabilities


def _result(b: _Builder, probabilities: str, value: str) -> str:
    form = b.form
    heads = form.kv * form.group
    if form.layout == "einsum":
        result = b.op("Einsum", probabilities, value, equation="bhij,bhje->bhie")
    else:
        result = b.op("MatMul", probabilities, value)
    if not form.back or form.layout in ("two", "three"):
        return result
    if form.layout in ("five", "joined"):
        result = b.op("Reshape", result, b.sizes("q", "0", heads, -1, form.value_width))
    turned = b.op("Transpose", result, perm=[0, 2, 1, 3])
    return b.op("Reshape", turned, b.ints(0, 0, heads * form.value_width))


def feeds(form: Form, seed: int, *, dead: bool = False) -> dict[str, np.ndarray[Any, Any]]:
    """Return inputs; with `dead` rows of the masks may hide every key."""
    rng = np.random.default_rng(seed)
    dtype = _DTYPES[form.dtype][1]
    sizes = _sizes(form)

    def shape(letters: str) -> list[int]:
        return [sizes[letter] for letter in letters]

    found = {
        name: rng.standard_normal(shape(letters)).astype(dtype)
        for name, letters in _inputs(form).items()
    }
    hides = [i for i, m in enumerate(form.masks) if m.kind.startswith("where")][:1]
    for place, mask in enumerate(form.masks):
        if mask.kind.startswith("where"):
            chance = 0.6 if place in hides else 1.0
            shown = rng.random(shape(mask.shape)) < chance
            shown[..., 0] = True
            if dead and shown.ndim > 1 and mask.shape[-1] != "1":
                shown[..., 1 % shown.shape[-2], :] = False
            found[f"m{place}"] = shown if mask.kind == "where" else ~shown
        else:
            found[f"m{place}"] = rng.standard_normal(shape(mask.shape)).astype(dtype)
    return found


@dataclass(frozen=True)
class Runs:
    """A model after raising.

    Attributes:
        model: The model.
        outcome: What was done.
        ops: Its operators.
    """

    model: ir.Model
    outcome: RaiseOutcome
    ops: Sequence[str]


def fused(source: onnx.ModelProto) -> Runs:
    """Raise a model with `--attention auto`."""
    model = clone(ir.from_proto(source))
    outcome = raise_model(model, RaiseSettings(attention="auto"))
    return Runs(model, outcome, [node.op_type for _, _, node in nodes(model)])


def run(model: ir.Model, inputs: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Return the output y by the reference runtime."""
    return Evaluator(model).run(inputs).values["y"]
