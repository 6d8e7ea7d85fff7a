"""Two models of a 16-bit type, and roundings that onnxruntime may add."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

import onnx_ir as ir

from onnx_kvtool.core.diagnostic import Location
from onnx_kvtool.core.reporting import Unnoticed
from onnx_kvtool.core.words import counted
from onnx_kvtool.ops.traits import dtype_name
from onnx_kvtool.runtime.errors import NoTwin, RunFailed, RuntimeUnavailable
from onnx_kvtool.runtime.sessions import RUNTIMES, Array, Arrays, RuntimeName
from onnx_kvtool.verification.comparison.compare import compare, largest
from onnx_kvtool.verification.comparison.movement import coarser
from onnx_kvtool.verification.comparison.rounding import (
    Measure,
    Noise,
    Shaken,
    TwinAccount,
    Twins,
    TwinSessions,
)
from onnx_kvtool.verification.report import Settings, TwinReport
from onnx_kvtool.verification.subject import Subject
from onnx_kvtool.verification.twins import has_external, roundable

# Two models of a 16-bit type, and what their float32 twins say of them.


class NarrowPair:
    """Two models; at least one computes in a 16-bit type.

    Two models of different types have other weights in float32: those that only one has are moved
    by as much as rounding may have moved them, to see what that does. Where the weights are not at
    hand, such models are held to the tolerance of the coarser type alone.

    Args:
        a: Model A.
        b: Model B.
        settings: How they are compared; a tolerance that is given is the only one.
        runtime: What runs the models themselves.

    Attributes:
        runtime: What runs the twins, once it does.
        account: What the twins showed.
    """

    def __init__(self, a: Subject, b: Subject, settings: Settings, runtime: RuntimeName) -> None:
        self._a = a
        self._b = b
        self._settings = settings
        coarsest = coarser(a.coarsest, b.coarsest)
        self._name = dtype_name(ir.DataType.FLOAT if coarsest is None else coarsest.dtype)
        self._runtimes = RUNTIMES if settings.runtime == "auto" else (settings.runtime,)
        self._runtime: RuntimeName = runtime
        self.runtime: RuntimeName = runtime
        self._twins: tuple[Subject, Subject] | None = None
        self.account = TwinAccount()

    @staticmethod
    def is_one(a: Subject, b: Subject, measure: Measure, settings: Settings) -> bool:
        """Return whether two models are such a pair, and something of it can differ by rounding.

        A model that has another type where A is narrow, with the values of A, is one of a pair.
        """
        if not (a.is_narrow or b.is_narrow) or measure.exact or measure.is_given:
            return False
        if _is_mixed(a, b, settings) and any(has_external(s.model) for s in (a, b) if s.is_narrow):
            return False
        return any(port.name not in measure.moved for port in a.interface.outputs)

    @property
    def subjects(self) -> tuple[Subject, Subject]:
        """The twins of A and B.

        Raises:
            NoTwin: If one of them has none.
        """
        if self._twins is None:
            # The twins have one type, so that nothing stands between but what reads A.
            is_retyped = self._settings.widened is not None
            b = self._b.with_host(self._a.host) if is_retyped else self._b
            self._twins = self._a.twin(), b.twin()
        return self._twins

    def twins(self, measure: Measure) -> Twins:
        """Return the twins, to be run beside the models."""
        noise = Noise(self._a.model, self._a.directory, self._runtime, self._a.hosted)
        return Twins(
            self._sessions(),
            self._shaken,
            measure,
            noise,
            self.account,
            is_mixed=_is_mixed(self._a, self._b, self._settings),
        )

    def _sessions(self) -> Iterator[TwinSessions]:
        try:
            a, b = self.subjects
        except NoTwin as error:
            self.account.failure = error.message
            return
        for runtime in self._runtimes:
            try:
                sessions = a.session(runtime), b.session(runtime)
            except RuntimeUnavailable as error:
                self.account.failure = error.message
                continue
            self.runtime = runtime
            noise = Noise(a.model, a.directory, runtime, a.hosted)
            yield TwinSessions(*sessions, noise)

    def _shaken(self) -> Iterator[Shaken]:
        """Open twins with the constants moved that only one of the models has."""
        of_a, of_b = roundable(self._a.model), roundable(self._b.model)
        alone_a = set[bytes]() if self._settings.widened is not None else of_a - of_b
        # In another type B has the values of A, but for what it computes with beside them.
        for subject, alone in ((self._a, alone_a), (self._b, of_b - of_a)):
            if alone:
                with suppress(NoTwin, RuntimeUnavailable):
                    session = subject.twin(alone).session(self.runtime)
                    yield Shaken(session, is_b=subject is self._b)

    def report(self) -> TwinReport | None:
        """Return what the twins showed; None if they did not run."""
        account = self.account
        if not account.runs:
            return None
        return TwinReport(self._name, account.max_abs_diff, account.rounding, account.overflows)

    def unnoticed(self) -> list[Unnoticed]:
        """Return where B is coarser than A, so that a fault may be as small as its rounding."""
        a, b, account = self._a.coarsest, self._b.coarsest, self.account
        if not account.runs or b is None or coarser(a, b) is a:
            return []
        wide = "in no floating-point type" if a is None else f"in {dtype_name(a.dtype)}"
        why = (
            f"{self._b.name} computes in {self._name} where {self._a.name} does {wide}, and "
            f"rounding moves it by up to {account.rounding:.2g}"
        )
        return [Unnoticed(Location(value=b.cause.strip("`")), why)]

    def notes(self) -> list[str]:
        """Return what a reader should know of the twins."""
        account, name = self.account, self._name
        notes = []
        if account.runs:
            narrow = self._a if self._a.is_narrow else self._b
            notes.append(
                f"the float32 twins agree to {account.max_abs_diff:.1g}; rounding to {name} alone "
                f"moves {narrow.name} by up to {account.rounding:.2g}"
            )
        if account.overflows:
            elements = counted(account.overflows, "element")
            notes.append(f"{elements} of {self._a.name} overflow in {name} and not in float32")
        if account.failure is not None:
            notes.append(
                f"compared by the tolerance of {name}, without float32 twins: {account.failure}"
            )
        return notes


def _is_mixed(a: Subject, b: Subject, settings: Settings) -> bool:
    """Return whether the models compute in different types, and B does not stand for one of A's."""
    types = {None if subject.coarsest is None else subject.coarsest.dtype for subject in (a, b)}
    return len(types) > 1 and settings.widened is None


# What models differ by where onnxruntime may round more than it does in a comparison.


def rounding_note(
    a: Subject, b: Subject, inputs: Mapping[str, Array], runtime: RuntimeName, found: float
) -> str | None:
    """Return what was changed for the comparison, and what the models differ by as they are.

    Products with weights of a few bits are compared in float32. `accuracy_level` of such a node,
    or a default of onnxruntime for those that it fuses, lets it round the other operand to 8 bits.

    Returns:
        The remark; None where nothing was changed that matters.
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
        ours, theirs = (_as_it_is(subject, inputs) for subject in (a, b))
    except (RunFailed, RuntimeUnavailable) as error:
        return f"{said}; the unchanged models do not run: {error.message}"
    apart = {
        name: seen.max_abs_diff
        for name, value in ours.items()
        if (seen := compare(name, value, theirs[name])).max_abs_diff is not None
    }
    name = max(apart, key=lambda one: apart[one] or 0.0, default=None)
    most = 0.0 if name is None else apart[name] or 0.0
    if name is None or most <= found:
        return f"{said}; the unchanged models differ by no more" if changed else None
    return (
        f"{said}; the unchanged models differ by up to {most:.2g} in `{name}`, whose largest "
        f"value is {largest(ours[name]):.2g}"
    )


def _as_it_is(subject: Subject, inputs: Mapping[str, Array]) -> Arrays:
    from onnx_kvtool.runtime import onnxruntime

    session = onnxruntime.Session(subject.model, subject.directory, exact=False)
    return subject.hosted(session).run(inputs)
