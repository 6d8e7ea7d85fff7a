"""Two models run side by side on drawn inputs, without anything of kvtool's own verification.

A raised model may do less than its source in one way: it fails for a start below 0, where the
scatter counts from the end of the axis. Everything else is a fault.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import helper

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.runtime.engine.evaluator import Evaluator
from onnx_kvtool.runtime.errors import RuntimeUnavailable

Arrays = dict[str, np.ndarray[Any, Any]]

STARTS = range(-6, 8)
"""Values of an integer input unless a case says otherwise: around an axis of 5."""


@dataclass(frozen=True, slots=True)
class Draws:
    """How inputs are drawn.

    Attributes:
        integers: For an integer input the values its elements are drawn from, or whole values.
        sizes: For each symbolic dimension the sizes it is drawn from.
        count: How many sets of inputs.
        seed: Seed of all draws.
    """

    integers: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    sizes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    count: int = 40
    seed: int = 0

    def feeds(self, model: onnx.ModelProto) -> Iterator[Arrays]:
        """Yield sets of inputs for a model."""
        rng = np.random.default_rng(self.seed)
        initial = {tensor.name for tensor in model.graph.initializer}
        for _ in range(self.count):
            dims: dict[str, int] = {}
            yield {
                value.name: self._array(rng, value, dims)
                for value in model.graph.input
                if value.name not in initial or value.name in self.integers
            }

    def _array(
        self, rng: np.random.Generator, value: onnx.ValueInfoProto, dims: dict[str, int]
    ) -> np.ndarray[Any, Any]:
        declared = value.type.tensor_type
        shape = tuple(self._size(rng, dim, dims) for dim in declared.shape.dim)
        dtype = helper.tensor_dtype_to_np_dtype(declared.elem_type)
        if dtype.kind == "b":
            return rng.integers(0, 2, shape).astype(dtype)
        if dtype.kind in "iu" and (value.name in self.integers or len(shape) < 3):
            allowed = list(self.integers.get(value.name, STARTS))
            if isinstance(allowed[0], (list, tuple)):
                return np.asarray(allowed[int(rng.integers(len(allowed)))], dtype)
            return np.asarray(rng.choice(np.asarray(allowed, np.int64), shape)).astype(dtype)
        return (
            rng.permutation(np.arange(1, np.prod(shape, dtype=int) + 1))
            .reshape(shape)
            .astype(dtype)
        )

    def _size(self, rng: np.random.Generator, dim: Any, dims: dict[str, int]) -> int:
        if dim.HasField("dim_value"):
            return int(dim.dim_value)
        if not dim.dim_param:
            return 5
        if dim.dim_param not in dims:
            allowed = self.sizes.get(dim.dim_param, (1, 2, 3))
            dims[dim.dim_param] = int(allowed[int(rng.integers(len(allowed)))])
        return dims[dim.dim_param]


class Runtimes:
    """A model in kvtool's Evaluator and in onnxruntime, each where it has kernels for it."""

    def __init__(self, model: onnx.ModelProto) -> None:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1  # others wait busily, and cost more than the models
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._options = ort.RunOptions()
        self._options.log_severity_level = 4
        self.evaluator: Evaluator | None = None
        try:
            self.evaluator = Evaluator(ir.from_proto(model))
        except RuntimeUnavailable:
            self.evaluator = None
        self._session: ort.InferenceSession | None = None
        try:
            self._session = ort.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception:  # noqa: BLE001  no common base; the Evaluator is asked anyway
            self._session = None

    def run(self, feeds: Arrays) -> dict[str, Arrays | None]:
        """Return outputs per runtime; None where the run fails. Undefined results are left out."""
        found: dict[str, Arrays | None] = {}
        if self.evaluator is not None:
            try:
                run = self.evaluator.run(feeds)
            except KvtoolError:
                found["evaluator"] = None
            else:
                if run.warnings:
                    return {}
                found["evaluator"] = {k: np.asarray(v) for k, v in run.values.items()}
        if self._session is not None:
            names = [output.name for output in self._session.get_outputs()]
            try:
                values = self._session.run(names, feeds, self._options)
            except Exception:  # noqa: BLE001  as above
                found["onnxruntime"] = None
            else:
                found["onnxruntime"] = dict(zip(names, values, strict=True))
        return found

    def starts(self, feeds: Arrays, names: Sequence[str | None]) -> list[int]:
        """Return every start in these values of the main graph; 0 for None."""
        assert self.evaluator is not None
        wanted = [name for name in names if name]
        values = self.evaluator.run(feeds, fetch=wanted).values
        found = [int(n) for name in wanted for n in np.asarray(values[name]).reshape(-1)]
        return [*found, *[0] * (len(names) - len(wanted))]


def same_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Return whether two arrays are the same, bit for bit."""
    return (a.dtype, a.shape) == (b.dtype, b.shape) and a.tobytes() == b.tobytes()


@dataclass(slots=True)
class Comparison:
    """What the runs showed.

    Attributes:
        runs: Runs of the source that gave a defined result, over both runtimes.
        compared: Those that the raised model gave a result for too.
        faults: What is wrong, one line for each draw.
    """

    runs: int = 0
    compared: int = 0
    faults: list[str] = field(default_factory=list)


def compare(
    source: onnx.ModelProto,
    raised: onnx.ModelProto,
    draws: Draws,
    starts: Sequence[str | None] = (),
) -> Comparison:
    """Run both models on the same inputs.

    Args:
        source: The model as it was.
        raised: What was made of it.
        draws: The inputs.
        starts: Names of the `write_indices` in the main graph of `raised`.
    """
    found = Comparison()
    before, after = Runtimes(source), Runtimes(raised)
    for feeds in draws.feeds(source):
        expected, actual = before.run(feeds), after.run(feeds)
        for runtime, outputs in expected.items():
            if outputs is None:
                continue
            found.runs += 1
            result = actual.get(runtime)
            if result is None:
                if starts and min(after.starts(feeds, starts), default=0) < 0:
                    continue
                found.faults.append(f"{runtime}: the raised model fails for {_shown(feeds)}")
                continue
            found.compared += 1
            wrong = [name for name in outputs if not same_bits(outputs[name], result[name])]
            if wrong:
                found.faults.append(f"{runtime}: {wrong} differ for {_shown(feeds)}")
    return found


def _shown(feeds: Arrays) -> str:
    small = {k: v.tolist() for k, v in feeds.items() if v.dtype.kind == "i" and v.size < 16}
    return f"{small}, shapes { {k: v.shape for k, v in feeds.items()} }"


def in_all_graphs(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a model, those of bodies and functions included."""

    def inner(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
        for node in nodes:
            yield node
            for attribute in node.attribute:
                for graph in itertools.chain([attribute.g], attribute.graphs):
                    yield from inner(graph.node)

    yield from inner(model.graph.node)
    for function in model.functions:
        yield from inner(function.node)


def dead_nodes(model: onnx.ModelProto) -> list[str]:
    """Return the nodes of the main graph of which nobody reads any output."""
    read = {name for node in in_all_graphs(model) for name in node.input}
    read |= {output.name for output in model.graph.output}
    for node in in_all_graphs(model):
        for attribute in node.attribute:
            read |= {output.name for output in attribute.g.output}
    return [
        f"{node.op_type} {node.name}"
        for node in model.graph.node
        if not read.intersection(filter(None, node.output))
    ]
