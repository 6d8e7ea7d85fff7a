"""How close outputs have to be: what rounding alone changes, and float32 twins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import ml_dtypes
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
from onnx_kvtool.verification.comparison.compare import (
    Mask,
    OutputDifference,
    Tolerance,
    bits_differ,
    compare,
    distances,
    largest,
    tolerance_of,
)
from onnx_kvtool.verification.comparison.movement import Arithmetic, Coarse, coarser

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

        Args:
            value: The result.
            names: What A calls it, and what B does if that is another name. The coarsest type on
                the path to it counts, in either model; without a name, no path does.
        """
        usual = tolerance_of(value.dtype)
        because = value.dtype.name
        if usual.atol and (coarse := self._coarse(*names)) is not None:
            wider = tolerance_of(coarse.dtype.numpy())
            if wider.atol > usual.atol:
                because = str(coarse)
            usual = Tolerance(max(usual.rtol, wider.rtol), max(usual.atol, wider.atol))
        if usual.rtol and (name := accelerator()) is not None:
            half = tolerance_of(np.dtype(np.float16))
            if half.atol > usual.atol:
                because = f"{name}, which may round as float16 does"
            usual = Tolerance(max(usual.rtol, half.rtol), max(usual.atol, half.atol))
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
        found = compare(name, *pair, wider, exact=exact)
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


# One output of two models, judged by how far rounding takes the first from its twin.


_ONE_IN = 8
"""Of so many decisions one may fall the other way though none of those that were seen did."""


@dataclass(frozen=True, slots=True)
class Pair:
    """An output of both models, and that of the twin of A."""

    name: str
    a: Array
    b: Array
    exact: bool | Mask
    twin: Array

    def allowed(self, evaluations: list[Array], usual: Tolerance) -> Tolerance:
        """Return the tolerance that follows from how far A lies from its twin."""
        a = self.a
        rounding = max(distance(value, self.twin) or 0.0 for value in evaluations)
        because = f"{usual.because}, which moves A by up to {rounding:.2g}"
        if a.dtype.kind in "iu" or a.dtype.name in ("int4", "uint4"):
            return Tolerance(0.0, MARGIN * rounding, because)
        # Rows that were in the cache before say nothing of the size of those that were computed.
        scale = largest(self.twin, self.exact) or 1.0
        # To float8 values are rounded once more, to either side.
        rtol = tolerance_of(a.dtype).rtol if a.dtype.itemsize == 1 else 0.0
        return Tolerance(rtol, max(MARGIN * rounding, usual.rtol * scale), because)

    def rounded(self, tolerance: Tolerance, overflowed: Mask) -> OutputDifference:
        """Judge numbers, but for those of A that overflow."""
        expected = np.where(overflowed, self.b, self.a) if overflowed.any() else self.a
        return compare(self.name, expected, self.b, tolerance, exact=self.exact)

    def decided(self, evaluations: list[Array]) -> OutputDifference:
        """Judge decisions by how many of them rounding turns, not by how far."""
        found = compare(self.name, self.a, self.b, exact=self.exact)
        if found.within or found.max_abs_diff is None:
            return found
        wrong = bits_differ(self.a, self.b)
        if (wrong & self.exact).any():
            return found
        turned = max(np.count_nonzero(bits_differ(value, self.twin)) for value in evaluations)
        most = max(1, MARGIN * turned, self.a.size / _ONE_IN)
        if np.count_nonzero(wrong) > most:
            return found
        return replace(found, within=True, first_mismatch=None, reason=None)


def distance(one: Array, other: Array) -> float | None:
    """Return the largest distance of elements that are finite in both; None for other shapes."""
    if one.shape != other.shape or (one.dtype == object) != (other.dtype == object):
        return None
    # A cache is large: nothing wider is made of it than has to be.
    wide = np.float64 if max(one.dtype.itemsize, other.dtype.itemsize) > 4 else np.float32
    return compare("", _wide(one, wide), _wide(other, wide)).max_abs_diff


def _wide(value: Array, dtype: type[np.floating[Any]]) -> Array:
    """Return floats of any type as `dtype`, so that types may differ."""
    if value.dtype == np.dtype(object) or value.dtype.kind in "biuc":
        return value
    is_integer = value.dtype.name in ("int4", "uint4")
    return value.astype(np.int64 if is_integer else dtype, copy=False)


# Models of a 16-bit type held against their float32 twins.


_NARROW = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))

_DECISIONS = frozenset({"bool", "int32", "int64", "uint32", "uint64"})
"""Dtypes of decisions, indices and tokens: how far apart two of them are says nothing."""


class TwinSessions(NamedTuple):
    """The twins of A and B in one runtime, and what measures that of A by itself."""

    a: Session
    b: Session
    noise: Noise


class Shaken(NamedTuple):
    """A twin with some constants as they may have been before they were rounded."""

    session: Session
    is_b: bool


@dataclass(frozen=True, slots=True)
class TwinRun:
    """One run of both twins.

    Attributes:
        inputs: What they were fed: the inputs of the models, widened.
        a: What the twin of A gave.
        b: What the twin of B gave.
    """

    inputs: Arrays
    a: Arrays
    b: Arrays


@dataclass(slots=True)
class TwinAccount:
    """What the twins showed over all runs, of the outputs that need not agree in every bit.

    Attributes:
        runs: Number of runs of both twins.
        max_abs_diff: Largest difference between the twins.
        rounding: Largest difference between A and its own twin.
        overflows: Elements of A that are not finite although those of its twin are.
        failure: Why the twins were not asked, or no more.
    """

    runs: int = 0
    max_abs_diff: float = 0.0
    rounding: float = 0.0
    overflows: int = 0
    failure: str | None = None


class Twins:
    """The float32 twins of two models, which say what is rounding and what is not.

    In float32 nothing of what a 16-bit type rounds is rounded, so two right models agree there as
    closely as float32 models do, and a fault stands out that is smaller than the rounding of the
    narrow type. What then remains to be seen is whether B rounds like A: the narrow outputs may lie
    apart by a few times as much as A lies apart from its own twin on the same inputs.

    Args:
        sessions: Opens the twins, in the wanted runtime first; the next is asked when one fails.
        shaken: Opens twins with other constants, when they are needed.
        measure: How close outputs of the narrow models have to be without twins.
        noise: Measures A by itself.
        account: Where the findings go.
        is_mixed: Whether the models compute in different types, so that A does not show how far
            B may lie from its twin.

    Attributes:
        measure: How close outputs of the twins have to be.
        tolerances: The tolerance of each output of the models themselves, by name.
    """

    def __init__(
        self,
        sessions: Iterator[TwinSessions],
        shaken: Callable[[], Iterator[Shaken]],
        measure: Measure,
        noise: Noise,
        account: TwinAccount,
        *,
        is_mixed: bool = False,
    ) -> None:
        self._open = sessions
        self._sessions: TwinSessions | None = None
        self._open_shaken = shaken
        self._shaken: list[Shaken] | None = None
        self._narrow = measure
        self.measure = replace(measure, is_wide=True)
        self._noise = noise
        self.account = account
        self.tolerances: dict[str, Tolerance] = {}
        self._scales = Scales()
        self._is_mixed = is_mixed

    def run(self, inputs: Mapping[str, Array]) -> TwinRun | None:
        """Return what the twins give on inputs of the models; None when no runtime runs them."""
        wide = widened_inputs(inputs)
        while sessions := self._sessions or next(self._open, None):
            self._sessions = sessions
            try:
                run = TwinRun(wide, sessions.a.run(wide), sessions.b.run(wide))
            except RunFailed as error:
                self._sessions, self.account.failure = None, error.message
                continue
            self.account.runs += 1
            self.account.failure = None
            return run
        return None

    def repeats(self, name: str, run: TwinRun) -> bool:
        """Return whether the twin of A gives an output again when it is run again."""
        if self._sessions is None:
            return False
        tolerance = self.measure.of(run.a[name], name)
        again = self._sessions.a.run(run.inputs)[name]
        return compare(name, run.a[name], again, tolerance).within

    def compare(self, name: str, run: TwinRun) -> OutputDifference:
        """Compare an output of the twins, as closely as that of float32 models.

        A difference beyond the tolerance of float32 is none if the twin of A differs as much from
        itself by rounding, or if constants explain it: a scale that one model holds rounded to the
        narrow type, and that the other computes, differs by half a unit of the last place.
        """
        a, b = run.a[name], run.b[name]
        usual = self._scales.narrowed(name, a, self.measure.of(a, name))
        found = compare(name, a, b, usual)
        if not found.within and found.max_abs_diff is not None:
            for explain in (self._own_noise, self._of_constants):
                again = explain(name, run, usual)
                if again is not None and again.within:
                    found = replace(again, max_abs_diff=found.max_abs_diff)
                    break
        if found.max_abs_diff is not None:
            self.account.max_abs_diff = max(self.account.max_abs_diff, found.max_abs_diff)
        return found

    def _own_noise(self, name: str, run: TwinRun, usual: Tolerance) -> OutputDifference | None:
        assert self._sessions is not None
        pair = run.a[name], run.b[name]
        found = self._sessions.noise.compare(name, run.inputs, pair, usual)
        return None if found is None else found[0]

    def _of_constants(self, name: str, run: TwinRun, usual: Tolerance) -> OutputDifference | None:
        if self._shaken is None:
            self._shaken = list(self._open_shaken())
        moved = 0.0
        for shaken in self._shaken:
            with suppress(RunFailed):
                still = (run.b if shaken.is_b else run.a)[name]
                moved += distance(still, shaken.session.run(run.inputs)[name]) or 0.0
        if not moved:
            return None
        if run.a[name].dtype.kind in "iu":
            wider = Tolerance(0.0, min(moved, 1.0))
        else:
            wider = Tolerance(usual.rtol, usual.atol + MARGIN * moved)
        return compare(name, run.a[name], run.b[name], wider)

    def compare_narrow(
        self, name: str, inputs: Arrays, a: Array, b: Array, exact: bool | Mask, run: TwinRun
    ) -> OutputDifference | None:
        """Compare an output of the models themselves, by how far A lies from its own twin.

        The output as a whole is measured, as the rounding of one element is small by chance: each
        element may differ by four times the largest difference between A and its twin, in this run
        or when A is evaluated in another way (two right models were seen to differ by up to twice
        as much), and in any case by ten units of the last place of the largest value. An element
        of A that is not finite though that of its twin is has overflowed, and says nothing of B;
        but B has to be finite where A is.

        Returns:
            None if A and its twin give different shapes, so that nothing can be measured, and for
            models of different types: the twins are compared, and the tolerance of the coarser
            type holds for the models themselves.
        """
        twin = run.a[name]
        if (measured := distance(a, twin)) is None:
            return None
        if self._is_mixed:
            measured = max(measured, distance(b, run.b[name]) or 0.0)
        if a.dtype.kind in "fcV":
            self.account.rounding = max(self.account.rounding, measured)
        if self._is_mixed:
            return None
        pair = Pair(name, a, b, exact, twin)
        found = self._judged(pair, [a])
        if found.within or found.max_abs_diff is None:
            return found
        again = self._judged(pair, [a, *self._noise.others(name, inputs)])
        return again if again.within else found

    def _judged(self, pair: Pair, evaluations: list[Array]) -> OutputDifference:
        """Compare an output as far as the evaluations of A differ from its twin."""
        if pair.a.dtype.name in _DECISIONS:
            return pair.decided(evaluations)
        overflowed = ~_finite(pair.a) & _finite(pair.twin)
        self.account.overflows += int(np.count_nonzero(overflowed))
        tolerance = pair.allowed(evaluations, self._narrow.of(pair.a, pair.name))
        self.tolerances[pair.name] = tolerance
        return pair.rounded(tolerance, overflowed)


def widened_inputs(inputs: Mapping[str, Array]) -> Arrays:
    """Return what the twins are fed for inputs of the models."""
    return {
        name: value.astype(np.float32) if value.dtype in _NARROW else value
        for name, value in inputs.items()
    }


def _finite(value: Array) -> Mask:
    wide = value if value.dtype.kind in "fc" else value.astype(np.float64)
    return np.asarray(np.isfinite(wide))
