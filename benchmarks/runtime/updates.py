"""TensorScatter by a copy of the cache, and in place by onnxruntime's in-place kernel.

The copy is made by a whole session, with all that it does around the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from benchmarks.results import Cell, Line, Table, ratio_cell
from benchmarks.runtime.one_node import SEED, demand_same, one_node
from benchmarks.session import session
from benchmarks.turns import in_turns
from onnx_kvtool import ReferenceEvaluator
from onnx_kvtool.runtime.kernels.scatter.tensor_scatter import tensor_scatter

__all__ = ["UPDATES"]

_INNER = 20
"""Calls per turn where one call takes microseconds."""

_CACHES = (
    ((1, 8, 1024, 128), 128),
    ((4, 8, 1024, 128), 128),
    ((1, 8, 1024, 128), 1),
)
_MODES = ("linear", "circular")


def _lines(quick: bool) -> Iterator[Line]:
    """TensorScatter by a copy of the cache, and in place by onnxruntime's in-place kernel."""
    rng = np.random.default_rng(SEED)
    repeat = 8 if quick else 44
    for shape, length in _CACHES:
        for mode in _MODES:
            batch, heads, capacity, width = shape
            past = rng.random(shape, dtype=np.float32)
            update = rng.random((batch, heads, length, width), dtype=np.float32)
            # In circular mode each update wraps around.
            first = 0 if mode == "linear" else capacity - length // 2
            starts = first + 3 * np.arange(batch)
            inputs: dict[str, Any] = {"past_cache": past, "update": update, "write_indices": starts}
            model = one_node("TensorScatter", 24, inputs, mode=mode)
            theirs = session(model)
            whole = ReferenceEvaluator(onnx.ModelProto.FromString(model))

            def ours(given: Any = inputs, whole: Any = whole) -> Any:
                return whole.run(None, given)

            case = _update(shape, length, mode)
            demand_same(case, [ours()[0], theirs.run(None, inputs)[0]])
            copied, ratio = in_turns(ours, past.copy, repeat)

            bound = _Bound(theirs, inputs)
            mine = {**inputs, "past_cache": past.copy()}

            def in_place(given: Any = mine, mode: str = mode) -> None:
                for _ in range(_INNER):
                    tensor_scatter(**given, axis=-2, mode=mode, in_place=True)

            placed, beside = in_turns(in_place, bound.run, repeat)
            demand_same(case, [mine["past_cache"], bound.cache.numpy()])
            yield Line(
                case,
                (
                    Cell(f"{copied:.3f} ms"),
                    ratio_cell(ratio, 1.5),
                    Cell(f"{placed / _INNER:.4f} ms"),
                    # A Python call beside one of C++: one row is over before either has begun.
                    ratio_cell(beside, 3 if length == 128 else None),
                ),
            )


def _update(shape: tuple[int, ...], length: int, mode: str) -> str:
    return f"{shape}, {length} {'row' if length == 1 else 'rows'}, {mode}"


class _Bound:
    """A session whose past and present cache are one buffer."""

    def __init__(self, theirs: Any, inputs: dict[str, np.ndarray]) -> None:
        self._session = theirs
        self._binding = theirs.io_binding()
        self._inputs = {n: ort.OrtValue.ortvalue_from_numpy(v.copy()) for n, v in inputs.items()}
        for name, value in self._inputs.items():
            self._binding.bind_ortvalue_input(name, value)
        self.cache = self._inputs["past_cache"]
        self._binding.bind_ortvalue_output("output", self.cache)

    def run(self) -> None:
        for _ in range(_INNER):
            self._session.run_with_iobinding(self._binding)


UPDATES = Table(
    "TensorScatter",
    "By copying a cache of float32, (B, H, S, D), and in place.",
    ("cache", "copying", "ours / copy of the cache", "in place", "ours / onnxruntime"),
    tuple(_update(*cache, mode) for cache in _CACHES for mode in _MODES),
    _lines,
)
"""The table of TensorScatter."""
