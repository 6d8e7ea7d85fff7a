"""Two models in one text, and the inputs that tell them apart.

`[[a|b]]` stands for `a` in the first model and for `b` in the second. A weight stands where it is
read: `#float[2]{3, 5}`, `#int64{7}`, `#int64[9]{0..8}`, or drawn from N(0, 1) as `#float[3,5]~7`,
which the same number makes again. What follows a drawn weight changes it: `@2*3` multiplies its row
2 by 3, `.T` transposes it, `.r1` reverses its axis 1, `*0.5` multiplies all of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, parser

__all__ = ["Array", "Pair", "disguised", "drawn", "one", "pair"]

Array = np.ndarray[Any, Any]
Feed = Callable[[np.random.Generator], Array] | Any

_WEIGHT = re.compile(
    r"#(?P<type>\w+)(?P<dims>\[[\d,]*\])?"
    r"(?:\{(?P<values>[^{}]*)\}|~(?P<seed>\d+)(?P<changes>(?:@\d+\*[\d.-]+|\*[\d.-]+|\.T|\.r\d)*))"
)
_BOTH = re.compile(r"\[\[(.*?)\|(.*?)\]\]", re.DOTALL)
_HOISTED = re.compile(
    r"#\w+(?:\[[\d,]*\])?(?:\{[^{}]*\}|~\d+(?:@\d+\*[\d.-]+|\*[\d.-]+|\.T|\.r\d|\[\[[^\[\]]*\]\])*)"
)
_CHANGE = re.compile(r"@(\d+)\*([\d.-]+)|\*([\d.-]+)|\.(T)|\.r(\d)")


@dataclass(frozen=True)
class Pair:
    """Two models of one interface.

    Attributes:
        name: What differs, or why nothing does.
        text: Both models in the language of this module, from the inputs on.
        opset: Version of the default domain.
        feeds: Inputs, by name: values, or what draws them.
        fails: Whether the second model fails on the feeds, where the first one runs.
        is_random: Whether mean and deviation of outputs tell the models apart, not elements.
        runtime: What computes the models right.
        apart: How far outputs are apart, as a share of what is largest in them.
    """

    name: str
    text: str
    opset: int
    feeds: Mapping[str, Feed]
    fails: bool = False
    is_random: bool = False
    runtime: str = "auto"
    apart: float = 1e-3

    def __str__(self) -> str:
        return self.name

    def models(self, seed: int = 0) -> tuple[onnx.ModelProto, onnx.ModelProto]:
        """Return both models; another seed draws other weights."""
        weights: dict[str, str] = {}

        def hoisted(match: re.Match[str]) -> str:
            name = f"w{len(weights)}"
            weights[name] = match[0]
            return name

        text = _HOISTED.sub(hoisted, self.text)
        first, second = (
            _model(
                _BOTH.sub(rf"\{side}", text),
                {name: _BOTH.sub(rf"\{side}", weight) for name, weight in weights.items()},
                self.opset,
                seed,
            )
            for side in (1, 2)
        )
        return first, second

    def inputs(self, model: onnx.ModelProto, seed: int = 0) -> dict[str, Array]:
        """Return the feeds in the types of the inputs of `model`."""
        rng = np.random.default_rng([seed, 1])
        types = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
        found = {}
        for name, feed in self.feeds.items():
            value = feed(rng) if callable(feed) else feed
            dtype = helper.tensor_dtype_to_np_dtype(types[name])
            found[name] = np.asarray(value).astype(dtype)
        return found


def pair(name: str, text: str, /, *, opset: int = 18, **feeds: Feed) -> Pair:
    """Return a pair; what `Pair` has besides is no feed."""
    own = ("fails", "is_random", "runtime", "apart")
    given = {key: feeds.pop(key) for key in own if key in feeds}
    return Pair(name, text, opset, feeds, **given)


def disguised(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of `model` that gives the same by a node more for each output."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for output in copy.graph.output:
        inner = f"{output.name}/inner"
        for graph_node in copy.graph.node:
            for names in (graph_node.input, graph_node.output):
                names[:] = [inner if name == output.name else name for name in names]
        copy.graph.node.append(helper.make_node("Identity", [inner], [output.name]))
    return copy


def one(kind: str, body: str, made: str | None = None) -> str:
    """Return the text of a model from `x` of a type to `y`, of the same type unless it is given."""
    return f"({kind} x) => ({made or kind} y) {{ {body} }}"


def drawn(*shape: int, scale: float = 1.0, least: float | None = None) -> Feed:
    """Return what draws an array from N(0, 1), times `scale`; magnitudes above `least` if given."""

    def draw(rng: np.random.Generator) -> Array:
        values = rng.normal(size=shape) * scale
        return values if least is None else np.asarray(np.abs(values) + least)

    return draw


def _model(text: str, weights: Mapping[str, str], opset: int, seed: int) -> onnx.ModelProto:
    domains = f'"": {opset}, "local": 1, "com.microsoft": 1'
    model = parser.parse_model(f"<ir_version: 10, opset_import: [{domains}]>\ng {text}")
    used = {node.domain for node in model.graph.node} | {f.domain for f in model.functions}
    for imported in [i for i in model.opset_import if i.domain not in {"", *used}]:
        model.opset_import.remove(imported)
    model.graph.initializer.extend(
        numpy_helper.from_array(_weight(weight, seed), name)
        for name, weight in weights.items()
        if re.search(rf"\b{name}\b", text)
    )
    onnx.checker.check_model(model)
    return model


def _weight(text: str, seed: int) -> Array:
    match = _WEIGHT.fullmatch(text)
    assert match is not None, text
    kind = getattr(onnx.TensorProto, match["type"].upper())
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    dims = [int(d) for d in (match["dims"] or "").strip("[]").split(",") if d]
    if match["values"] is not None:
        first, _, last = match["values"].partition("..")
        listed = range(int(first), int(last) + 1) if last else match["values"].split(",")
        numbers = [float(v) if dtype.kind not in "iub" else int(v) for v in listed if v != ""]
        return np.array(numbers).astype(dtype).reshape(dims)
    values = np.random.default_rng([seed, int(match["seed"])]).normal(size=dims)
    for row, factor, all_by, transposed, axis in _CHANGE.findall(match["changes"]):
        if row:
            values[int(row)] *= float(factor)
        elif all_by:
            values = values * float(all_by)
        elif transposed:
            values = values.T
        else:
            values = np.flip(values, int(axis))
    return np.ascontiguousarray(values).astype(dtype)
