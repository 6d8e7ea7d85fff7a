"""Inner values of two models with equal outputs: compared, and tested with planted mistakes."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from onnx_kvtool.core.reporting import Covered, Place, Unnoticed
from onnx_kvtool.runtime.errors import RunFailed, RuntimeUnavailable
from onnx_kvtool.runtime.memory import give_back
from onnx_kvtool.runtime.sessions import Array, Arrays, RuntimeName, Session, open_session
from onnx_kvtool.verification.comparison.differences import (
    EXACT,
    OutputDifference,
    Tolerance,
    bits_differ,
    compare,
    largest,
)
from onnx_kvtool.verification.comparison.tolerances import Measure, Noise
from onnx_kvtool.verification.planting import (
    GraphView,
    HandedOut,
    difference,
    handing_out,
    is_seen,
    mistake,
    open_to_mistakes,
    port,
    total_bytes,
)
from onnx_kvtool.verification.report import EarliestDifference
from onnx_kvtool.verification.subject import Subject

_GROUP = 128
"""Places that are looked at with one loading of both models."""

_LIGHT = 1 << 20
"""Most bytes of inputs where every place is looked at; of larger models only places that stand
for others, a few at a time."""

_LIGHT_MODEL = 8 << 20
"""Most bytes of a model where mistakes are planted that the comparison would notice anyhow;
to load a larger one again takes as long as several runs."""

_FEW = 16
"""Places of a larger model that are looked at with one loading."""

_ATTEMPTS = 16
"""Times that a model is loaded to find out which of its values no runtime hands out."""

_ALIKE = 2
"""Places of one operator where mistakes are planted; if these are noticed, so are the others."""

_SHARE = 0.05
"""Share of the comparison's time for planting mistakes that the comparison at the place would
notice anyhow."""


@dataclass(slots=True)
class _Probe:
    """What is known of a place.

    Attributes:
        place: The place.
        is_seen: Whether the comparison of its values would have noticed a mistake.
        is_exact: Whether the values are constants of the same bits, where no mistake hides.
        planted: Whether a planted mistake was noticed; None where none was planted.
        why: Why a mistake would go unnoticed.
        others: The runs where A has another value there, each with that value.
    """

    place: Place
    is_seen: bool = False
    is_exact: bool = False
    planted: bool | None = None
    why: str = ""
    others: list[tuple[Arrays, Array]] = field(default_factory=list)

    @property
    def is_noticed(self) -> bool | None:
        """Whether a mistake there would have been noticed; None if nobody knows."""
        return (self.is_seen or None) if self.planted is None else self.planted


@dataclass
class Probes:
    """Copies of two models with places as outputs, and with planted mistakes.

    Both copies run without optimisation, one after the other, on inputs where the models
    themselves agree. They say nothing of what a runtime makes of the models when it optimises
    them, which is why the models are run as they are as well.

    Attributes:
        a: Model A.
        b: Model B.
        places: Values of both that correspond, where one was rewritten.
        measure: How close values have to be.
        runtime: What runs the models.
        is_binding: Whether the values of a place must agree because B was made from A. Otherwise
            they may be different values of the same name.
        lit: Outputs that would have shown a mistake; they are compared in all runs.
        thorough: Whether mistakes are planted at every place, and in all runs until one notices.
    """

    a: GraphView
    b: GraphView
    places: Sequence[Place]
    measure: Measure
    runtime: RuntimeName
    is_binding: bool
    lit: Collection[str] = ()
    thorough: bool = False

    def __post_init__(self) -> None:
        self._probes = [_Probe(place) for place in self.places]
        self._handed_out = HandedOut(self.a, self.runtime, _ATTEMPTS)
        self._noise: Noise | None = None
        self._handed: Collection[str] = ()
        self._is_hosted = (self.a.subject.host, self.b.subject.host) != (None, None)
        self._difference: EarliestDifference | None = None

    def look(
        self, runs: Sequence[Arrays], last: Arrays | None, seconds: float
    ) -> tuple[Covered, EarliestDifference | None]:
        """Compare the places in `runs`, then plant mistakes.

        `last` has the inputs of one more run, for places where `runs` say nothing. Return the
        places, and those where a mistake would have been noticed; then the first place whose values
        differ though they must not.
        """
        for probe in () if self.thorough else self._probes:
            probe.is_seen = probe.place.a == probe.place.b and probe.place.a in self.lit
        pending = [probe for probe in self._probes if not probe.is_seen]
        is_light = total_bytes(runs[0]) <= _LIGHT
        if not is_light and not self.thorough:
            pending = _few_alike(pending)
        size = _GROUP if is_light else _FEW
        for start in range(0, len(pending), size):
            self._group(pending[start : start + size], runs, seconds * _SHARE)
            if self._difference is not None:
                break
            give_back()
        dark = [probe for probe in pending if not (probe.others or probe.is_noticed)][:size]
        if dark and last and self._difference is None:
            self._group(dark, [last], 0.0)
        if self._difference is not None:
            return Covered(len(self._probes)), self._difference
        return self._concluded(), None

    def _group(self, group: Sequence[_Probe], runs: Sequence[Arrays], seconds: float) -> None:
        for probe in group:
            probe.why, probe.planted = "no runtime hands out its values", None
        self._noise = None
        of_a = self._handed_out.values([probe.place.a for probe in group], runs)
        self._handed = of_a.keys()
        handed = [probe for probe in group if probe.place.a in of_a]
        dtypes = {probe.place.b: of_a[probe.place.a][0].dtype for probe in handed}
        is_light = self.thorough or len(self.b.subject.model) <= _LIGHT_MODEL
        opened = _Open.of(self.b, dtypes, self.runtime, runs, is_open=is_light)
        if opened is None:
            return
        for probe in handed:
            of_b = (base and base.values[probe.place.b] for base in opened.bases)
            for inputs, one, other in zip(runs, of_a[probe.place.a], of_b, strict=True):
                if other is not None:
                    self._compare(probe, one, other, inputs)
                if self._difference is not None:
                    return
        more = int(seconds / max(opened.seconds, 1e-6)) if is_light else 0
        candidates = self._candidates(group, more)
        if candidates and not is_light:
            del opened
            opened = _Open.of(self.b, dtypes, self.runtime, runs, is_open=True)
        if opened is None:
            return
        for probe in candidates:
            probe.planted = any(
                base is not None and self._notices(opened, handed, probe, inputs, base)
                for inputs, base in zip(runs, opened.bases, strict=True)
            )

    def _compare(self, probe: _Probe, a: Array, b: Array, inputs: Arrays) -> None:
        """Compare a place in one run, and see whether a mistake would have been noticed there."""
        place = probe.place
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            probe.why = "the values there have other shapes or types"
            return
        found = self._compared(place, a, b)
        if not found.within and self.is_binding:
            found = self._explained(place, a, b, inputs, found)
        if not found.within:
            probe.is_seen = False
            if not probe.others:
                probe.why = f"{found.reason}".replace("output", "value", 1)
            if self.is_binding:
                ends = replace(place.location, value=place.a), self.b.location(place.b)
                self._difference = EarliestDifference(*ends, found.first_mismatch, probe.why)
            probe.others.append((inputs, a))
        elif not (probe.is_seen or probe.others):
            tolerance = self._tolerance(place, a)
            # The same in every run, with no rounding that a mistake hides in.
            probe.is_exact = self._is_constant(place) and not bits_differ(a, b).any()
            probe.is_seen = probe.is_exact or is_seen(a, tolerance)
            if not probe.is_seen:
                probe.why = _reason(a, tolerance)

    def _compared(self, place: Place, a: Array, b: Array) -> OutputDifference:
        return compare(place.a, a, b, self._tolerance(place, a))

    def _tolerance(self, place: Place, value: Array) -> Tolerance:
        """Return the tolerance of a value within a model.

        What is added up to a small number is as large as other elements of the value, so that the
        absolute tolerance, which is for values of the order of 1, grows with these.
        """
        if not self.measure.moved.isdisjoint((place.a, place.b)) or self._is_constant(place):
            return EXACT
        usual = self.measure.of(value, place.a, place.b)
        if self.measure.is_given or not usual.atol:
            return usual
        return replace(usual, atol=usual.atol * max(largest(value), 1.0))

    def _is_constant(self, place: Place) -> bool:
        return self.a.producers[place.a][1].op_type == "Constant"

    def _explained(
        self, place: Place, a: Array, b: Array, inputs: Arrays, found: OutputDifference
    ) -> OutputDifference:
        """Compare a place as closely as A agrees with itself evaluated in another way."""
        if self.measure.is_given or found.max_abs_diff is None:
            return found
        subject = self.a.subject
        if self._noise is None:
            data = handing_out(self.a, self._handed)
            self._noise = Noise(data, subject.directory, self.runtime)
        usual = self._tolerance(place, a)
        again = self._noise.compare(place.a, subject.fed(inputs), (a, b), usual)
        return again[0] if again else found

    def _candidates(self, group: Sequence[_Probe], more: int) -> list[_Probe]:
        """Return the places where mistakes are planted.

        These are the ones where the comparison at the place alone would not notice them, and as
        many others as there is time for; of places that are alike a few, unless all are wanted.
        """
        group = [probe for probe in group if not probe.is_exact]
        if self.thorough:
            return group
        wrong = [probe for probe in group if probe.others]
        dark = [probe for probe in group if not (probe.is_seen or probe.others)]
        light = [probe for probe in group if probe.is_seen]
        return [*wrong[:_MOST_WRONG], *_few_alike(dark), *_few_alike(light, 1)[: min(more, _MOST)]]

    def _notices(
        self, opened: _Open, probes: Sequence[_Probe], probe: _Probe, inputs: Arrays, base: _Run
    ) -> bool:
        """Return whether some comparison notices a mistake that is planted at a place of B.

        If A has another value there, and no host explains that, the mistake is the value of A.
        """
        name = probe.place.b
        if name not in opened.ports:
            return False
        value = base.values[name]
        planted = mistake(value)
        if not self._is_hosted and probe.others:
            of_a = next((array for run, array in probe.others if run is inputs), value)
            planted = difference(value, of_a)
        if planted is None:
            return False
        run = opened.run(inputs, {port(name): planted})
        if run is None:
            return True  # B fails where A runs
        measure = self.measure
        return any(
            name not in measure.random
            and not compare(
                name,
                expected,
                run.outputs[name],
                measure.of(expected, name),
                exact=name in measure.moved,
            ).within
            for name, expected in base.outputs.items()
        ) or any(
            not self._compared(
                seen.place, base.values[seen.place.b], run.values[seen.place.b]
            ).within
            for seen in probes
            if seen.is_seen
        )

    def _concluded(self) -> Covered:
        """Return the verdict for every place, including places covered by another one."""
        alike: defaultdict[str | None, list[bool]] = defaultdict(list)
        for probe in self._probes:
            if probe.is_noticed is not None:
                alike[probe.place.location.op].append(probe.is_noticed)
        noticed, unnoticed = 0, []
        for probe in self._probes:
            location = probe.place.location
            if probe.is_noticed is False:
                location = replace(location, value=location.value or probe.place.a)
                unnoticed.append(Unnoticed(location, probe.why))
            elif probe.is_noticed or ((others := alike[location.op]) and all(others)):
                noticed += 1
        return Covered(len(self._probes), noticed, tuple(unnoticed))


_MOST = 4
"""Places where mistakes are planted though the comparison there would notice them."""


_MOST_WRONG = 16
"""Places with different values that are looked into, of those that are looked at together."""


def _few_alike(probes: Iterable[_Probe], most: int = _ALIKE) -> list[_Probe]:
    """Return a limited number of places of each kind."""
    counts = Counter[str | None]()
    found = []
    for probe in probes:
        op = probe.place.location.op
        counts[op] += 1
        if counts[op] <= most:
            found.append(probe)
    return found


def _reason(value: Array, tolerance: Tolerance) -> str:
    """Return why a mistake in a value would go unnoticed."""
    if not value.size:
        return "it has no element in these runs"
    if value.dtype.kind in "fcV" and np.isnan(value.astype(np.complex128)).all():
        return "none of its values is a number"
    return f"its values lie below the tolerance of {tolerance.atol:.2g}"


class _Run(NamedTuple):
    """The outputs of B in one run, as its host reads them, and its values at the places."""

    outputs: Arrays
    values: Arrays


@dataclass(frozen=True, slots=True)
class _Open:
    """A copy of B that hands out places and takes mistakes.

    Attributes:
        subject: The model.
        session: The copy.
        names: The values that it hands out.
        ports: Those that mistakes may be planted in.
        bases: What it gave in each run without a mistake; None where it failed.
        seconds: How long one of these runs took.
    """

    subject: Subject
    session: Session
    names: tuple[str, ...]
    ports: frozenset[str]
    bases: list[_Run | None] = field(default_factory=list)
    seconds: float = 0.0

    @staticmethod
    def of(
        view: GraphView,
        dtypes: Mapping[str, np.dtype[Any]],
        runtime: RuntimeName,
        runs: Sequence[Arrays],
        *,
        is_open: bool,
    ) -> _Open | None:
        """Return the copy after it was run; None if no runtime runs it."""
        opened = _Open._try(view, dtypes, dtypes if is_open else {}, runtime, runs)
        if opened is not None or not is_open:
            return opened
        # Perhaps B has other types there.
        closed = _Open._try(view, dtypes, {}, runtime, runs)
        base = None if closed is None else next(filter(None, closed.bases))
        if base is None:
            return None
        own = {name: base.values[name].dtype for name in dtypes}
        return _Open._try(view, dtypes, own, runtime, runs) or closed

    @staticmethod
    def _try(
        view: GraphView,
        names: Collection[str],
        dtypes: Mapping[str, np.dtype[Any]],
        runtime: RuntimeName,
        runs: Sequence[Arrays],
    ) -> _Open | None:
        if dtypes:
            data, ports = open_to_mistakes(view, names, dtypes)
        else:
            data, ports = handing_out(view, names), frozenset()
        try:
            session = open_session(runtime, data, view.subject.directory, optimize=False)
        except RuntimeUnavailable:
            return None
        opened = _Open(view.subject, session, tuple(names), ports)
        begin = time.monotonic()
        bases = [opened.run(inputs, {}) for inputs in runs]
        seconds = (time.monotonic() - begin) / len(runs)
        return replace(opened, bases=bases, seconds=seconds) if any(bases) else None

    def run(self, inputs: Arrays, mistakes: Arrays) -> _Run | None:
        """Run the copy with mistakes planted; None if it fails."""
        host = self.subject.host
        try:
            found = self.session.run({**self.subject.fed(inputs), **mistakes})
        except RunFailed:
            return None
        own = {port.name: found[port.name] for port in self.subject.interface.outputs}
        outputs = own if host is None else host.outputs(inputs, own)
        return _Run(outputs, {name: found[name] for name in self.names})
