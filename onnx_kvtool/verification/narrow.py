"""Two models of a 16-bit type, and roundings that onnxruntime may add."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.reporting import Unnoticed
from onnx_kvtool.core.words import counted
from onnx_kvtool.ops.traits import dtype_name
from onnx_kvtool.runtime.errors import NoTwin, RunFailed, RuntimeUnavailable
from onnx_kvtool.runtime.sessions import RUNTIMES, Array, Arrays, RuntimeName, Session
from onnx_kvtool.verification.comparison.differences import (
    Mask,
    OutputDifference,
    Tolerance,
    bits_differ,
    compare,
    largest,
    tolerance_of,
)
from onnx_kvtool.verification.comparison.rounded_values import coarser
from onnx_kvtool.verification.comparison.tolerances import MARGIN, Measure, Scales
from onnx_kvtool.verification.report import Settings, TwinReport
from onnx_kvtool.verification.subject import Subject
from onnx_kvtool.verification.twins import has_external, roundable

# Two models of a 16-bit type, held against their float32 twins.


_NARROW = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))

_DECISIONS = frozenset({"bool", "int32", "int64", "uint32", "uint64"})
"""Dtypes of decisions, indices and tokens: how far apart two of them are says nothing."""

_ONE_IN = 8
"""Of so many decisions one may fall the other way though none of those that were seen did."""


class TwinRun(NamedTuple):
    """What both twins were fed, the inputs of the models widened, and what each gave."""

    inputs: Arrays
    a: Arrays
    b: Arrays


class Twins:
    """The float32 twins of two models, which say what is rounding and what is not.

    In float32 nothing of what a 16-bit type rounds is rounded, so two right models agree there as
    closely as float32 models do, and a fault stands out that is smaller than the rounding of the
    narrow type. What then remains to be seen is whether B rounds like A: the narrow outputs may lie
    apart by a few times as much as A lies apart from its own twin on the same inputs.

    Two models of different types have other weights in float32: those that only one has are moved
    by as much as rounding may have moved them, to see what that does. A does not show how far such
    a B may lie from its twin. Where the weights are not at hand, such models are held to the
    tolerance of the coarser type alone.

    Args:
        a: Model A.
        b: Model B.
        settings: How they are compared.
        runtime: What runs the models themselves.
        measure: How close outputs of the narrow models have to be without twins.

    Attributes:
        subjects: The twins of A and B, once one was run.
        runtime: What runs the twins, once it does.
        measure: How close outputs of the twins have to be.
        tolerances: The tolerance of each output of the models themselves, by name.
        runs: Number of runs of both twins.
    """

    def __init__(
        self, a: Subject, b: Subject, settings: Settings, runtime: RuntimeName, measure: Measure
    ) -> None:
        self._a, self._b = self.subjects = a, b
        self._is_retyped = settings.widened is not None
        self._is_mixed = _is_mixed(a, b, settings)
        coarsest = coarser(a.coarsest, b.coarsest)
        self._name = dtype_name(ir.DataType.FLOAT if coarsest is None else coarsest.dtype)
        self.runtime = runtime
        self._narrow, self._noise = measure, a.noise(runtime)
        self.measure = replace(measure, is_wide=True)
        self.tolerances: dict[str, Tolerance] = {}
        self._scales = Scales()
        self._opened = self._open(RUNTIMES if settings.runtime == "auto" else (settings.runtime,))
        self._sessions: tuple[Session, Session] | None = None
        self._shaken: list[tuple[Session, bool]] | None = None
        self.runs = 0
        self._farthest, self._rounding, self._overflows = 0.0, 0.0, 0
        self._failure: str | None = None

    @staticmethod
    def of(
        a: Subject, b: Subject, settings: Settings, runtime: RuntimeName, measure: Measure
    ) -> Twins | None:
        """Return the twins of two models; None if nothing of them can differ by rounding.

        A tolerance that is given is the only one. A model that has another type where A is narrow,
        with the values of A, is one of a pair.
        """
        if not (a.is_narrow or b.is_narrow) or measure.exact or measure.is_given:
            return None
        if _is_mixed(a, b, settings) and any(has_external(s.model) for s in (a, b) if s.is_narrow):
            return None
        is_rounded = any(port.name not in measure.moved for port in a.interface.outputs)
        return Twins(a, b, settings, runtime, measure) if is_rounded else None

    def _open(self, runtimes: Sequence[RuntimeName]) -> Iterator[tuple[Session, Session]]:
        try:
            # The twins have one type, so that nothing stands between but what reads A.
            b = self._b.with_host(self._a.host) if self._is_retyped else self._b
            self.subjects = self._a.twin(), b.twin()
        except NoTwin as error:
            self._failure = error.message
            return
        for runtime in runtimes:
            try:
                sessions = self.subjects[0].session(runtime), self.subjects[1].session(runtime)
            except RuntimeUnavailable as error:
                self._failure = error.message
                continue
            self.runtime, self._own_noise = runtime, self.subjects[0].noise(runtime)
            yield sessions

    def unload(self) -> None:
        """Let go of what the runtimes have loaded; the twins are not run again."""
        self._sessions, self._shaken = None, []
        self._noise = self._own_noise = self._a.noise(self.runtime)
        for subject in self.subjects:
            subject.unload()

    def run(self, inputs: Arrays) -> TwinRun | None:
        """Return what the twins give on inputs of the models; None when no runtime runs them."""
        wide = widened_inputs(inputs)
        while sessions := self._sessions or next(self._opened, None):
            self._sessions = sessions
            try:
                run = TwinRun(wide, sessions[0].run(wide), sessions[1].run(wide))
            except RunFailed as error:
                self._sessions, self._failure = None, error.message
                continue
            self.runs += 1
            self._failure = None
            return run
        return None

    def repeats(self, name: str, run: TwinRun) -> bool:
        """Return whether the twin of A gives an output again when it is run again."""
        if self._sessions is None:
            return False
        again = self._sessions[0].run(run.inputs)[name]
        return compare(name, run.a[name], again, self.measure.of(run.a[name], name)).within

    def compare(self, name: str, run: TwinRun) -> OutputDifference:
        """Compare an output of the twins, as closely as that of float32 models.

        A difference beyond the tolerance of float32 does not count if the twin of A differs as much
        from itself by rounding, or if constants explain it. One model may contain a scale rounded
        to the narrow type, and the other compute it: they differ by half a unit of the last place.
        """
        a, b = run.a[name], run.b[name]
        usual = self._scales.narrowed(name, a, self.measure.of(a, name))
        found = compare(name, a, b, usual)
        if found.max_abs_diff is None:
            return found
        if not found.within:
            noise = self._own_noise.compare(name, run.inputs, (a, b), usual)
            again = noise[0] if noise else self._of_constants(name, run, usual)
            if again is not None and again.within:
                found = replace(again, max_abs_diff=found.max_abs_diff)
        self._farthest = max(self._farthest, found.max_abs_diff or 0.0)
        return found

    def _of_constants(self, name: str, run: TwinRun, usual: Tolerance) -> OutputDifference | None:
        """Compare an output as closely as twins do whose constants are moved."""
        if self._shaken is None:
            self._shaken = list(self._open_shaken())
        moved = 0.0
        for session, is_b in self._shaken:
            with suppress(RunFailed):
                still = (run.b if is_b else run.a)[name]
                moved += distance(still, session.run(run.inputs)[name]) or 0.0
        if not moved:
            return None
        wider = Tolerance(usual.rtol, usual.atol + MARGIN * moved)
        if run.a[name].dtype.kind in "iu":
            wider = Tolerance(0.0, min(moved, 1.0))
        return compare(name, run.a[name], run.b[name], wider)

    def _open_shaken(self) -> Iterator[tuple[Session, bool]]:
        """Open twins with the constants moved that only one model has; with each, whether B has."""
        of_a, of_b = roundable(self._a.model), roundable(self._b.model)
        # In another type B has the values of A, but for what it computes with beside them.
        alone_a = set[bytes]() if self._is_retyped else of_a - of_b
        for subject, alone, is_b in ((self._a, alone_a, False), (self._b, of_b - of_a, True)):
            if alone:
                with suppress(NoTwin, RuntimeUnavailable):
                    yield subject.twin(alone).session(self.runtime), is_b

    def compare_narrow(
        self, name: str, inputs: Arrays, a: Array, b: Array, exact: bool | Mask, run: TwinRun
    ) -> OutputDifference | None:
        """Compare an output of the models themselves, by how far A lies from its own twin.

        The output is measured as a whole, since the rounding of one element may be small by chance.
        Each element may differ by four times the largest difference between A and its twin, in this
        run or when A is evaluated in another way. (Two right models were seen to differ by twice as
        much.) In any case it may differ by ten units of the last place of the largest value. An
        element of A that is not finite though that of its twin is has overflowed, and says nothing
        of B; but B has to be finite where A is.

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
            self._rounding = max(self._rounding, measured)
        if self._is_mixed:
            return None
        pair = name, a, b, exact, twin
        found = self._judged(*pair, [a])
        if found.within or found.max_abs_diff is None:
            return found
        again = self._judged(*pair, [a, *self._noise.others(name, inputs)])
        return again if again.within else found

    def _judged(
        self, name: str, a: Array, b: Array, exact: bool | Mask, twin: Array, ways: list[Array]
    ) -> OutputDifference:
        """Compare an output as far as A, evaluated in so many ways, differs from its twin."""
        if a.dtype.name in _DECISIONS:
            return _decided(name, a, b, exact, twin, ways)
        overflowed = ~_finite(a) & _finite(twin)
        self._overflows += int(np.count_nonzero(overflowed))
        usual = self._narrow.of(a, name)
        rounding = max(distance(value, twin) or 0.0 for value in ways)
        rtol, atol = 0.0, MARGIN * rounding
        if a.dtype.kind not in "iu" and a.dtype.name not in ("int4", "uint4"):
            # Rows that were in the cache before say nothing of the size of those computed.
            atol = max(atol, usual.rtol * (largest(twin, exact) or 1.0))
            # To float8 values are rounded once more, to either side.
            rtol = tolerance_of(a.dtype).rtol if a.dtype.itemsize == 1 else 0.0
        because = f"{usual.because}, which moves A by up to {rounding:.2g}"
        self.tolerances[name] = Tolerance(rtol, atol, because)
        expected = np.where(overflowed, b, a) if overflowed.any() else a
        return compare(name, expected, b, self.tolerances[name], exact=exact)

    def report(self) -> TwinReport | None:
        """Return what the twins showed; None if they did not run."""
        if not self.runs:
            return None
        return TwinReport(self._name, self._farthest, self._rounding, self._overflows)

    def unnoticed(self) -> list[Unnoticed]:
        """Return where B is coarser than A, so that a fault may be as small as its rounding."""
        a, b = self._a.coarsest, self._b.coarsest
        if not self.runs or b is None or coarser(a, b) is a:
            return []
        wide = "in no floating-point type" if a is None else f"in {dtype_name(a.dtype)}"
        why = (
            f"{self._b.name} computes in {self._name} where {self._a.name} does {wide}, and "
            f"rounding moves it by up to {self._rounding:.2g}"
        )
        return [Unnoticed(Location(value=b.cause.strip("`")), why)]

    def notes(self) -> Iterator[str]:
        """Yield what a reader should know of the twins."""
        name = self._name
        if self.runs:
            narrow = self._a if self._a.is_narrow else self._b
            yield (
                f"the float32 twins agree to {self._farthest:.1g}; rounding to {name} alone "
                f"moves {narrow.name} by up to {self._rounding:.2g}"
            )
        if self._overflows:
            elements = counted(self._overflows, "element")
            yield f"{elements} of {self._a.name} overflow in {name} and not in float32"
        if self._failure is not None:
            yield f"compared by the tolerance of {name}, without float32 twins: {self._failure}"


def _is_mixed(a: Subject, b: Subject, settings: Settings) -> bool:
    """Return whether the models compute in different types, and B does not stand for one of A's."""
    types = {None if subject.coarsest is None else subject.coarsest.dtype for subject in (a, b)}
    return len(types) > 1 and settings.widened is None


def _decided(
    name: str, a: Array, b: Array, exact: bool | Mask, twin: Array, ways: list[Array]
) -> OutputDifference:
    """Judge decisions by how many of them rounding turns, not by how far."""
    found = compare(name, a, b, exact=exact)
    if found.within or found.max_abs_diff is None:
        return found
    wrong = bits_differ(a, b)
    turned = max(np.count_nonzero(bits_differ(value, twin)) for value in ways)
    most = max(1, MARGIN * turned, a.size / _ONE_IN)
    if (wrong & exact).any() or np.count_nonzero(wrong) > most:
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


def _finite(value: Array) -> Mask:
    wide = value if value.dtype.kind in "fc" else value.astype(np.float64)
    return np.asarray(np.isfinite(wide))


def widened_inputs(inputs: Arrays) -> Arrays:
    """Return what the twins are fed for inputs of the models."""
    return {
        name: value.astype(np.float32) if value.dtype in _NARROW else value
        for name, value in inputs.items()
    }


# What models differ by where onnxruntime may round more than it does in a comparison.


def rounding_note(
    a: Subject, b: Subject, inputs: Arrays, runtime: RuntimeName, found: float
) -> str | None:
    """Return what was changed for the comparison, and what the models differ by; None if nothing.

    Products with weights of a few bits are compared in float32. `accuracy_level` of such a node,
    or a default of onnxruntime for those that it fuses, lets it round the other operand to 8 bits.
    """
    if runtime != "onnxruntime":
        return None
    from onnx_kvtool.runtime import onnxruntime

    if not any(onnxruntime.may_round(subject.model) for subject in (a, b)):
        return None
    changed = [
        f"`accuracy_level` of {counted(len(levels), 'node')} of {subject.name} is 1 in place of "
        f"{max(levels)}"
        for subject in (a, b)
        if (levels := onnxruntime.lowered_accuracy(subject.model))
    ]
    said = "products with quantized weights were computed in float32"
    said += f": {', '.join(changed)}" if changed else ", which onnxruntime does not do by default"
    try:
        ours, theirs = (
            s.hosted(onnxruntime.Session(s.model, s.directory, exact=False)).run(inputs)
            for s in (a, b)
        )
    except (RunFailed, RuntimeUnavailable) as error:
        return f"{said}; the unchanged models do not run: {error.message}"
    apart = {n: compare(n, value, theirs[n]).max_abs_diff or 0.0 for n, value in ours.items()}
    name = max(apart, key=lambda one: apart[one])
    if apart[name] <= found:
        return f"{said}; the unchanged models differ by no more" if changed else None
    return (
        f"{said}; the unchanged models differ by up to {apart[name]:.2g} in `{name}`, whose "
        f"largest value is {largest(ours[name]):.2g}"
    )
