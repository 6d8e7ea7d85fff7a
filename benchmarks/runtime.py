"""The reference runtime's kernels beside onnx.reference, onnxruntime and a plain copy.

Run it from the checkout:  python -m benchmarks.runtime [--repeat N] [--only WORD]

What is compared takes turns, so that noise hits all alike; a number is the median over the turns of
(time of ours / time of the other), but for onnx.reference, which is slow and runs once:
(its time / median of ours). Kernels are called as the evaluator calls them, with a context, so that
the checks for range and duplicates are part of the time. onnxruntime runs on one thread. The
outputs of all are compared bit for bit.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper
from onnx.reference import ReferenceEvaluator

from benchmarks.runtime_decoder import decoder_lines
from benchmarks.turns import Line, in_turns
from onnx_kvtool.runtime.kernels.kernel import Context
from onnx_kvtool.runtime.kernels.scatter.scatter_elements import scatter_elements_18
from onnx_kvtool.runtime.kernels.scatter.scatter_nd import scatter_nd_18
from onnx_kvtool.runtime.kernels.scatter.tensor_scatter import tensor_scatter

SEED = 0
_INNER = 20
"""Calls per turn where one call takes microseconds."""


def one_node(op_type: str, opset: int, inputs: dict[str, np.ndarray], **attributes: Any) -> bytes:
    """Return a model of one node whose output has the type of its first input."""
    values = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in inputs.items()
    ]
    first = next(iter(inputs.values()))
    element = helper.np_dtype_to_tensor_dtype(first.dtype)
    output = helper.make_tensor_value_info("output", element, first.shape)
    node = helper.make_node(op_type, list(inputs), ["output"], **attributes)
    graph = helper.make_graph([node], "one_node", values, [output])
    imports = [helper.make_opsetid("", opset)]
    model: bytes = helper.make_model(
        graph, opset_imports=imports, ir_version=10
    ).SerializeToString()
    return model


def session(model: bytes) -> Any:
    """Return an onnxruntime session on one thread."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def demand_same(case: str, outputs: list[np.ndarray]) -> None:
    """End the run if two outputs differ in a bit."""
    if len({output.tobytes() for output in outputs}) != 1:
        raise SystemExit(f"the outputs differ: {case}")


def _scatter_cases(
    rng: np.random.Generator,
) -> Iterator[tuple[str, str, dict[str, np.ndarray], dict[str, Any]]]:
    """Yield name, operator, inputs and attributes of scatters of a million elements."""
    data = rng.random((1000, 1000), dtype=np.float32)
    updates = rng.random((1000, 1000), dtype=np.float32)
    repeated = rng.integers(0, 1000, (1000, 1000))
    for axis in (0, 1):
        indices = np.argsort(rng.random((1000, 1000)), axis=axis)
        negative = indices - 1000 * (rng.random((1000, 1000)) < 0.5)
        for name, reduction, given in (
            ("", "none", indices),
            (", half negative", "none", negative),
            ("", "add", indices),
            (", repeated", "add", repeated),
            (", repeated", "max", repeated),
        ):
            inputs = {"data": data, "indices": given, "updates": updates}
            attributes = {"axis": axis, "reduction": reduction}
            yield f"axis {axis}, {reduction}{name}", "ScatterElements", inputs, attributes
    tuples = np.stack(np.unravel_index(rng.permutation(10**6), (1000, 1000)), axis=-1)
    twice = rng.integers(0, 1000, (10**6, 2))
    for name, reduction, given in (
        ("elements", "none", tuples),
        ("elements", "add", tuples),
        ("elements, repeated", "add", twice),
        ("elements, repeated", "max", twice),
    ):
        inputs = {"data": data, "indices": given, "updates": updates.reshape(-1)}
        yield f"{name}, {reduction}", "ScatterND", inputs, {"reduction": reduction}
    rows = {"data": data.reshape(-1, 125), "updates": updates.reshape(-1, 125)}
    places = rng.permutation(8000)[:, None]
    for reduction in ("none", "add"):
        inputs = {"data": rows["data"], "indices": places, "updates": rows["updates"]}
        yield f"rows of 125, {reduction}", "ScatterND", inputs, {"reduction": reduction}


def scatter_lines(repeat: int) -> Iterator[Line]:
    """Scatters of a million elements, by onnx.reference and by onnxruntime."""
    kernels = {"ScatterElements": scatter_elements_18, "ScatterND": scatter_nd_18}
    context = Context(18, 1, lambda _: None)
    for name, op_type, inputs, attributes in _scatter_cases(np.random.default_rng(SEED)):
        case = f"{op_type}, {name}"
        model = one_node(op_type, 18, inputs, **attributes)
        theirs = session(model)
        operands = list(inputs.values())

        def ours(
            kernel: Any = kernels[op_type], operands: Any = operands, given: Any = attributes
        ) -> Any:
            return kernel(*operands, **given, context=context)

        def other(theirs: Any = theirs, inputs: Any = inputs) -> Any:
            return theirs.run(None, inputs)

        milliseconds, ratio = in_turns(ours, other, repeat)
        yield Line(case, "ours / onnxruntime", milliseconds, ratio, 3)
        reference = ReferenceEvaluator(onnx.ModelProto.FromString(model))
        begin = time.perf_counter()
        (slow,) = reference.run(None, inputs)
        took = (time.perf_counter() - begin) * 1e3
        # The reference sums up repeated elements in its own order.
        demand_same(case, [ours()[0], other()[0], *([] if "repeated" in name else [slow])])
        yield Line(case, "onnx.reference / ours", milliseconds, took / milliseconds, 20, True)


_CACHES = [
    ((1, 8, 1024, 128), 128),
    ((4, 8, 1024, 128), 128),
    ((1, 8, 1024, 128), 1),
]


def tensor_scatter_lines(repeat: int) -> Iterator[Line]:
    """TensorScatter by a copy of the cache, and in place by onnxruntime's in-place kernel."""
    rng = np.random.default_rng(SEED)
    for shape, length in _CACHES:
        for mode in ("linear", "circular"):
            batch, heads, capacity, width = shape
            past = rng.random(shape, dtype=np.float32)
            update = rng.random((batch, heads, length, width), dtype=np.float32)
            # In circular mode each update wraps around.
            first = 0 if mode == "linear" else capacity - length // 2
            starts = first + 3 * np.arange(batch)
            case = f"TensorScatter {shape}, {length} rows, {mode}"
            inputs = {"past_cache": past, "update": update, "write_indices": starts}
            theirs = session(one_node("TensorScatter", 24, inputs, mode=mode))

            def ours(given: Any = inputs, mode: str = mode) -> Any:
                return tensor_scatter(**given, axis=-2, mode=mode)

            demand_same(case, [ours()[0], theirs.run(None, inputs)[0]])
            milliseconds, ratio = in_turns(ours, past.copy, repeat * 4)
            yield Line(case, "ours / copy of the cache", milliseconds, ratio, 1.5)

            bound = _Bound(theirs, inputs)
            mine = {**inputs, "past_cache": past.copy()}

            def in_place(given: Any = mine, mode: str = mode) -> None:
                for _ in range(_INNER):
                    tensor_scatter(**given, axis=-2, mode=mode, in_place=True)

            milliseconds, ratio = in_turns(in_place, bound.run, repeat * 4)
            demand_same(case, [mine["past_cache"], bound.cache.numpy()])
            limit = 3 if length == 128 else None
            other = "in place, ours / onnxruntime"
            yield Line(case, other, milliseconds / _INNER, ratio, limit)


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


MEASURES: dict[str, Callable[[int], Iterator[Line]]] = {
    "scatter": scatter_lines,
    "tensor_scatter": tensor_scatter_lines,
    "decoder": decoder_lines,
}
"""What there is to measure, each given the number of turns."""


def main() -> None:
    """Print the table; exit 1 when a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=11, help="turns per line")
    parser.add_argument("--only", choices=MEASURES, help="one of the measures")
    arguments = parser.parse_args()
    print(
        f"numpy {np.__version__}, onnx {onnx.__version__}, onnxruntime {ort.__version__} on one "
        f"thread, {platform.machine()}, seed {SEED}"
    )
    row = "{:50} {:30} {:>9} {:>8} {:>8}"
    print(row.format("case", "ratio of", "ours ms", "ratio", "limit"))
    failed = False
    for name, measure in MEASURES.items():
        if arguments.only not in (None, name):
            continue
        for line in measure(arguments.repeat):
            failed |= line.failed
            sign = ">=" if line.at_least else "<="
            limit = "" if line.limit is None else f"{sign} {line.limit:g}"
            ratio = f"{line.ratio:.2f}" if line.ratio < 10 else f"{line.ratio:.0f}"
            print(
                row.format(line.case, line.other, f"{line.ours:.3f}", ratio, limit)
                + (" FAILED" if line.failed else ""),
                flush=True,
            )
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
