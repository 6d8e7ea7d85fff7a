"""Inner values of two models with equal outputs: compared, and tested with planted mistakes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from onnx_kvtool.core.reporting import Place, Unnoticed
from onnx_kvtool.runtime.errors import RunFailed, RuntimeUnavailable
from onnx_kvtool.runtime.memory import give_back
from onnx_kvtool.runtime.sessions import Array, Arrays, RuntimeName, Session, open_session
from onnx_kvtool.verification.comparison.compare import (
    EXACT,
    OutputDifference,
    Tolerance,
    bits_differ,
    compare,
    largest,
)
from onnx_kvtool.verification.comparison.rounding import Measure, Noise
from onnx_kvtool.verification.planting import (
    GraphView,
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
class Probed:
    """The result of comparing inner values of two models.

    Attributes:
        places: Number of places.
        noticed: Number of places where a mistake would have been noticed.
        unnoticed: Places where none would, and why.
        difference: The first place whose values differ though they must not; None without.
    """

    places: int = 0
    noticed: int = 0
    unnoticed: list[Unnoticed] = field(default_factory=list)
    difference: EarliestDifference | None = None


class Probes:
    """Copies of two models with places as outputs, and with planted mistakes.

    Both copies run without optimisation, one after the other, on inputs where the models
    themselves agree. They say nothing of what a runtime makes of the models when it optimises
    them, which is why the models are run as they are as well.

    Args:
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

    def __init__(
        self,
        a: GraphView,
        b: GraphView,
        places: Sequence[Place],
        measure: Measure,
        runtime: RuntimeName,
        *,
        is_binding: bool,
        lit: Collection[str] = (),
        thorough: bool = False,
    ) -> None:
        self._a, self._b = a, b
        self._places = places
        self._measure = measure
        self._runtime: RuntimeName = runtime
        self._is_binding = is_binding
        self._lit = lit
        self._thorough = thorough
        self._attempts = _ATTEMPTS
        self._noise: Noise | None = None
        self._handed: list[str] = []
        self._seen: set[_Key] = set()
        self._exact: set[_Key] = set()
        self._why: dict[_Key, str] = {}
        self._planted: dict[_Key, bool] = {}
        self._differs: set[_Key] = set()
        self._others: defaultdict[_Key, list[tuple[Arrays, Array]]] = defaultdict(list)
        self._is_hosted = (a.subject.host, b.subject.host) != (None, None)
        self._difference: EarliestDifference | None = None

    def look(self, runs: Sequence[Arrays], last: Arrays | None, seconds: float) -> Probed:
        """Compare the places in `runs`, then plant mistakes.

        Args:
            runs: Inputs where the models agree.
            last: Inputs of one more run, for places where these say nothing; None for none.
            seconds: How long the comparison took so far.
        """
        known = {
            _key(place): place
            for place in self._places
            if place.a in self._a.producers and place.b in self._b.producers
        }
        if not self._thorough:
            self._seen = {key for key in known if key[0] == key[1] and key[0] in self._lit}
            known = {key: place for key, place in known.items() if key not in self._seen}
        is_light = not runs or total_bytes(runs[0]) <= _LIGHT
        pending = list(known.values()) if is_light or self._thorough else _few_alike(known.values())
        size = _GROUP if is_light else _FEW
        for start in range(0, len(pending) if runs else 0, size):
            self._group(pending[start : start + size], runs, seconds * _SHARE)
            if self._difference is not None:
                break
            give_back()
        dark = [place for place in pending if not self._is_known(_key(place))][:size]
        if dark and last and self._difference is None:
            self._group(dark, [last], 0.0)
        if self._difference is not None:
            return Probed(len(self._places), difference=self._difference)
        return self._concluded()

    def _is_known(self, key: _Key) -> bool:
        """Return whether a mistake at a place is noticed, or its values differ anyhow."""
        return key in self._differs or self._planted.get(key, key in self._seen)

    def _group(self, group: Sequence[Place], runs: Sequence[Arrays], seconds: float) -> None:
        for place in group:
            self._why[_key(place)] = "no runtime hands out its values"
            self._planted.pop(_key(place), None)
        self._noise = None
        of_a = self._hand_out(group, runs)
        handed = [place for place in group if _key(place) in of_a]
        self._handed = list(dict.fromkeys(place.a for place in handed))
        dtypes = {place.b: of_a[_key(place)][0].dtype for place in handed}
        is_light = self._thorough or len(self._b.subject.model) <= _LIGHT_MODEL
        opened = _Open.of(self._b, dtypes, self._runtime, runs, is_open=is_light)
        if opened is None:
            return
        for place in handed:
            for inputs, value, base in zip(runs, of_a[_key(place)], opened.bases, strict=True):
                if base is not None:
                    self._compare(place, value, base.values[place.b], inputs)
                if self._difference is not None:
                    return
        more = int(seconds / max(opened.seconds, 1e-6)) if is_light else 0
        candidates = self._candidates(group, more)
        if candidates and not is_light:
            del opened
            opened = _Open.of(self._b, dtypes, self._runtime, runs, is_open=True)
        if opened is None:
            return
        for place in candidates:
            self._planted[_key(place)] = self._is_noticed(opened, handed, place, runs)

    def _is_noticed(
        self, opened: _Open, places: Sequence[Place], place: Place, runs: Sequence[Arrays]
    ) -> bool:
        return any(
            base is not None and self._notices(opened, places, place, inputs, base)
            for inputs, base in zip(runs, opened.bases, strict=True)
        )

    def _hand_out(self, group: Sequence[Place], runs: Sequence[Arrays]) -> dict[_Key, list[Array]]:
        """Return the values of places in A; those that no runtime hands out are left out."""
        if not group or not self._attempts:
            return {}
        self._attempts -= 1
        data = handing_out(self._a, dict.fromkeys(place.a for place in group))
        subject = self._a.subject
        try:
            session = open_session(self._runtime, data, subject.directory, optimize=False)
            del data
            found = [session.run(subject.fed(inputs)) for inputs in runs]
        except (RunFailed, RuntimeUnavailable):
            half = len(group) // 2
            if not half:
                return {}
            return {**self._hand_out(group[:half], runs), **self._hand_out(group[half:], runs)}
        return {_key(place): [run[place.a] for run in found] for place in group}

    def _compare(self, place: Place, a: Array, b: Array, inputs: Arrays) -> None:
        """Compare a place in one run, and see whether a mistake would have been noticed there."""
        key = _key(place)
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            self._why[key] = "the values there have other shapes or types"
            return
        found = self._compared(place, a, b)
        if not found.within and self._is_binding:
            found = self._explained(place, a, b, inputs, found)
        if not found.within:
            self._seen.discard(key)
            if key not in self._differs:
                self._why[key] = f"{found.reason}".replace("output", "value", 1)
            if self._is_binding:
                ends = (
                    replace(place.location, value=place.a),
                    self._b.location(place.b),
                )
                self._difference = EarliestDifference(*ends, found.first_mismatch, self._why[key])
            self._differs.add(key)
            self._others[key].append((inputs, a))
            return
        if key in self._seen or key in self._differs:
            return
        tolerance = self._tolerance(a, *key)
        if self._a.producers[place.a][1].op_type == "Constant" and not bits_differ(a, b).any():
            # The same in every run, with no rounding that a mistake hides in.
            self._seen.add(key)
            self._exact.add(key)
        elif is_seen(a, tolerance):
            self._seen.add(key)
        else:
            self._why[key] = _reason(a, tolerance)

    def _compared(self, place: Place, a: Array, b: Array) -> OutputDifference:
        return compare(place.a, a, b, self._tolerance(a, place.a, place.b))

    def _tolerance(self, value: Array, *names: str) -> Tolerance:
        """Return the tolerance of a value within a model.

        What is added up to a small number is as large as other elements of the value, so that the
        absolute tolerance, which is for values of the order of 1, grows with these.
        """
        if not self._measure.moved.isdisjoint(names) or self._is_constant(names[0]):
            return EXACT
        usual = self._measure.of(value, *names)
        if self._measure.is_given or not usual.atol:
            return usual
        return replace(usual, atol=usual.atol * max(largest(value), 1.0))

    def _is_constant(self, name: str) -> bool:
        return self._a.producers[name][1].op_type == "Constant"

    def _explained(
        self, place: Place, a: Array, b: Array, inputs: Arrays, found: OutputDifference
    ) -> OutputDifference:
        """Compare a place as closely as A agrees with itself evaluated in another way."""
        if self._measure.is_given or found.max_abs_diff is None:
            return found
        subject = self._a.subject
        if self._noise is None:
            data = handing_out(self._a, self._handed)
            self._noise = Noise(data, subject.directory, self._runtime)
        usual = self._tolerance(a, place.a, place.b)
        again = self._noise.compare(place.a, subject.fed(inputs), (a, b), usual)
        return again[0] if again is not None and again[0].within else found

    def _candidates(self, group: Sequence[Place], more: int) -> list[Place]:
        """Return the places where mistakes are planted.

        These are the ones where the comparison at the place alone would not notice them, and as
        many others as there is time for; of places that are alike a few, unless all are wanted.
        """
        group = [place for place in group if _key(place) not in self._exact]
        if self._thorough:
            return group
        wrong = [place for place in group if _key(place) in self._differs]
        dark = [place for place in group if _key(place) not in self._seen | self._differs]
        light = [place for place in group if _key(place) in self._seen]
        return [*wrong[:_MOST_WRONG], *_few_alike(dark), *_few_alike(light, 1)[: min(more, _MOST)]]

    def _notices(
        self, opened: _Open, places: Sequence[Place], place: Place, inputs: Arrays, base: _Run
    ) -> bool:
        """Return whether some comparison notices a mistake that is planted at a place of B.

        If A has another value there, and no host explains that, the mistake is the value of A.
        """
        if place.b not in opened.ports:
            return False
        value = base.values[place.b]
        planted = mistake(value)
        if not self._is_hosted and (others := self._others[_key(place)]):
            of_a = next((array for run, array in others if run is inputs), value)
            planted = difference(value, of_a)
        if planted is None:
            return False
        run = opened.run(inputs, {port(place.b): planted})
        if run is None:
            return True  # B fails where A runs
        for name, expected in base.outputs.items():
            if (
                name not in self._measure.random
                and not compare(
                    name,
                    expected,
                    run.outputs[name],
                    self._measure.of(expected, name),
                    exact=name in self._measure.moved,
                ).within
            ):
                return True
        return any(
            not self._compared(other, base.values[other.b], run.values[other.b]).within
            for other in places
            if _key(other) in self._seen
        )

    def _concluded(self) -> Probed:
        """Return the verdict for every place, including places covered by another one."""
        verdicts: dict[_Key, bool] = dict.fromkeys(self._seen, True)
        verdicts.update(self._planted)
        alike: defaultdict[str | None, list[bool]] = defaultdict(list)
        for place in self._places:
            if (verdict := verdicts.get(_key(place))) is not None:
                alike[place.location.op].append(verdict)
        found = Probed(len(self._places))
        for place in self._places:
            verdict = verdicts.get(_key(place))
            if verdict is False:
                location = replace(place.location, value=place.location.value or place.a)
                found.unnoticed.append(Unnoticed(location, self._why[_key(place)]))
            elif verdict or ((others := alike[place.location.op]) and all(others)):
                found.noticed += 1
        return found


DType = np.dtype[Any]

_Key = tuple[str, str]
"""The names of a place in A and in B."""

_MOST = 4
"""Places where mistakes are planted though the comparison there would notice them."""


_MOST_WRONG = 16
"""Places with different values that are looked into, of those that are looked at together."""


def _key(place: Place) -> _Key:
    return place.a, place.b


def _few_alike(places: Iterable[Place], most: int = _ALIKE) -> list[Place]:
    """Return a limited number of places of each kind."""
    counts: defaultdict[str | None, int] = defaultdict(int)
    found = []
    for place in places:
        counts[place.location.op] += 1
        if counts[place.location.op] <= most:
            found.append(place)
    return found


def _reason(value: Array, tolerance: Tolerance) -> str:
    """Return why a mistake in a value would go unnoticed."""
    if not value.size:
        return "it has no element in these runs"
    if value.dtype.kind in "fcV" and np.isnan(value.astype(np.complex128)).all():
        return "none of its values is a number"
    return f"its values lie below the tolerance of {tolerance.atol:.2g}"


@dataclass(frozen=True, slots=True)
class _Run:
    """The outputs of B in one run.

    Attributes:
        outputs: Its outputs, as its host reads them.
        values: Its values at the places.
    """

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
        dtypes: Mapping[str, DType],
        runtime: RuntimeName,
        runs: Sequence[Arrays],
        *,
        is_open: bool,
    ) -> _Open | None:
        """Return the copy after it was run; None if no runtime runs it.

        Args:
            view: B.
            dtypes: The values, and their dtypes as A has them.
            runtime: What runs it.
            runs: Inputs that B runs on.
            is_open: Whether mistakes can be planted; else it only hands out values.
        """
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
        dtypes: Mapping[str, DType],
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
