"""A whole decoder in the reference runtime, beside onnx.reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from benchmarks.decoders import decoder
from benchmarks.turns import Line, in_turns
from onnx_kvtool.runtime.engine.evaluator import Evaluator

_HIDDEN, _CAPACITY, _LAYERS = 512, 1024, 4
_AT_LEAST = 2.0


def decoder_lines(repeat: int) -> Iterator[Line]:
    """Run prefills and a decode loop with the caches fed back; ratio of onnx.reference to ours."""
    for rank in (4, 3):
        model = decoder(_LAYERS, hidden=_HIDDEN, heads=8, kv_heads=4, capacity=_CAPACITY, rank=rank)
        evaluator, reference = Evaluator(ir.from_proto(model)), ReferenceEvaluator(model)
        names = [output.name for output in model.graph.output]
        caches = [value.name for value in model.graph.input if value.name.startswith("past.")]

        def ours(feeds: dict[str, Any], evaluator: Any = evaluator, caches: Any = caches) -> Any:
            # What a decode loop does: nobody reads the past after the step.
            return evaluator.run(feeds, give_up=caches).values

        def theirs(feeds: dict[str, Any], reference: Any = reference, names: Any = names) -> Any:
            return dict(zip(names, reference.run(None, feeds), strict=True))

        layout = "(B, KV, S, D)" if rank == 4 else "(B, S, KV * D)"
        for length, steps in ((128, 0), (1, 8)):
            case = f"decoder {layout}, " + (f"prefill {length}" if not steps else f"{steps} steps")
            _demand_close(_loop(ours, model, length, 1), _loop(theirs, model, length, 1))
            milliseconds, ratio = in_turns(
                lambda run=ours, m=model, n=length, s=steps: _loop(run, m, n, max(s, 1)),
                lambda run=theirs, m=model, n=length, s=steps: _loop(run, m, n, max(s, 1)),
                repeat,
            )
            yield Line(case, "onnx.reference / ours", milliseconds, 1 / ratio, _AT_LEAST, True)


def _loop(
    run: Callable[[dict[str, Any]], dict[str, Any]], model: Any, length: int, steps: int
) -> Any:
    """Run `steps` steps of `length` rows from an empty cache on; return the last outputs."""
    rng = np.random.default_rng(0)
    feeds = {}
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
    """End the run if the outputs differ by more than float32 rounding."""
    for name, value in theirs.items():
        if not np.allclose(ours[name], value, rtol=1e-4, atol=1e-5):
            raise SystemExit(f"the outputs differ: {name}")
