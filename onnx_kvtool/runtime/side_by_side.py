"""Two models run on the same inputs, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from onnx_kvtool.runtime.cases import CASES, Case
from onnx_kvtool.runtime.compare import (
    Mask,
    OutputDifference,
    Tolerance,
    bits_differ,
    compare,
    tolerance_of,
)
from onnx_kvtool.runtime.drawing import draw
from onnx_kvtool.runtime.errors import CannotDraw, RunFailed
from onnx_kvtool.runtime.noise import Noise
from onnx_kvtool.runtime.plan import InputPlan
from onnx_kvtool.runtime.sessions import Array, Arrays, Session
from onnx_kvtool.runtime.stepping import advance
from onnx_kvtool.runtime.symbols import attempts

__all__ = ["Outcome", "Subject", "kept_rows", "run_side_by_side"]


@dataclass(frozen=True, slots=True)
class Subject:
    """The source model, as far as a comparison has to know it.

    Attributes:
        plan: Its inputs.
        moved: Outputs that any right evaluation gives with the same bits.
        precision: The tolerance of the coarsest type it computes in.
    """

    plan: InputPlan
    moved: frozenset[str]
    precision: Tolerance


@dataclass(slots=True)
class Outcome:
    """What came of running two models.

    Attributes:
        cases: Number of cases that the source ran.
        steps: Number of runs over all cases.
        max_abs_diff: Largest difference over the outputs that need not be equal bit for bit.
        unequal: Outputs that differed in a bit in some run.
        difference: The first difference that matters; None if there is none.
        noise: Why a difference above the usual tolerance does not matter; None if there is none.
        failure: Why the source ran no case; None if it ran one.
    """

    cases: int = 0
    steps: int = 0
    max_abs_diff: float = 0.0
    unequal: set[str] = field(default_factory=set)
    difference: str | None = None
    noise: str | None = None
    failure: str | None = None


def run_side_by_side(
    source: Session,
    result: Session,
    subject: Subject,
    noise: Noise,
    *,
    seed: int,
    steps: int,
    dims: Mapping[str, int],
) -> Outcome:
    """Run both models on the same inputs over all cases, until a difference is found.

    In every step both are fed the presents of the source, so that rounding does not add up over
    the steps to what looks like a fault.

    Args:
        source: The model that is right.
        result: The model that is judged.
        subject: What is known of the source.
        noise: Measures the source when outputs differ by more than usual.
        seed: Seed of the first case; each case has its own.
        steps: Decode steps after the first run of each case, as far as the caches have room.
        dims: Sizes that the user has bound.
    """
    judge = _Judge(subject, noise)
    outcome = judge.outcome
    for number, case in enumerate(CASES):
        start = _first_run(source, subject.plan, case, seed + number, dims, outcome)
        if start is None:
            continue
        outcome.cases += 1
        inputs, expected = start
        for step in range(steps + 1):
            outcome.steps += 1
            where = f"in {case.name}" + (f", decode step {step}" if step else "")
            try:
                actual = result.run(inputs)
            except RunFailed as error:
                outcome.difference = f"the result fails {where}: {error.message}"
                outcome.unequal.update(expected)
                return outcome
            if not judge.agree(inputs, expected, actual, where):
                return outcome
            following = advance(
                subject.plan, inputs, expected, seed=seed + number + 1000 * (step + 1), dims=dims
            )
            if following is None:
                break
            try:
                inputs, expected = following, source.run(following)
            except RunFailed:
                break  # the caches go round in another way than was guessed; one run stands
    return outcome


def _first_run(
    source: Session,
    plan: InputPlan,
    case: Case,
    seed: int,
    dims: Mapping[str, int],
    outcome: Outcome,
) -> tuple[Arrays, Arrays] | None:
    """Return inputs of `case` on which the source runs, and its outputs; None if it does not."""
    failures: list[str] = []
    for attempt, sizes in attempts(plan, case, dims):
        run = _try(source, plan, attempt, seed, sizes, failures)
        if run is not None:
            return run
    # The likeliest reading has the most telling message.
    outcome.failure = outcome.failure or failures[0]
    return None


def _try(
    source: Session,
    plan: InputPlan,
    case: Case,
    seed: int,
    sizes: Mapping[str, int],
    failures: list[str],
) -> tuple[Arrays, Arrays] | None:
    try:
        inputs = draw(plan, case, seed, sizes)
        return inputs, source.run(inputs)
    except (CannotDraw, RunFailed) as error:
        failures.append(error.message)
        return None


class _Judge:
    """Compares outputs run by run and keeps the account."""

    def __init__(self, subject: Subject, noise: Noise) -> None:
        self.outcome = Outcome()
        self._subject = subject
        self._noise = noise
        self._pasts = {pair.present: pair for pair in subject.plan.pairs}

    def agree(self, inputs: Arrays, expected: Arrays, actual: Arrays, where: str) -> bool:
        """Return whether all outputs of one run agree as far as they must."""
        for name, value in expected.items():
            found = self._compare(name, inputs, value, actual[name])
            if not found.bit_equal:
                self.outcome.unequal.add(name)
            if name not in self._subject.moved and found.max_abs_diff is not None:
                self.outcome.max_abs_diff = max(self.outcome.max_abs_diff, found.max_abs_diff)
            if not found.within and self.outcome.difference is None:
                self.outcome.difference = f"{found.reason} {where}"
        return self.outcome.difference is None

    def _compare(
        self, name: str, inputs: Arrays, expected: Array, actual: Array
    ) -> OutputDifference:
        if name in self._subject.moved:
            return compare(name, expected, actual, exact=True)
        exact = self._kept(name, inputs, expected)
        usual = tolerance_of(expected.dtype)
        if usual.atol:  # a type that rounding can reach
            coarse = self._subject.precision
            usual = Tolerance(max(usual.rtol, coarse.rtol), max(usual.atol, coarse.atol))
        found = compare(name, expected, actual, exact=exact, rtol=usual.rtol, atol=usual.atol)
        if found.within or found.max_abs_diff is None:
            return found
        wider = self._noise.tolerance(name, inputs, expected, usual)
        if wider is None:
            return found
        again = compare(name, expected, actual, exact=exact, rtol=wider.rtol, atol=wider.atol)
        if again.within and again.max_abs_diff is not None:
            self.outcome.noise = (
                f"output `{name}` differs by up to {again.max_abs_diff:.2g}, as the source does "
                f"by rounding alone when it is evaluated in another way"
            )
        return again if again.within else found

    def _kept(self, name: str, inputs: Arrays, present: Array) -> bool | Mask:
        """Return which elements of a cache the source left as they were; False for no cache.

        These must be the same bits in the result. The new rows may be the end of a computation
        that was rewritten too. Whole rows are looked at, since single elements of few bits are
        equal by chance.
        """
        pair = self._pasts.get(name)
        past = None if pair is None else inputs.get(pair.past)
        if pair is None or past is None:
            return False
        return kept_rows(past, present, pair.axis)


def kept_rows(past: Array, present: Array, axis: int | None) -> bool | Mask:
    """Return which elements of `present` belong to rows that are those of `past`, bit for bit.

    Args:
        past: A cache.
        present: The same cache later; it may have grown.
        axis: The sequence axis; a row is everything at one batch index and one index of it. None
            takes what lies along the last axis for a row.

    Returns:
        An array of the shape of `present`; False if the two do not fit each other.
    """
    if past.dtype != present.dtype or past.ndim != present.ndim or past.ndim == 0:
        return False
    if any(old > new for old, new in zip(past.shape, present.shape, strict=True)):
        return False
    region = tuple(slice(size) for size in past.shape)
    changed = bits_differ(past, present[region])
    outside = {past.ndim - 1} if axis is None else set(range(past.ndim)) - {0, axis}
    kept = np.zeros(present.shape, np.bool_)
    kept[region] = ~changed.any(axis=tuple(sorted(outside)), keepdims=True)
    return kept
