"""How much rounding alone changes the results of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

import numpy as np

from onnx_kvtool.runtime.comparison.compare import (
    Mask,
    OutputDifference,
    Tolerance,
    compare,
    distances,
    largest,
)
from onnx_kvtool.runtime.errors import RunFailed, RuntimeUnavailable
from onnx_kvtool.runtime.memory import give_back
from onnx_kvtool.runtime.sessions import RUNTIMES, Array, RuntimeName, Session, open_session

__all__ = ["Noise"]

MARGIN = 4.0
"""Two right evaluations lie apart by a few times what two others happened to."""

_BECAUSE = "how far the model lies from itself when it is evaluated in another way"

_MOST = 100.0
"""Times the usual tolerance: beyond it a difference is a fault, however noisy the model is."""


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

    def compare(
        self,
        name: str,
        inputs: Mapping[str, Array],
        pair: tuple[Array, Array],
        usual: Tolerance,
        exact: bool | Mask = False,
        *,
        led: Array | None = None,
        most: Tolerance | None = None,
    ) -> tuple[OutputDifference, Tolerance] | None:
        """Compare an output as closely as the model agrees with itself.

        Neither the largest difference nor the root of the mean square may be more than a few times
        what the model shows of itself: a few elements that rounding moves far do not excuse an
        offset of all.

        Args:
            name: Name of the output.
            inputs: What the model was fed.
            pair: What A and B gave.
            usual: The tolerance for models that are not noisy.
            exact: Which elements have to agree in every bit.
            led: What this model gave; None if it is A.
            most: The tolerance that no noise may exceed by far; None for the usual one.

        Returns:
            How they compare, and the tolerance that was asked for; None if the model has no noise.
        """
        expected = pair[0] if led is None else led
        others = [value for value in self.others(name, inputs) if value.shape == expected.shape]
        others = [value for value in others if value.dtype == expected.dtype]
        noise = max((distances(expected, value)[0] for value in others), default=0.0)
        if noise == 0.0:
            return None
        if expected.dtype.kind in "iu":
            # A value that was rounded to an integer may fall to either side.
            wider = Tolerance(0.0, min(noise, 1.0), _BECAUSE)
        else:
            limit = most or usual
            farthest = _MOST * (limit.atol + limit.rtol * largest(expected))
            wider = Tolerance(usual.rtol, usual.atol + min(MARGIN * noise, farthest), _BECAUSE)
        found = compare(name, *pair, exact=exact, rtol=wider.rtol, atol=wider.atol)
        if found.within and expected.dtype.kind not in "biu":
            _, spread = distances(*pair)
            mean = max(distances(expected, value)[1] for value in others)
            size = distances(np.zeros_like(expected), expected)[1]
            if spread > usual.atol + usual.rtol * size + MARGIN * mean:
                return None
        return found, wider

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
