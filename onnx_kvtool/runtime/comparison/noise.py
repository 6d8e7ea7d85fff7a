"""How much rounding alone changes the results of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

import onnx_ir as ir

from onnx_kvtool.core.walk import graphs
from onnx_kvtool.runtime.comparison.compare import Tolerance, compare, largest
from onnx_kvtool.runtime.errors import RunFailed, RuntimeUnavailable
from onnx_kvtool.runtime.memory import give_back
from onnx_kvtool.runtime.sessions import RUNTIMES, Array, RuntimeName, Session, open_session

__all__ = ["Noise", "coarsest_type"]

MARGIN = 4.0
"""Two right evaluations lie apart by a few times what two others happened to."""

_MOST = 100.0
"""Times the usual tolerance: beyond it a difference is a fault, however noisy the model is."""


def coarsest_type(model: ir.Model) -> ir.DataType | None:
    """Return the coarsest type among float32, float16 and bfloat16 in `model`; None without any.

    A float32 output of a model that computes in float16 is as coarse as float16. Coarser types
    are storage formats: kernels compute in wider ones.
    """
    coarsest = None
    seen: set[ir.DataType | None] = set()
    for _, graph in graphs(model):
        seen.update(value.dtype for value in (*graph.inputs, *graph.initializers.values()))
        seen.update(value.dtype for node in graph for value in node.outputs)
    for dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16):
        if dtype in seen:
            coarsest = dtype
    return coarsest


class Noise:
    """Measures a model against itself, evaluated in other ways.

    Some decoders amplify rounding: onnxruntime and onnx.reference differ by up to 3e-4 on the
    same float32 model. The other ways are onnxruntime without graph optimisation and the other
    runtime; they are opened when the first output is measured.

    Args:
        model: The serialised model.
        directory: Where locations of external data start.
        runtime: What ran the model in the first place.
        hosted: Returns a session that is fed, and whose outputs are read, as those were.
    """

    def __init__(
        self,
        model: bytes,
        directory: str,
        runtime: RuntimeName,
        hosted: Callable[[Session], Session] = lambda session: session,
    ) -> None:
        self._hosted = hosted
        self._model = model
        self._directory = directory
        self._runtime = runtime
        self._sessions: list[Session] | None = None

    def tolerance(
        self, name: str, inputs: Mapping[str, Array], expected: Array, usual: Tolerance
    ) -> Tolerance | None:
        """Return the tolerance for the output `name` that the model's own noise asks for.

        Args:
            name: Name of the output.
            inputs: What the model was fed.
            expected: What it returned for the output.
            usual: The tolerance for models that are not noisy.

        Returns:
            A wider tolerance; None when no noise was found.
        """
        measured = [
            difference.max_abs_diff
            for other in self.others(name, inputs)
            if (difference := compare(name, expected, other)).max_abs_diff is not None
        ]
        noise = max(measured, default=0.0)
        if noise == 0.0:
            return None
        if expected.dtype.kind in "iu":
            # A value that was rounded to an integer may fall to either side.
            return Tolerance(0.0, min(noise, 1.0))
        most = _MOST * (usual.atol + usual.rtol * largest(expected))
        return Tolerance(usual.rtol, usual.atol + min(MARGIN * noise, most))

    def others(self, name: str, inputs: Mapping[str, Array]) -> Iterator[Array]:
        """Yield what the model gives for the output `name` when it is evaluated in other ways."""
        if self._sessions is None:
            self._sessions = list(self._open())
        for session in self._sessions:
            # One that fails on these inputs has nothing to say about them.
            with suppress(RunFailed):
                found = session.run(inputs)[name]
                give_back()
                yield found

    def _open(self) -> Iterator[Session]:
        ways: list[tuple[RuntimeName, bool]] = [
            (runtime, True) for runtime in RUNTIMES if runtime != self._runtime
        ]
        if self._runtime == "onnxruntime":
            ways.append(("onnxruntime", False))
        for runtime, optimize in ways:
            with suppress(RuntimeUnavailable):
                session = open_session(runtime, self._model, self._directory, optimize=optimize)
                yield self._hosted(session)
