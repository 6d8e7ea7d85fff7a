"""A whole decoder in the reference runtime, beside onnx.reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from onnx.reference import ReferenceEvaluator as OnnxEvaluator

from benchmarks.decoders import decoder
from benchmarks.results import Cell, Line, Table, ratio_cell
from benchmarks.turns import in_turns
from onnx_kvtool import ReferenceEvaluator

_HIDDEN, _CAPACITY, _LAYERS = 512, 1024, 4
_AT_LEAST = 2.0
_LAYOUTS = {4: "(B, KV, S, D)", 3: "(B, S, KV * D)"}
_RUNS = {"prefill 128": (128, 1), "8 steps": (1, 8)}
"""Rows of each step, and number of steps."""

_CASES = tuple(f"decoder {layout}, {run}" for layout in _LAYOUTS.values() for run in _RUNS)
"""What is run, a prefill and a decode loop for either layout of the caches."""


def _lines(quick: bool) -> Iterator[Line]:
    """Run prefills and a decode loop with the caches fed back; ratio of onnx.reference to ours."""
    cases = iter(_CASES)
    for rank in _LAYOUTS:
        model = decoder(_LAYERS, hidden=_HIDDEN, heads=8, kv_heads=4, capacity=_CAPACITY, rank=rank)
        session, reference = ReferenceEvaluator(model), OnnxEvaluator(model)
        names = [output.name for output in model.graph.output]

        def ours(feeds: dict[str, Any], session: Any = session, names: Any = names) -> Any:
            if not feeds["write_indices"].any():
                session.reset()
            kept = {name: feeds[name] for name in feeds if not name.startswith("past.")}
            return dict(zip(names, session.run_step(None, kept), strict=True))

        def theirs(feeds: dict[str, Any], reference: Any = reference, names: Any = names) -> Any:
            return dict(zip(names, reference.run(None, feeds), strict=True))

        for length, steps in _RUNS.values():
            _demand_close(_loop(ours, model, length, 1), _loop(theirs, model, length, 1))
            milliseconds, ratio = in_turns(
                partial(_loop, ours, model, length, steps),
                partial(_loop, theirs, model, length, steps),
                2 if quick else 11,
            )
            faster = ratio_cell(1 / ratio, _AT_LEAST, at_least=True)
            yield Line(next(cases), (Cell(f"{milliseconds:.1f} ms"), faster))


def _loop(
    run: Callable[[dict[str, Any]], dict[str, Any]], model: Any, length: int, steps: int
) -> Any:
    """Run `steps` steps of `length` rows from an empty cache on; return the last outputs."""
    rng = np.random.default_rng(0)
    feeds: dict[str, Any] = {}
    for value in model.graph.input:
        if value.name.startswith("past."):
            dims = [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
            feeds[value.name] = np.zeros(dims, np.float32)
    outputs: dict[str, Any] = {}
    for step in range(steps):
        start = step * length
        feeds |= {
            "hidden_states": rng.standard_normal((1, length, _HIDDEN)).astype(np.float32),
            "position_ids": np.arange(start, start + length)[None],
            "write_indices": np.array([start]),
            "nonpad_kv_seqlen": np.array([start + length]),
        }
        outputs = run(feeds)
        feeds |= {
            name.replace("present", "past"): value
            for name, value in outputs.items()
            if name.startswith("present.")
        }
    return outputs


def _demand_close(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Compare outputs.

    Raises:
        RuntimeError: If they differ by more than float32 rounding.
    """
    for name, value in theirs.items():
        if not np.allclose(ours[name], value, rtol=1e-4, atol=1e-5):
            raise RuntimeError(f"the outputs differ: {name}")


DECODER = Table(
    "a decoder",
    "Four layers, hidden size 512, caches of 1024 rows; a prefill, and a loop that feeds the "
    "caches back, which `ReferenceEvaluator.run_step` keeps in place.",
    ("run", "ours", "onnx.reference / ours"),
    _CASES,
    _lines,
)
"""The table of a whole decoder."""
