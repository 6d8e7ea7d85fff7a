"""Compares the outputs of two models run by run and keeps the account."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from onnx_kvtool.runtime.errors import RunFailed
from onnx_kvtool.runtime.sessions import Array, Arrays, Session
from onnx_kvtool.verification.comparison.differences import (
    Mask,
    Mismatch,
    OutputDifference,
    Tolerance,
    compare,
    kept_rows,
)
from onnx_kvtool.verification.comparison.randomness import RandomOutputs
from onnx_kvtool.verification.comparison.tolerances import Measure, Noise, Scales
from onnx_kvtool.verification.inputs.plan import InputPlan

if TYPE_CHECKING:
    from onnx_kvtool.verification.narrow import TwinRun, Twins


@dataclass(slots=True)
class OutputAccount:
    """What was seen of one output over all runs.

    Attributes:
        bit_equal: Whether every bit agreed in every run.
        max_abs_diff: Largest difference; None once shapes or dtypes differed.
        mismatch: The first element that differs by more than it may.
        where: The run that showed it.
        is_different: Whether it differed in any way by more than it may.
    """

    bit_equal: bool = True
    max_abs_diff: float | None = 0.0
    mismatch: Mismatch | None = None
    where: str = ""
    is_different: bool = False


@dataclass(frozen=True, slots=True)
class Difference:
    """The first difference that matters.

    Attributes:
        reason: What differs, and the run.
        inputs: What both models were fed.
        is_failure: Whether one model failed, so that there are no values to compare.
        is_of_twins: Whether the float32 twins differ, and were fed `inputs`.
    """

    reason: str
    inputs: Arrays
    is_failure: bool = False
    is_of_twins: bool = False


def _ends(value: Array) -> set[object]:
    """Return the least and the largest finite number of an output; two of any strings."""
    if value.dtype.kind not in "biufcV":
        return {0, 1}  # they are compared as they are
    flat = value.reshape(-1)
    if value.dtype.kind in "fcV":
        wide = flat if value.dtype.kind in "fc" else flat.astype(np.float32)
        flat = wide[np.isfinite(wide)]
    return {flat.min(), flat.max()} if flat.size else set()


@dataclass(slots=True)
class Account:
    """The result of running two models.

    Attributes:
        cases: Number of cases that were run.
        steps: Number of runs over all cases.
        outputs: What was seen of each output, by name.
        max_abs_diff: Largest difference over the outputs that need not be equal bit for bit.
        difference: The first difference that matters; None if there is none.
        noise: Why a difference above the usual tolerance does not matter; None if there is none.
        unsteady: An output that differs when the leader is run again; None if there is none.
        left_out: Number of cases that there was no time for.
        dead: Rows of padding that were not compared, over all runs.
        tolerances: The widest tolerance of each output, by name.
        random: Outputs that depend on random numbers and whose values differed.
        sampled: Random outputs that were compared over many runs.
        end: The result of a step past the end of fixed caches; None without such a step.
        lengths: Most rows of a cache or table that were in use in a run.
        rows: Rows of the largest fixed cache or table of positions; 0 if there is none.
        seen: Finite numbers of each output of the leader, by name; two are enough.
        scales: How large the values of each output were.
    """

    cases: int = 0
    steps: int = 0
    outputs: dict[str, OutputAccount] = field(default_factory=dict)
    max_abs_diff: float = 0.0
    difference: Difference | None = None
    noise: str | None = None
    unsteady: str | None = None
    left_out: int = 0
    dead: int = 0
    tolerances: dict[str, Tolerance] = field(default_factory=dict)
    random: set[str] = field(default_factory=set)
    sampled: set[str] = field(default_factory=set)
    end: str | None = None
    lengths: int = 0
    rows: int = 0
    seen: dict[str, set[object]] = field(default_factory=dict)
    scales: Scales = field(default_factory=Scales)

    @property
    def not_finite(self) -> set[str]:
        """Outputs of the leader that held no finite number in any run."""
        return {name for name, seen in self.seen.items() if not seen}

    @property
    def constant(self) -> set[str]:
        """Outputs of the leader whose elements were all one number in every run."""
        return self.silent - self.not_finite

    @property
    def silent(self) -> set[str]:
        """Outputs without two different numbers in any run."""
        return {name for name, seen in self.seen.items() if len(seen) < 2}

    def learn_from(self, led: Arrays, varying: Set[str]) -> None:
        """Note what outputs of the leader showed in a run."""
        for name in led.keys() & varying:
            if len(seen := self.seen.setdefault(name, set())) < 2:
                seen |= _ends(led[name])

    def learns_from(self, led: Arrays) -> bool:
        """Return whether an output that showed nothing so far shows something in a run."""
        return any(not self.seen[name].issuperset(_ends(led[name])) for name in self.silent)


@dataclass
class Judge:
    """Compares what the leader and the other model give.

    Attributes:
        plan: Inputs of the model that leads.
        measure: How close outputs have to be.
        noise: Measures the leader when outputs differ by more than usual.
        account: Where the findings go; a second judge may go on with that of a first.
        leader: The model that leads, to see whether it gives the same bits twice.
        names: What to call the leader and the other model.
        follower: The other model, to compare random outputs over many runs.
        is_swapped: Whether B leads; expected values are those of A in any case.
        twins: The float32 twins of models of a 16-bit type; None for others.
        dead: Returns how many rows of a run hold padding, which the sessions leave out.
    """

    plan: InputPlan
    measure: Measure
    noise: Noise
    account: Account
    leader: Session
    names: tuple[str, str]
    follower: Session
    is_swapped: bool = False
    twins: Twins | None = None
    dead: Callable[[Arrays], int] = lambda _: 0

    def __post_init__(self) -> None:
        self._is_steady = True
        sides = self.leader, self.follower
        self._random = RandomOutputs(self.measure, sides[::-1] if self.is_swapped else sides)
        self._pasts = {pair.present: pair for pair in self.plan.pairs}

    def fail(self, inputs: Arrays, error: RunFailed, where: str) -> None:
        """Note that the other model failed where the leader runs."""
        self.account.steps += 1
        reason = f"{self.names[1]} fails {where}: {error.message}"
        self._differ(Difference(reason, inputs, is_failure=True))

    def stop(self, inputs: Arrays, where: str, error: RunFailed | None) -> None:
        """Note whether the other model failed where it has to."""
        name = self.names[1]
        if error is None:
            reason = f"{name} runs {where}, where it has to fail"
            self._differ(Difference(reason, inputs, is_failure=True))
        else:
            first, *_ = error.message.splitlines()
            self.account.end = f"{name} fails {where}, as it has to: {first}"

    def compare(self, inputs: Arrays, led: Arrays, found: Arrays, where: str) -> None:
        """Compare all outputs of one run."""
        self.account.steps += 1
        self.account.dead += self.dead(inputs)
        run = None if self.twins is None else self.twins.run(inputs)
        of_a, of_b = (found, led) if self.is_swapped else (led, found)
        for name, value in led.items():
            seen = self.account.outputs.setdefault(name, OutputAccount())
            if name in self.measure.random:
                self._note(seen, self._random.compare(name, inputs, of_a, of_b), inputs, where)
                continue
            if run is not None and not self._judge_twins(name, run, seen, where):
                continue
            difference = self._difference(name, inputs, of_a[name], of_b[name], seen, run)
            if not (difference.within or seen.is_different or self._repeats(name, inputs, value)):
                self.account.unsteady = name
                continue
            self._note(seen, difference, inputs, where)
            if name not in self.measure.moved:
                apart = difference.max_abs_diff or 0.0
                self.account.max_abs_diff = max(self.account.max_abs_diff, apart)
        self.account.random |= self._random.varied
        self.account.sampled |= self._random.sampled

    def _judge_twins(self, name: str, run: TwinRun, seen: OutputAccount, where: str) -> bool:
        """Compare an output of the twins; return whether there is a point in going on with it."""
        if self.twins is None or seen.is_different or name in self.measure.moved:
            return True  # what is only moved is compared as it is, bit for bit
        found = self.twins.compare(name, run)
        if found.within:
            return True
        if not self.twins.repeats(name, run):
            self.account.unsteady = name
            return False
        seen.mismatch, seen.is_different = found.first_mismatch, True
        seen.where = f"in the float32 twins, {where}"
        self._differ(Difference(f"{found.reason} {seen.where}", run.inputs, is_of_twins=True))
        return True

    def _note(
        self, seen: OutputAccount, found: OutputDifference, inputs: Arrays, where: str
    ) -> None:
        seen.bit_equal &= found.bit_equal
        if found.max_abs_diff is None or seen.max_abs_diff is None:
            seen.max_abs_diff = None
        else:
            seen.max_abs_diff = max(seen.max_abs_diff, found.max_abs_diff)
        if found.within:
            return
        if not seen.is_different:
            seen.mismatch, seen.where, seen.is_different = found.first_mismatch, where, True
        self._differ(Difference(f"{found.reason} {where}", inputs))

    def _differ(self, difference: Difference) -> None:
        if self.account.difference is None:
            self.account.difference = difference

    def _exact(self, name: str, inputs: Arrays, led: Array) -> bool | Mask:
        """Return which elements have to agree in every bit.

        Of a cache these are the rows that the leader left as they were. The new rows may be the
        end of a computation that was rewritten too. Whole rows are looked at, since single
        elements of few bits are equal by chance.
        """
        if name in self.measure.moved:
            return True
        pair = self._pasts.get(name)
        past = None if pair is None else inputs.get(pair.past)
        return False if pair is None or past is None else kept_rows(past, led, pair.axis)

    def _difference(
        self,
        name: str,
        inputs: Arrays,
        a: Array,
        b: Array,
        seen: OutputAccount,
        run: TwinRun | None,
    ) -> OutputDifference:
        led = b if self.is_swapped else a
        exact = self._exact(name, inputs, led)
        if exact is True:
            self._hold(name, Tolerance(0.0, 0.0, "data that is moved and never rounded"))
            return compare(name, a, b, exact=True)
        if self.measure.exact and not self.measure.is_given and self._is_steady:
            found = compare(name, a, b, exact=True)
            if found.within or self._repeats(name, inputs, led, exact=True):
                self._hold(name, Tolerance(0.0, 0.0, "A and B compute the same operators"))
                return found
            self._is_steady = False
        if self.twins is not None and run is not None:
            narrow = self.twins.compare_narrow(name, inputs, a, b, exact, run)
            if narrow is not None:
                self._hold(name, self.twins.tolerances.get(name))
                return narrow
        usual = self.measure.of(a, name)
        is_given = self.measure.is_given
        tolerance = usual if is_given else self.account.scales.narrowed(name, a, usual)
        self._hold(name, tolerance)
        found = compare(name, a, b, tolerance, exact=exact)
        # Noise is measured by running the model again, which is for nothing once the output is
        # known to differ.
        if found.within or found.max_abs_diff is None or is_given or seen.is_different:
            return found
        measured = self.noise.compare(name, inputs, (a, b), tolerance, exact, led=led, most=usual)
        if measured is None:
            return found
        again, wider = measured
        self._hold(name, wider)
        if again.max_abs_diff is not None:
            self.account.noise = (
                f"output `{name}` differs by up to {again.max_abs_diff:.2g}, as "
                f"{self.names[0]} does by rounding alone when it is evaluated in another way"
            )
        return replace(again, max_abs_diff=found.max_abs_diff)

    def _hold(self, name: str, tolerance: Tolerance | None) -> None:
        """Note the tolerance of an output, unless one that is wider was needed before."""
        if tolerance is None:
            return
        before = self.account.tolerances.setdefault(name, tolerance)
        if (before.atol, before.rtol) < (tolerance.atol, tolerance.rtol):
            self.account.tolerances[name] = tolerance

    def _repeats(self, name: str, inputs: Arrays, led: Array, *, exact: bool = False) -> bool:
        """Return whether the leader gives an output again when it is run again.

        Threads of some kernels add up in no fixed order, which may change the last bits. Random
        operators have no fixed result at all.
        """
        again = self.leader.run(inputs)[name]
        exact = exact or name in self.measure.moved
        return compare(name, led, again, self.measure.of(led, name), exact=exact).within
