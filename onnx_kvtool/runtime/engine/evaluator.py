"""The reference runtime: a model run node by node with strict kernels in numpy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool import __version__
from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.core.machine import collector_paused
from onnx_kvtool.ops.traits import contradiction
from onnx_kvtool.runtime.engine.borrowed import Attributes, declared_mismatch
from onnx_kvtool.runtime.engine.compiler import Compiler
from onnx_kvtool.runtime.engine.program import Buffers, Program, State, Trace, Uncounted
from onnx_kvtool.runtime.errors import ModelRejected, RunFailed
from onnx_kvtool.runtime.kernels.kernel import Named, Value


@dataclass(frozen=True, slots=True)
class Run:
    """The results of one run.

    Attributes:
        values: The fetched values, by name, in the order of the request. Arrays for tensors
            (strings as objects, types that numpy lacks as those of ml_dtypes), lists for sequences,
            None for an empty optional. They may share memory with the inputs and each other.
        warnings: Results that the specification leaves undefined, with the node.
    """

    values: dict[str, Value]
    warnings: tuple[Diagnostic, ...]


class Evaluator:
    """A model that runs on our own kernels.

    Every operator is computed as the ONNX text of its version defines it. What the text calls an
    error, or leaves undefined, fails (indices out of range, shapes that do not fit) or gives a
    warning (duplicate indices of a scatter). Operators of onnxruntime run as their standard form
    (`derived`), or on a kernel that follows their documentation. onnx.reference runs the others.

    Weights are read when a node that needs them is prepared; external weights stay mapped from
    their files.

    Args:
        model: The model. It is not changed, and must not change while the evaluator is used.
        parameters: As for `Compiler`.
        new_ops: As for `Compiler`.

    Raises:
        RuntimeUnavailable: If a node reads a value that nothing before it computes, onnx.reference
            does not support its operator either, its attributes break its schema, functions call
            each other in a circle, or constants cannot be read.
        ModelRejected: If an input has an initializer of another type or shape.
    """

    def __init__(
        self,
        model: ir.Model,
        parameters: Attributes | None = None,
        new_ops: Sequence[type] = (),
    ) -> None:
        for value in model.graph.inputs:
            if (problem := contradiction(value)) is not None:
                raise ModelRejected(
                    f"the initializer of the graph input `{value.name}` {problem}",
                    help="correct the declaration, or the initializer",
                )
        self._model = model
        self._values = _values(model.graph)
        self._compiler = Compiler(model, parameters, new_ops)
        self._programs: dict[tuple[tuple[str, ...], tuple[str, ...]], Program] = {}
        self._fitting: dict[str, object] = {}
        self.outputs: tuple[str, ...] = tuple(v.name or "" for v in model.graph.outputs)
        self.required: tuple[str, ...] = tuple(
            v.name or "" for v in model.graph.inputs if v.const_value is None
        )
        self._program(self.required, self.outputs)

    @property
    def borrowed(self) -> tuple[Location, ...]:
        """The nodes prepared so far that onnx.reference runs."""
        return tuple(self._compiler.borrowed)

    @property
    def runtime(self) -> str:
        """Name and version."""
        return f"reference {__version__}"

    def run(
        self,
        inputs: Named,
        *,
        fetch: Sequence[str] | None = None,
        give_up: Collection[str] = (),
        observe: Callable[[Trace], None] | None = None,
    ) -> Run:
        """Run the model, or the part of it that computes the fetched values.

        Args:
            inputs: Values by name: of graph inputs, and of any other value of the main graph, which
                is not computed then.
            fetch: Names of values of the main graph; None for the graph outputs.
            give_up: Inputs that the caller will not read again: an operator that updates a cache
                may write into their arrays, which saves a copy. Results are the same.
            observe: Called after each node that ran, including those of bodies and functions.

        Raises:
            RuntimeUnavailable: As for the class, for nodes that the graph outputs do not need.
            RunFailed: If an input is missing, unknown, of another element type, rank or fixed size
                than the graph declares; if a value to fetch is unknown; if a node fails.
        """
        names = self.outputs if fetch is None else tuple(fetch)
        for name in (*inputs, *names):
            if name not in self._values:
                raise RunFailed(f"the main graph has no value `{name}`")
        program = self._program(tuple(inputs), names)
        for name, value in inputs.items():
            self._check(name, value)
        state = State(Buffers() if self._compiler.updates else Uncounted(), observe=observe)
        for name, value in inputs.items():
            if name not in give_up:
                state.buffers.hold(value)
        # Overflow and division by zero have defined results in ONNX; numpy's warnings about them
        # would reach the user's terminal.
        with np.errstate(all="ignore"):
            results = program.run(list(inputs.values()), (), state)
        values = dict(zip(names, results, strict=True))
        return Run(values, tuple(dict.fromkeys(state.warnings)))

    def _check(self, name: str, value: Value) -> None:
        """Check a fed value against its declaration, unless the last one had its type and shape."""
        kind = (value.dtype, value.shape) if isinstance(value, np.ndarray) else None
        if kind is not None and self._fitting.get(name) == kind:
            return
        if (problem := declared_mismatch(self._values[name], value)) is not None:
            raise RunFailed(problem)
        self._fitting[name] = kind

    def _program(self, given: tuple[str, ...], wanted: tuple[str, ...]) -> Program:
        key = (given, wanted)
        if key not in self._programs:
            feeds = [self._values[name] for name in given]
            with collector_paused():
                program = self._compiler.main(feeds, [self._values[name] for name in wanted])
            self._programs[key] = program
        return self._programs[key]


def _values(graph: ir.Graph) -> dict[str, ir.Value]:
    """Return the values of a graph by name."""
    made = (value for node in graph for value in node.outputs if value.name)
    known = (*graph.outputs, *graph.inputs, *graph.initializers.values(), *made)
    return {value.name or "": value for value in known}
