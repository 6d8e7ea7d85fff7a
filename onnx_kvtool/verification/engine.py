"""The engine that compares two models by running them."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Literal

import onnx

from onnx_kvtool.core.machine import Budget
from onnx_kvtool.core.reporting import Covered, NamedTolerance
from onnx_kvtool.core.words import binary_bytes, counted
from onnx_kvtool.runtime.memory import give_back
from onnx_kvtool.runtime.sessions import RUNTIMES, Arrays, RuntimeName, Session
from onnx_kvtool.verification.comparison.judge import Account, Difference, Judge, OutputAccount
from onnx_kvtool.verification.comparison.movement import Emptiness
from onnx_kvtool.verification.comparison.randomness import RUNS
from onnx_kvtool.verification.comparison.rounding import Measure, Noise, widened_inputs
from onnx_kvtool.verification.comparison.side_by_side import Script, run_side_by_side
from onnx_kvtool.verification.disagreement import Disagreement, Verdict, Watch, earliest_difference
from onnx_kvtool.verification.growing.grown import (
    Grown,
    dead_count,
    grown,
    padding_note,
    without_padding,
)
from onnx_kvtool.verification.growing.pair import wrong_order
from onnx_kvtool.verification.inputs.cases import CASES, Case, cases_of
from onnx_kvtool.verification.inputs.interface import interface_difference
from onnx_kvtool.verification.inputs.plan import InputPlan
from onnx_kvtool.verification.narrow import NarrowPair, rounding_note
from onnx_kvtool.verification.planting import GraphView, Recorder, places_between
from onnx_kvtool.verification.probes import Probed, Probes
from onnx_kvtool.verification.report import (
    STEPS,
    EarliestDifference,
    FirstMismatch,
    OutputReport,
    Settings,
    VerifyReport,
)
from onnx_kvtool.verification.subject import Subject, reasons_of, refusal, rejected_of
from onnx_kvtool.verification.weights import Likeness, likeness, tensor_difference


def compare_models(a: Subject, b: Subject, settings: Settings) -> VerifyReport:
    """Run `a` and `b` on the same inputs and compare every output.

    Both run over several cases that differ in sizes and starts, each a first run and then decode
    steps in which the presents are fed back to both. What has to agree bit for bit: outputs that
    only move data, the rows of caches that a run does not write, and everything if the models are
    the same but for names and weights. The rest has to agree within a tolerance that is justified
    by the types and, where that is not enough, by how much a model differs from itself when it is
    evaluated in another way; or within the tolerance that the settings give. Models that compute
    in float16 or bfloat16 are judged twice: their float32 twins like float32 models, and they
    themselves by how far A lies from its own twin (`comparison.rounding`).

    Returns:
        `equal`; `different` with the first difference (names, order, types or ranks of inputs and
        outputs, a B that breaks the specification or fails where A runs, a value, or a weight of
        models that are otherwise the same); or `unrunnable` with the reason.
    """
    if settings.unpadded:
        a, b = a.without_padding(settings.unpadded), b.without_padding(settings.unpadded)
    if settings.widened is not None:
        b = b.narrowed(a.interface, settings.widened)
        a = a.nearest(settings.widened)
    pair = grown(a, b, settings)
    if pair is not None:
        if (least := pair.least(settings)) > settings.budget.memory:
            return _too_large(a, b, least, settings)
        a, b = pair.a, pair.b
        settings = replace(settings, dims=pair.pair.dims)
    elif (order := wrong_order(a, b, settings.dims)) is not None:
        return _without_run(a, "unrunnable", order, settings)
    elif (difference := interface_difference(a.interface, b.interface)) is not None:
        return _without_run(a, "different", difference, settings)
    else:
        a, b = without_padding(a, b)
    reasons: list[str] = []
    failed: VerifyReport | None = None
    a_fails = False
    for runtime in RUNTIMES if settings.runtime == "auto" else (settings.runtime,):
        settings.progress("verifying, loading both models")
        refusals = [refusal(subject, runtime) for subject in (a, b)]
        if (rejected := rejected_of(refusals, settings)) is not None:
            loaded = a if refusals[0] is None else b
            report = _without_run(a, "different", rejected.message, settings)
            return replace(report, runtime=loaded.session(runtime).runtime)
        if found := reasons_of((a, b), refusals):
            reasons += found
            continue
        comparison = _Comparison(a, b, settings, runtime, pair)
        report = comparison.report()
        if comparison.does_a_fail:
            # Perhaps a kernel is to blame, and another runtime has a better one.
            failed = failed or report
            reasons.append(report.detail or "")
            continue
        if report.status != "unrunnable":
            return replace(report, notes=(*reasons, *report.notes))
        reasons.append(report.detail or "")
        a_fails |= report.a_fails
    if failed is not None:
        return failed
    report = _without_run(a, "unrunnable", "; ".join(dict.fromkeys(reasons)), settings)
    return replace(report, a_fails=a_fails)


def _without_run(
    a: Subject, status: Literal["different", "unrunnable"], detail: str, settings: Settings
) -> VerifyReport:
    outputs = tuple(OutputReport(port.name) for port in a.interface.outputs)
    return VerifyReport(status, seed=settings.seed, outputs=outputs, detail=detail)


def _too_large(a: Subject, b: Subject, least: int, settings: Settings) -> VerifyReport:
    allowed = binary_bytes(settings.budget.memory)
    reason = f"a run of {b.name} would take {binary_bytes(least)} of memory, more than {allowed}"
    return replace(_without_run(a, "unrunnable", reason, settings), needed=least)


_LARGE = 8 << 20
"""Most bytes of two models that stay loaded while copies of them are."""


class _Comparison:
    """One comparison in one runtime that loads both models."""

    def __init__(
        self,
        a: Subject,
        b: Subject,
        settings: Settings,
        runtime: RuntimeName,
        pair: Grown | None = None,
    ) -> None:
        self._grown = pair
        self._a = a
        self._b = b
        self._runtime = runtime
        self._account = Account()
        self._begin = time.monotonic()
        self._recorder: Recorder | None = None
        self._likeness: Likeness | None = likeness(a, b) if settings.widened is None else None
        self._disagreement = Disagreement(
            a, b, self._likeness, with_attributes=not settings.is_a_right
        )
        self._settings = settings
        self._watched: tuple[Session, Script, Subject] | None = None
        self._measure = Measure(
            moved=a.arithmetic.moved,
            paths=(a.arithmetic, b.arithmetic),
            exact=self._likeness is not None and not self._disagreement.is_permuted,
            rtol=settings.rtol,
            atol=settings.atol,
            drawn=(a.random, b.random),
        )
        self._pair = (
            NarrowPair(a, b, settings, runtime)
            if NarrowPair.is_one(a, b, self._measure, settings)
            else None
        )
        self._twins = None if self._pair is None else self._pair.twins(self._measure)

    def report(self) -> VerifyReport:
        """Run both models and return the comparison."""
        b_leads = self._a.host is self._b.host and _knows_more(self._b, self._a)
        leader, follower = (self._b, self._a) if b_leads else (self._a, self._b)
        if leader.plan is None:
            reason = leader.undrawable or "no inputs can be drawn"
            return _without_run(self._a, "unrunnable", reason, self._settings)
        failure = self._run(leader, follower, leader.plan, self._cases())
        name, a_fails = leader.name, not b_leads
        if failure is not None and follower.plan is not None and self._may_run_first(follower):
            # Perhaps it is the other that runs; a B that then fails is different.
            other = self._run(follower, leader, follower.plan, self._cases())
            if other is None or self._settings.is_a_right:
                name, failure = follower.name, other
            a_fails = True
        if failure is not None:
            reason = f"{name} does not run on drawn inputs: {failure}"
            report = _without_run(self._a, "unrunnable", reason, self._settings)
            return replace(report, a_fails=a_fails)
        if follower.plan is not None and self._may_ask_more(follower.plan, leader.plan):
            self._run(follower, leader, follower.plan, self._cases())
        if (
            leader is self._b
            and self._a.host is self._b.host
            and self._account.difference is None
            and not self._settings.is_in_range
            and (below := leader.plan.below_zero()) is not None
        ):
            # A scatter counts starts below zero from the end, which only A shows.
            self._run(self._a, self._b, below, CASES[:1])
        self._run_corners()
        return self._judged()

    def _run_corners(self) -> None:
        """Run inputs that separate different ways to compute, if nothing else differed.

        Each model leads once: inputs that it fails on say nothing.
        """
        plans = self._a.plan, self._b.plan
        if not self._may_lead_in_turn or plans[0] is None or plans[1] is None:
            return
        cases = plans[0].corners(plans[1])
        for leader, follower, plan in zip(
            (self._a, self._b), (self._b, self._a), plans, strict=True
        ):
            if cases and plan is not None and self._account.difference is None:
                self._run(leader, follower, plan, cases)

    def _cases(self) -> tuple[Case, ...]:
        if self._grown is not None:
            return self._grown.cases(self._settings)
        cases = CASES if self._settings.cases is None else cases_of(self._settings.cases)
        if self._a.plan is None or not self._a.plan.is_counted:
            return cases
        return tuple(replace(case, padding="right") for case in cases)

    def _may_run_first(self, follower: Subject) -> bool:
        """Return whether the follower may lead if the leader runs no case; A always may."""
        return self._may_lead_in_turn or (follower is self._a and self._a.host is self._b.host)

    @property
    def _may_lead_in_turn(self) -> bool:
        """Whether inputs may as well suit the other model, and A is not right by definition."""
        return not self._settings.is_a_right and self._a.host is self._b.host

    def _run(
        self, leader: Subject, follower: Subject, plan: InputPlan, cases: tuple[Case, ...]
    ) -> str | None:
        settings = self._settings
        directions = self._disagreement.directions
        plan = plan.compared(follower.plan, directions).counting(settings.positions)
        session = leader.session(self._runtime)
        judge = Judge(
            plan,
            self._measure,
            Noise(leader.model, leader.directory, self._runtime, leader.hosted),
            self._account,
            session,
            follower.session(self._runtime),
            names=(leader.name, follower.name),
            is_swapped=leader is self._b,
            twins=self._twins,
            dead=self._dead,
        )
        steps = STEPS if settings.steps is None else settings.steps
        script = Script(
            plan,
            cases,
            settings.seed,
            steps,
            settings.dims,
            settings.progress,
            self._budget(),
            Emptiness(leader.model, leader.directory, self._runtime),
            None if self._grown is None else self._grown.limit,
            {} if self._grown is not None else _shapes(follower),
            lambda: _table(leader.model, None if self._grown is None else self._grown.limit),
        )
        following = Recorder(
            follower.session(self._runtime),
            settings.budget.memory,
            self._measure,
            lambda inputs: not self._dead(inputs),
            is_every=settings.thorough,
        )
        if self._recorder is None or not self._recorder.runs:
            self._recorder = following
        failure = run_side_by_side(session, following, script, judge)
        if failure is None and self._watched is None:
            self._watched = session, script, leader
        return failure

    def _shown(self, changed: Subject) -> Watch:
        """Run the leader beside a copy of it with a part of the other model."""
        assert self._watched is not None
        session, script, leader = self._watched
        noise = Noise(leader.model, leader.directory, self._runtime, leader.hosted)
        names = leader.name, leader.name
        watch = Watch(script.plan, self._measure, noise, Account(), session, names=names)
        run_side_by_side(session, changed.session(self._runtime), script, watch)
        return watch

    def _budget(self) -> Budget:
        """Return the budget of the runs; cases that the user asked for all run."""
        budget = self._settings.budget
        return budget if self._settings.cases is None else replace(budget, seconds=math.inf)

    def _may_ask_more(self, following: InputPlan, leading: InputPlan) -> bool:
        """Return whether the follower may run on inputs that the plan of the leader never draws.

        One that takes a linear cache for circular, or writes along another axis, shows it only on
        inputs that suit itself.
        """
        if not self._may_lead_in_turn or self._account.difference is not None:
            return False
        if not following.writes or not leading.writes:
            return False
        return following.writes != leading.writes or following.pairs != leading.pairs

    def _dead(self, inputs: Arrays) -> int:
        """Return the number of padding rows that a run skips."""
        plan = self._a.plan
        if plan is None or (self._grown is None and not plan.is_counted):
            return 0
        return dead_count(plan, inputs)

    def _judged(self) -> VerifyReport:
        account, runtime = self._account, self._a.session(self._runtime).runtime
        notes = [account.noise] if account.noise else []
        if self._pair is not None:
            notes += self._pair.notes()
        if self._grown is not None:
            notes += self._grown.notes(account)
        elif account.dead and self._a.plan is not None:
            notes.append(padding_note(self._a.plan, account))
        if account.random:
            names = ", ".join(f"`{name}`" for name in sorted(account.random))
            notes.append(f"random, and compared by {_means(account)} alone: {names}")
        notes += [
            f"run without padding: `{name}` is taken to be 1 throughout"
            for name in sorted(self._settings.unpadded)
        ]
        if account.left_out:
            left = counted(account.left_out, "case")
            notes.append(f"{left} skipped after {self._settings.budget.seconds:g} s")
        detail = account.difference.reason if account.difference else None
        if detail is None and account.unsteady is not None:
            reason = (
                f"output `{account.unsteady}` changes when a model is run again on the same inputs"
            )
            return _without_run(self._a, "unrunnable", reason, self._settings)
        weight = self._disagreement.weight
        weight = weight or tensor_difference(self._a, self._b, self._likeness)
        verdict = Verdict()
        if weight is not None and detail is None and self._is_strict:
            detail = f"{weight}; no output shows it in these runs"
        elif detail is None and self._watched is not None and not self._measure.is_given:
            verdict = self._disagreement.judge(
                self._shown,
                leads_b=self._watched[-1] is self._b,
                seconds=self._settings.budget.seconds,
            )
            detail = verdict.detail
        if weight is not None and (detail is None or weight not in detail):
            notes.append(weight)
        if account.difference and self._is_strict and not account.difference.is_failure:
            notes.append("A and B are the same but for names and weights: every bit has to agree")
        earliest = None
        probed = None if detail is not None else self._probed()
        if probed is not None and probed.difference is not None:
            earliest = probed.difference
            detail = f"{earliest.reason} where it was rewritten; no output shows it in these runs"
        if account.difference is not None and not account.difference.is_failure:
            self._settings.progress("looking for the first value that differs")
            earliest, why = self._earliest(account.difference)
            notes += [why] if why else []
            if earliest is not None and self._dead(account.difference.inputs):
                notes.append("the earliest value may differ in rows of padding alone")
        if detail is None and (rounding := self._rounding()) is not None:
            notes.append(rounding)
        if detail is None and self._runtime == "reference":
            from onnx_kvtool.runtime.kernels.contrib import CONTRIB_KERNELS

            # Those without a kernel run as their standard form.
            notes += [
                f"the reference runs `{op}` as the standard form that kvtool writes of it, so that "
                "these runs cannot notice a mistake in the form"
                for _, op in sorted((self._a.contrib ^ self._b.contrib) - CONTRIB_KERNELS.keys())
            ]
        return VerifyReport(
            status="equal" if detail is None else "different",
            runtime=runtime,
            cases=account.cases,
            steps=account.steps,
            seed=self._settings.seed,
            outputs=tuple(
                _output(port.name, account.outputs.get(port.name))
                for port in self._a.interface.outputs
            ),
            max_abs_diff=account.max_abs_diff,
            earliest=earliest,
            twins=None if self._pair is None else self._pair.report(),
            detail=detail,
            notes=tuple(notes),
            covered=self._covered(
                probed or Probed(), verdict, is_same=self._likeness is not None and weight is None
            ),
        )

    def _probed(self) -> Probed | None:
        """Compare the models where one was rewritten, and plant mistakes there.

        Returns:
            None for models that do the same operations, where nothing was rewritten.
        """
        if self._likeness is not None or self._recorder is None or not self._recorder.runs:
            return None
        settings, runs, runtime = self._settings, self._recorder.runs, self._runtime
        subjects, last = (self._a, self._b), self._recorder.last
        if self._pair is not None and self._pair.account.runs:
            # The types of the models themselves round too much for a place to be compared.
            subjects, runtime = self._pair.subjects, self._pair.runtime
            runs = [widened_inputs(run) for run in runs]
            last = None if last is None else widened_inputs(last)
        a, b = (GraphView.of(subject) for subject in subjects)
        places = places_between(a, b, settings)
        if not places:
            return None
        settings.progress("verifying, where the model was rewritten")
        if sum(len(subject.model) for subject in subjects) > _LARGE:
            self._unload(*subjects)
        is_binding = settings.is_a_right and self._a.host is self._b.host is None
        probes = Probes(
            a,
            b,
            places,
            self._measure,
            runtime,
            is_binding=is_binding and not settings.unpadded,
            lit=self._recorder.lit,
            thorough=settings.thorough,
        )
        return probes.look(runs, last, time.monotonic() - self._begin)

    def _unload(self, *twins: Subject) -> None:
        """Release both models and their twins, to free memory for copies."""
        self._watched = self._twins = None
        for subject in (self._a, self._b, *twins):
            subject.unload()
        if self._recorder is not None:
            self._recorder.let_go()
        give_back(at_once=True)

    def _rounding(self) -> str | None:
        """Return the note on products that the comparison computes more exactly than usual."""
        runs = [] if self._recorder is None else self._recorder.runs
        if not runs:
            return None
        found = self._account.max_abs_diff
        return rounding_note(self._a, self._b, runs[0], self._runtime, found)

    def _covered(self, probed: Probed, verdict: Verdict, *, is_same: bool) -> Covered:
        """Return what the comparison covered.

        Args:
            probed: What was seen within the models.
            verdict: What was seen of what they say differently.
            is_same: Whether they are one model but for names, so that no run has to show anything.
        """
        account = self._account
        coarse = [] if self._pair is None else self._pair.unnoticed()
        unnoticed = *verdict.unnoticed, *coarse
        found = Covered(
            places=probed.places + verdict.noticed + len(unnoticed),
            noticed=probed.noticed + verdict.noticed,
            unnoticed=(*unnoticed, *probed.unnoticed),
            unproven=tuple(sorted(account.random)),
            tolerance={
                name: NamedTolerance(t.rtol, t.atol, t.because)
                for name, t in account.tolerances.items()
            },
        )
        if is_same:
            return found
        return replace(
            found,
            lengths=account.lengths if account.rows else None,
            rows=account.rows or None,
            not_finite=tuple(sorted(account.not_finite)),
            constant=tuple(sorted(account.constant)),
        )

    def _earliest(self, found: Difference) -> tuple[EarliestDifference | None, str | None]:
        subjects, measure, runtime = (self._a, self._b), self._measure, self._runtime
        if self._settings.widened is not None and not found.is_of_twins:
            return None, None  # what lies in between has other types
        if found.is_of_twins and self._pair is not None and self._twins is not None:
            subjects, runtime = self._pair.subjects, self._pair.runtime
            measure = self._twins.measure
        return earliest_difference(*subjects, found.inputs, measure, runtime, self._likeness)

    @property
    def does_a_fail(self) -> bool:
        """Whether the difference is that A fails and B runs."""
        found = self._account.difference
        return (
            found is not None
            and found.is_failure
            and found.reason.startswith(f"{self._a.name} fails ")
        )

    @property
    def _is_strict(self) -> bool:
        """Whether a weight that differs is a difference of its own."""
        return self._measure.exact and not self._measure.is_given


def _output(name: str, seen: OutputAccount | None) -> OutputReport:
    if seen is None:
        return OutputReport(name)
    mismatch = None if seen.mismatch is None else FirstMismatch(seen.mismatch, seen.where)
    return OutputReport(name, seen.bit_equal, seen.max_abs_diff, mismatch)


def _means(account: Account) -> str:
    if account.random <= account.sampled:
        return f"the means over {RUNS} runs"
    return "type and shape"


def _knows_more(one: Subject, other: Subject) -> bool:
    """Return whether only the graph of `one` shows how caches are written.

    A TensorScatter tells sequence axis, mode and starts, which the scatter that it was lowered to
    no longer shows.
    """
    if other.plan is None or one.plan is None:
        return one.plan is not None
    return bool(one.plan.writes) and not other.plan.writes


def _shapes(subject: Subject) -> dict[str, tuple[int | str | None, ...]]:
    return {port.name: port.shape for port in subject.interface.inputs if port.shape is not None}


def _table(model: bytes, rows: int | None) -> str | None:
    """Return a stored table of so many rows that no token ids are looked up in."""
    graph = onnx.ModelProto.FromString(model).graph
    given = {value.name for value in graph.input if "position" not in value.name}
    readers = [node for node in graph.node if node.op_type in _LOOKS_UP]
    read = {
        name for node in readers if not given.intersection(node.input[1:2]) for name in node.input
    }
    tables = (t.name for t in graph.initializer if t.name in read and rows in t.dims[:-1])
    return next(tables, None)


_LOOKS_UP = frozenset({"Gather", "GroupQueryAttention", "RotaryEmbedding", "Slice"})
