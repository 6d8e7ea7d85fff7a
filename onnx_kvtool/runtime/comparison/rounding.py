"""Models of a 16-bit type held against their float32 twins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import ml_dtypes
import numpy as np

from onnx_kvtool.runtime.comparison.compare import (
    Mask,
    OutputDifference,
    Tolerance,
    compare,
)
from onnx_kvtool.runtime.comparison.measure import Measure, Scales
from onnx_kvtool.runtime.comparison.noise import MARGIN, Noise
from onnx_kvtool.runtime.comparison.pair import Pair, distance
from onnx_kvtool.runtime.errors import RunFailed
from onnx_kvtool.runtime.sessions import Array, Arrays, Session

__all__ = ["Shaken", "TwinAccount", "TwinRun", "TwinSessions", "Twins", "widened_inputs"]

_NARROW = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))

_DECISIONS = frozenset({"bool", "int32", "int64", "uint32", "uint64"})
"""Dtypes of decisions, indices and tokens: how far apart two of them are says nothing."""


class TwinSessions(NamedTuple):
    """The twins of A and B in one runtime, and what measures that of A by itself."""

    a: Session
    b: Session
    noise: Noise


class Shaken(NamedTuple):
    """A twin in which some constants are what they may have been before they were rounded."""

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
        self._wide = replace(measure, is_wide=True)
        self._noise = noise
        self.account = account
        self.tolerances: dict[str, Tolerance] = {}
        self._scales = Scales()
        self._is_mixed = is_mixed

    @property
    def measure(self) -> Measure:
        """How close outputs of the twins have to be."""
        return self._wide

    def run(self, inputs: Mapping[str, Array]) -> TwinRun | None:
        """Return what the twins give on inputs of the models; None when no runtime runs them."""
        wide = widened_inputs(inputs)
        while self._sessions is not None or self._next():
            assert self._sessions is not None
            try:
                run = TwinRun(wide, self._sessions.a.run(wide), self._sessions.b.run(wide))
            except RunFailed as error:
                self._sessions, self.account.failure = None, error.message
                continue
            self.account.runs += 1
            self.account.failure = None
            return run
        return None

    def _next(self) -> bool:
        self._sessions = next(self._open, None)
        return self._sessions is not None

    def repeats(self, name: str, run: TwinRun) -> bool:
        """Return whether the twin of A gives an output again when it is run again."""
        if self._sessions is None:
            return False
        tolerance = self._wide.of(run.a[name], name)
        again = self._sessions.a.run(run.inputs)[name]
        return compare(name, run.a[name], again, rtol=tolerance.rtol, atol=tolerance.atol).within

    def compare(self, name: str, run: TwinRun) -> OutputDifference:
        """Compare an output of the twins, as closely as that of float32 models.

        A difference beyond the tolerance of float32 is none if the twin of A differs as much from
        itself by rounding, or if constants explain it: a scale that one model holds rounded to the
        narrow type, and that the other computes, differs by half a unit of the last place.
        """
        a, b = run.a[name], run.b[name]
        usual = self._scales.narrowed(name, a, self._wide.of(a, name))
        found = compare(name, a, b, rtol=usual.rtol, atol=usual.atol)
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
        return compare(name, run.a[name], run.b[name], rtol=wider.rtol, atol=wider.atol)

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

        Args:
            name: Name of the output.
            inputs: What the models were fed.
            a: What A gave.
            b: What B gave.
            exact: Which elements have to agree in every bit.
            run: What the twins gave.

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
