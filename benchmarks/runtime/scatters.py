"""Scatters of a million elements, by our kernels, onnx.reference and onnxruntime."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from benchmarks.results import Cell, Line, Table, ratio_cell
from benchmarks.runtime.one_node import SEED, demand_same, one_node
from benchmarks.session import session
from benchmarks.turns import in_turns
from onnx_kvtool.runtime.kernels.kernel import Context
from onnx_kvtool.runtime.kernels.scatter.scatter import scatter_elements_11, scatter_nd_11

__all__ = ["SCATTERS"]

_Indices = Literal["once", "negative", "repeated"]


@dataclass(frozen=True, slots=True)
class _Scatter:
    """A scatter of a million elements.

    Attributes:
        form: Which elements the indices name: along `axis`, every one, or rows of 125.
        reduction: As the attribute.
        axis: Of ScatterElements; None for ScatterND.
        indices: `once` names each place once, `negative` half of them from the end, `repeated`
            some more than once.
    """

    form: Literal["axis", "elements", "rows"]
    reduction: str
    axis: int | None = None
    indices: _Indices = "once"

    @property
    def op_type(self) -> str:
        """The operator."""
        return "ScatterElements" if self.form == "axis" else "ScatterND"

    @property
    def case(self) -> str:
        """What the table calls it."""
        form = {"axis": f"axis {self.axis}", "elements": "elements", "rows": "rows of 125"}
        notes = {"once": "", "negative": ", half negative", "repeated": ", repeated"}
        return f"{self.op_type}, {form[self.form]}, {self.reduction}{notes[self.indices]}"

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of the node."""
        axis = {} if self.axis is None else {"axis": self.axis}
        return {"reduction": self.reduction, **axis}

    def inputs(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Return data, indices and updates."""
        data = rng.random((1000, 1000), dtype=np.float32)
        updates = rng.random((1000, 1000), dtype=np.float32)
        if self.form == "rows":
            data, updates = data.reshape(-1, 125), updates.reshape(-1, 125)
            indices = rng.permutation(len(data))[:, None]
        elif self.form == "elements":
            updates = updates.reshape(-1)
            places = np.unravel_index(rng.permutation(data.size), data.shape)
            indices = np.stack(places, axis=-1)
            if self.indices == "repeated":
                indices = rng.integers(0, 1000, indices.shape)
        elif self.indices == "repeated":
            indices = rng.integers(0, 1000, data.shape)
        else:
            indices = np.argsort(rng.random(data.shape), axis=self.axis)
            if self.indices == "negative":
                indices -= 1000 * (rng.random(data.shape) < 0.5)
        return {"data": data, "indices": indices, "updates": updates}


_ALONG: tuple[tuple[str, _Indices], ...] = (
    ("none", "once"),
    ("none", "negative"),
    ("add", "once"),
    ("add", "repeated"),
    ("max", "repeated"),
)
_CASES = (
    *(_Scatter("axis", reduction, axis, given) for axis in (0, 1) for reduction, given in _ALONG),
    _Scatter("elements", "none"),
    _Scatter("elements", "add"),
    _Scatter("elements", "add", indices="repeated"),
    _Scatter("elements", "max", indices="repeated"),
    _Scatter("rows", "none"),
    _Scatter("rows", "add"),
)


def _lines(quick: bool) -> Iterator[Line]:
    """Scatters of a million elements, by onnx.reference and by onnxruntime."""
    kernels: dict[str, Any] = {
        "ScatterElements": scatter_elements_11,
        "ScatterND": scatter_nd_11,
    }
    context = Context(18, 1, lambda _: None)
    rng = np.random.default_rng(SEED)
    for scatter in _CASES:
        inputs, attributes = scatter.inputs(rng), scatter.attributes()
        model = one_node(scatter.op_type, 18, inputs, **attributes)
        theirs = session(model)

        def ours(
            kernel: Any = kernels[scatter.op_type], given: Any = inputs, named: Any = attributes
        ) -> Any:
            return kernel(*given.values(), **named, context=context)

        def other(theirs: Any = theirs, inputs: Any = inputs) -> Any:
            return theirs.run(None, inputs)

        milliseconds, ratio = in_turns(ours, other, 2 if quick else 11)
        reference = ReferenceEvaluator(onnx.ModelProto.FromString(model))
        begin = time.perf_counter()
        (slow,) = reference.run(None, inputs)
        slower = (time.perf_counter() - begin) * 1e3 / milliseconds
        # The reference sums up repeated elements in its own order.
        compared = [ours()[0], other()[0]]
        if scatter.indices != "repeated":
            compared.append(np.asarray(slow))
        demand_same(scatter.case, compared)
        yield Line(
            scatter.case,
            (
                Cell(f"{milliseconds:.2f} ms"),
                ratio_cell(ratio, 3),
                ratio_cell(slower, 20, at_least=True),
            ),
        )


SCATTERS = Table(
    "scatters of a million elements",
    "Kernels are called as the evaluator calls them, so that the checks for range and duplicates "
    "are part of the time. onnx.reference is slow and runs once.",
    ("operator", "ours", "ours / onnxruntime", "onnx.reference / ours"),
    tuple(scatter.case for scatter in _CASES),
    _lines,
)
"""The table of scatters."""
