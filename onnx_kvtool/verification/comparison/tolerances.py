"""How close outputs have to be, and what rounding alone changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir

from onnx_kvtool.runtime.errors import RunFailed, RuntimeUnavailable
from onnx_kvtool.runtime.memory import give_back
from onnx_kvtool.runtime.sessions import (
    RUNTIMES,
    Array,
    Arrays,
    RuntimeName,
    Session,
    accelerator,
    open_session,
)
from onnx_kvtool.verification.comparison.differences import (
    Mask,
    OutputDifference,
    Tolerance,
    compare,
    distances,
    largest,
    tolerance_of,
)
from onnx_kvtool.verification.comparison.rounded_values import Arithmetic, Coarse, coarser

# How close outputs have to be.


_SAMPLE = 1 << 16
"""Elements that are looked at to tell how large an output is."""

_WITHIN = 10.0
"""Times the relative tolerance of the type, of the largest value that an output had in any run: the
absolute tolerance is for outputs whose values are of the order of 1, and no wider than that."""


class Scales:
    """How large the values of outputs are, over all runs so far.

    The first runs are of moderate inputs. An output that is small there is small by itself, and
    small inputs that come later make no tolerance narrower.
    """

    def __init__(self) -> None:
        self._largest: dict[str, float] = {}

    def narrowed(self, name: str, value: Array, usual: Tolerance) -> Tolerance:
        """Take note of the values of a run, and return the tolerance for outputs as large."""
        if not usual.rtol or value.dtype.kind not in "fcV":
            return usual
        flat = value.reshape(-1)
        sample = flat[:: max(1, flat.size // _SAMPLE)]
        scale = max(self._largest.get(name, 0.0), largest(sample))
        self._largest[name] = scale
        least = _WITHIN * usual.rtol * scale
        if not 0 < least < usual.atol:
            return usual
        because = f"{usual.because}, whose values are {scale:.1g} at most"
        return Tolerance(usual.rtol, least, because)


@dataclass(frozen=True, slots=True)
class Measure:
    """How close outputs have to be.

    Attributes:
        moved: Outputs that any right evaluation gives with the same bits.
        paths: How the values of A and of B are computed.
        exact: Whether both models are the same but for names and weights, so that every bit of
            every output has to agree.
        rtol: Relative tolerance that the user asked for; None for that of the types.
        atol: Absolute tolerance that the user asked for; None for that of the types.
        drawn: Values that random numbers go into, in A and in B: these are compared over many runs.
        is_wide: Whether the models are twins, where no type is coarser than float32.
    """

    moved: frozenset[str]
    paths: tuple[Arithmetic, ...] = ()
    exact: bool = False
    rtol: float | None = None
    atol: float | None = None
    drawn: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    is_wide: bool = False

    @property
    def is_given(self) -> bool:
        """Whether the user asked for a tolerance, which no measured noise widens."""
        return self.rtol is not None or self.atol is not None

    @property
    def random(self) -> frozenset[str]:
        """Values that random numbers go into in one of the models at least."""
        return self.drawn[0] | self.drawn[1]

    def of(self, value: Array, *names: str) -> Tolerance:
        """Return the tolerance for a result of the dtype of `value`.

        `names` is what A calls it, and what B calls it if that differs. The coarsest type on the
        path to it counts, in either model; without a name, no path counts.
        """
        usual = tolerance_of(value.dtype)
        because = value.dtype.name
        causes: list[tuple[np.dtype[Any], str]] = []
        if usual.atol and (coarse := self._coarse(*names)) is not None:
            causes.append((coarse.dtype.numpy(), str(coarse)))
        if usual.rtol and (name := accelerator()) is not None:
            causes.append((np.dtype(np.float16), f"{name}, which may round as float16 does"))
        for dtype, cause in causes:
            wider = tolerance_of(dtype)
            because = cause if wider.atol > usual.atol else because
            usual = Tolerance(max(usual.rtol, wider.rtol), max(usual.atol, wider.atol))
        if self.is_given:
            because = "the tolerance that was given"
        return Tolerance(
            usual.rtol if self.rtol is None else self.rtol,
            usual.atol if self.atol is None else self.atol,
            because,
        )

    def _coarse(self, *names: str) -> Coarse | None:
        if not names:
            return None
        known = zip(self.paths, (names[0], names[-1]), strict=False)
        found = coarser(*(path.of(name) for path, name in known))
        if found is not None and self.is_wide and found.is_narrow:
            return Coarse(ir.DataType.FLOAT, "the float32 twins")
        return found


# How much rounding alone changes the results of a model.


MARGIN = 4.0
"""Two right evaluations lie apart by a few times what two others happened to."""

_BECAUSE = "how far the model lies from itself when it is evaluated in another way"

_MOST = 100.0
"""Times the usual tolerance: beyond it a difference is a fault, however noisy the model is."""


@dataclass
class Noise:
    """Measures a model against itself, evaluated in other ways.

    Some decoders amplify rounding: onnxruntime and onnx.reference differ by up to 3e-4 on the
    same float32 model. The other ways are onnxruntime without graph optimisation and the other
    runtime; they are opened when the first output is measured.

    Attributes:
        model: The serialised model.
        directory: Where locations of external data start.
        runtime: What ran the model in the first place.
        hosted: Returns a session that is fed, and whose outputs are read, as those were.
    """

    model: bytes
    directory: str
    runtime: RuntimeName
    hosted: Callable[[Session], Session] = lambda session: session

    def compare(
        self,
        name: str,
        inputs: Arrays,
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

        Without `led`, this model is A. No noise may exceed `most` by far; without it, the usual
        tolerance. Return how the outputs compare and the tolerance that was applied; None if
        noise does not explain the difference.
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
        found = compare(name, *pair, wider, exact=exact)
        if not found.within:
            return None
        if expected.dtype.kind not in "biu":
            _, spread = distances(*pair)
            mean = max(distances(expected, value)[1] for value in others)
            size = distances(np.zeros_like(expected), expected)[1]
            if spread > usual.atol + usual.rtol * size + MARGIN * mean:
                return None
        return found, wider

    def others(self, name: str, inputs: Arrays) -> Iterator[Array]:
        """Yield what the model gives for the output `name` when it is evaluated in other ways."""
        for session in self._sessions:
            # One that fails on these inputs has nothing to say about them.
            with suppress(RunFailed):
                found = session.run(inputs)[name]
                give_back()
                yield found

    @cached_property
    def _sessions(self) -> list[Session]:
        ways = [(runtime, True) for runtime in RUNTIMES if runtime != self.runtime]
        if self.runtime == "onnxruntime":
            ways.append((self.runtime, False))
        found = []
        for runtime, optimize in ways:
            with suppress(RuntimeUnavailable):
                session = open_session(runtime, self.model, self.directory, optimize=optimize)
                found.append(self.hosted(session))
        return found
