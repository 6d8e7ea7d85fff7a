"""The engine that compares two models by running them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import onnx

from onnx_kvtool.core.reporting import Covered, NamedTolerance
from onnx_kvtool.core.words import binary_bytes, counted
from onnx_kvtool.runtime.errors import ModelRejected
from onnx_kvtool.runtime.memory import give_back
from onnx_kvtool.runtime.sessions import RUNTIMES, Arrays, RuntimeName
from onnx_kvtool.verification.comparison.judge import Account, Difference, Judge
from onnx_kvtool.verification.comparison.randomness import RUNS
from onnx_kvtool.verification.comparison.rounded_values import Emptiness
from onnx_kvtool.verification.comparison.side_by_side import Script, run_side_by_side
from onnx_kvtool.verification.comparison.tolerances import Measure
from onnx_kvtool.verification.disagreement import Disagreement, Watch, earliest_difference
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
from onnx_kvtool.verification.narrow import Twins, rounding_note, widened_inputs
from onnx_kvtool.verification.planting import GraphView, Recorder, places_between
from onnx_kvtool.verification.probes import Probes
from onnx_kvtool.verification.report import (
    STEPS,
    EarliestDifference,
    FirstMismatch,
    OutputReport,
    Settings,
    VerifyReport,
)
from onnx_kvtool.verification.subject import Subject, nearest_host
from onnx_kvtool.verification.weights import likeness, tensor_difference


def compare_models(a: Subject, b: Subject, settings: Settings) -> VerifyReport:
    """Run `a` and `b` on the same inputs and compare every output.

    Both run over several cases that differ in sizes and starts. Each case is a first run and then
    decode steps, which feed the presents back to both. What has to agree bit for bit: outputs that
    only move data, the rows of caches that a run does not write, and everything if the models are
    the same but for names and weights. The rest has to agree within the tolerance of the settings,
    or else within one that the types justify. Where that is not enough, it follows from how much a
    model differs from itself when it is evaluated in another way. Models that compute in float16 or
    bfloat16 are judged twice: their float32 twins like float32 models, and they themselves by how
    far A lies from its own twin (`comparison.rounding`).

    Returns:
        `equal`; `different` with the first difference (names, order, types or ranks of inputs and
        outputs, a B that breaks the specification or fails where A runs, a value, or a weight of
        models that are otherwise the same); or `unrunnable` with the reason.
    """
    if settings.unpadded:
        a, b = a.without_padding(settings.unpadded), b.without_padding(settings.unpadded)
    if settings.widened is not None:
        b = b.narrowed(a.interface, settings.widened)
        a = a.with_host(nearest_host(settings.widened.numpy()))
    pair = grown(a, b, settings)
    if pair is not None:
        if (least := pair.least(settings)) > settings.budget.memory:
            allowed = binary_bytes(settings.budget.memory)
            needed = f"a run of {b.name} would take {binary_bytes(least)} of memory"
            report = _without_run(a, "unrunnable", f"{needed}, more than {allowed}", settings)
            return replace(report, needed=least)
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
        refusals = [(s, error) for s in (a, b) if (error := s.refusal(runtime)) is not None]
        if len(refusals) == 1 and isinstance(error := refusals[0][1], ModelRejected):
            loaded = b if refusals[0][0] is a else a
            if loaded is a or not settings.is_a_right:
                report = _without_run(a, "different", error.message, settings)
                return replace(report, runtime=loaded.session(runtime).runtime)
        if refusals:
            messages = [error.message for _, error in refusals]
            if messages[1:] != messages[:1]:  # a message that both share names no model
                messages = [f"{subject.name}: {error.message}" for subject, error in refusals]
            reasons += dict.fromkeys(messages)
            continue
        comparison = _Comparison(a, b, settings, runtime, pair)
        report = comparison.report()
        if comparison.does_a_fail:
            # Perhaps a kernel is to blame, and another runtime has a better one.
            failed = failed or report
        elif report.status != "unrunnable":
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


_LARGE = 8 << 20
"""Most bytes of two models that stay loaded while copies of them are."""


@dataclass
class _Comparison:
    """One comparison in one runtime that loads both models."""

    a: Subject
    b: Subject
    settings: Settings
    runtime: RuntimeName
    grown: Grown | None

    def __post_init__(self) -> None:
        a, b, settings = self.a, self.b, self.settings
        self._has_one_host = a.host is b.host
        self._account = Account()
        self._begin = time.monotonic()
        self._recorder: Recorder | None = None
        self._likeness = likeness(a, b) if settings.widened is None else None
        self._disagreement = Disagreement(
            a, b, self._likeness, with_attributes=not settings.is_a_right
        )
        self._watched: tuple[Script, Subject] | None = None
        self._measure = Measure(
            moved=a.arithmetic.moved,
            paths=(a.arithmetic, b.arithmetic),
            exact=self._likeness is not None and not self._disagreement.is_permuted,
            rtol=settings.rtol,
            atol=settings.atol,
            drawn=(a.random, b.random),
        )
        self._twins = Twins.of(a, b, settings, self.runtime, self._measure)

    def report(self) -> VerifyReport:
        """Run both models and return the comparison."""
        a, b, settings = self.a, self.b, self.settings
        b_leads = self._has_one_host and _knows_more(b, a)
        leader, follower = (b, a) if b_leads else (a, b)
        if leader.plan is None:
            reason = leader.undrawable or "no inputs can be drawn"
            return _without_run(a, "unrunnable", reason, settings)
        failure = self._run(leader, follower, leader.plan)
        name, a_fails = leader.name, not b_leads
        may_lead_in_turn = self._has_one_host and not settings.is_a_right
        # A may always lead.
        may_run_first = may_lead_in_turn or b_leads
        if failure is not None and follower.plan is not None and may_run_first:
            # Perhaps it is the other that runs; a B that then fails is different.
            other = self._run(follower, leader, follower.plan)
            if other is None or settings.is_a_right:
                name, failure = follower.name, other
            a_fails = True
        if failure is not None:
            reason = f"{name} does not run on drawn inputs: {failure}"
            return replace(_without_run(a, "unrunnable", reason, settings), a_fails=a_fails)
        if may_lead_in_turn and follower.plan is not None:
            led, writes = leader.plan, follower.plan.writes
            is_other = writes != led.writes or follower.plan.pairs != led.pairs
            if is_other and writes and led.writes and self._account.difference is None:
                # One that takes a linear cache for circular, or writes along another axis, shows
                # it only on inputs that suit itself.
                self._run(follower, leader, follower.plan)
        # A scatter counts starts below zero from the end, which only A shows.
        below = leader.plan.below_zero() if b_leads and not settings.is_in_range else None
        if below is not None and self._account.difference is None:
            self._run(a, b, below, CASES[:1])
        if may_lead_in_turn and a.plan is not None and b.plan is not None:
            # Inputs that separate different ways to compute; what a leader fails on says nothing.
            cases = a.plan.corners(b.plan)
            for one, other_one, plan in ((a, b, a.plan), (b, a, b.plan)):
                if cases and self._account.difference is None:
                    self._run(one, other_one, plan, cases)
        return self._judged()

    def _cases(self) -> tuple[Case, ...]:
        if self.grown is not None:
            return self.grown.cases(self.settings)
        cases = CASES if self.settings.cases is None else cases_of(self.settings.cases)
        if self.a.plan is None or not self.a.plan.is_counted:
            return cases
        return tuple(replace(case, padding="right") for case in cases)

    def _run(
        self,
        leader: Subject,
        follower: Subject,
        plan: InputPlan,
        cases: tuple[Case, ...] | None = None,
    ) -> str | None:
        """Compare both models on inputs that suit the leader; return why it ran none of them."""
        settings, grown = self.settings, self.grown
        directions = self._disagreement.directions
        plan = plan.compared(follower.plan, directions).counting(settings.positions)
        session = leader.session(self.runtime)
        judge = Judge(
            plan,
            self._measure,
            leader.noise(self.runtime),
            self._account,
            session,
            (leader.name, follower.name),
            follower.session(self.runtime),
            is_swapped=leader is self.b,
            twins=self._twins,
            dead=self._dead,
        )
        budget = settings.budget
        if settings.cases is not None:  # cases that the user asked for all run
            budget = replace(budget, seconds=math.inf)
        limit = None if grown is None else grown.limit
        ports = follower.interface.inputs if grown is None else ()
        script = Script(
            session,
            plan,
            self._cases() if cases is None else cases,
            settings.seed,
            STEPS if settings.steps is None else settings.steps,
            settings.dims,
            settings.progress,
            budget,
            Emptiness(leader.model, leader.directory, self.runtime),
            limit,
            {port.name: port.shape for port in ports if port.shape is not None},
            lambda: _table(leader.model, limit),
        )
        following = Recorder(
            follower.session(self.runtime),
            settings.budget.memory,
            self._measure,
            lambda inputs: not self._dead(inputs),
            is_every=settings.thorough,
        )
        if self._recorder is None or not self._recorder.runs:
            self._recorder = following
        failure = run_side_by_side(following, script, judge)
        if failure is None and self._watched is None:
            self._watched = script, leader
        return failure

    def _shown(self, changed: Subject) -> Watch:
        """Run the leader beside a copy of it with a part of the other model."""
        assert self._watched is not None
        script, leader = self._watched
        names, noise = (leader.name, leader.name), leader.noise(self.runtime)
        other, leads = changed.session(self.runtime), script.leader
        watch = Watch(script.plan, self._measure, noise, Account(), leads, names, other)
        run_side_by_side(other, script, watch)
        return watch

    def _dead(self, inputs: Arrays) -> int:
        """Return the number of padding rows that a run skips."""
        plan = self.a.plan
        if plan is None or (self.grown is None and not plan.is_counted):
            return 0
        return dead_count(plan, inputs)

    def _judged(self) -> VerifyReport:
        a, b, settings, account = self.a, self.b, self.settings, self._account
        runtime = a.session(self.runtime).runtime
        notes = [*self._notes()]
        found = account.difference
        detail = found.reason if found else None
        if detail is None and account.unsteady is not None:
            reason = (
                f"output `{account.unsteady}` changes when a model is run again on the same inputs"
            )
            return _without_run(a, "unrunnable", reason, settings)
        weight = self._disagreement.weight or tensor_difference(a, b, self._likeness)
        is_strict = self._measure.exact and not self._measure.is_given
        if detail is None and weight is not None and is_strict:
            detail = f"{weight}; no output shows it in these runs"
        elif detail is None and self._watched is not None and not self._measure.is_given:
            detail = self._disagreement.judge(
                self._shown, leads_b=self._watched[-1] is b, seconds=settings.budget.seconds
            )
        if weight is not None and (detail is None or weight not in detail):
            notes.append(weight)
        if found and is_strict and not found.is_failure:
            notes.append("A and B are the same but for names and weights: every bit has to agree")
        covered, earliest = (Covered(), None) if detail is not None else self._probed()
        if earliest is not None:
            detail = f"{earliest.reason} where it was rewritten; no output shows it in these runs"
        if found is not None and not found.is_failure:
            settings.progress("looking for the first value that differs")
            earliest, why = self._earliest(found)
            notes += [why] if why else []
            if earliest is not None and self._dead(found.inputs):
                notes.append("the earliest value may differ in rows of padding alone")
        if detail is None:
            notes += self._notes_of_equal()
        is_same = self._likeness is not None and weight is None
        return VerifyReport(
            status="equal" if detail is None else "different",
            runtime=runtime,
            cases=account.cases,
            steps=account.steps,
            seed=settings.seed,
            outputs=tuple(_output(port.name, account) for port in a.interface.outputs),
            max_abs_diff=account.max_abs_diff,
            earliest=earliest,
            twins=None if self._twins is None else self._twins.report(),
            detail=detail,
            notes=tuple(notes),
            covered=self._covered(covered, is_same=is_same),
        )

    def _notes(self) -> Iterator[str]:
        """Yield what a reader should know of the runs."""
        account, settings = self._account, self.settings
        if account.noise:
            yield account.noise
        if self._twins is not None:
            yield from self._twins.notes()
        if self.grown is not None:
            yield from self.grown.notes(account)
        elif account.dead and self.a.plan is not None:
            yield padding_note(self.a.plan, account)
        if account.random:
            names = ", ".join(f"`{name}`" for name in sorted(account.random))
            is_sampled = account.random <= account.sampled
            means = f"the means over {RUNS} runs" if is_sampled else "type and shape"
            yield f"random, and compared by {means} alone: {names}"
        for name in sorted(settings.unpadded):
            yield f"run without padding: `{name}` is taken to be 1 throughout"
        if account.left_out:
            left = counted(account.left_out, "case")
            yield f"{left} skipped after {settings.budget.seconds:g} s"

    def _notes_of_equal(self) -> Iterator[str]:
        """Yield what the runs of equal models leave out."""
        if self._recorder is not None and self._recorder.runs:
            inputs, most = self._recorder.runs[0], self._account.max_abs_diff
            if (note := rounding_note(self.a, self.b, inputs, self.runtime, most)) is not None:
                yield note
        if self.runtime == "reference":
            from onnx_kvtool.runtime.kernels.contrib import CONTRIB_KERNELS

            # Those without a kernel run as their standard form.
            for _, op in sorted((self.a.contrib ^ self.b.contrib) - CONTRIB_KERNELS.keys()):
                yield (
                    f"the reference runs `{op}` as the standard form that kvtool writes of it, so "
                    "that these runs cannot notice a mistake in the form"
                )

    def _probed(self) -> tuple[Covered, EarliestDifference | None]:
        """Compare the models where one was rewritten, and plant mistakes there.

        Models that do the same operations were rewritten nowhere.
        """
        if self._likeness is not None or self._recorder is None or not self._recorder.runs:
            return Covered(), None
        settings, runs, runtime = self.settings, self._recorder.runs, self.runtime
        subjects, last, twins = (self.a, self.b), self._recorder.last, self._twins
        if twins is not None and twins.runs:
            # The types of the models themselves round too much for a place to be compared.
            subjects, runtime = twins.subjects, twins.runtime
            runs = [widened_inputs(run) for run in runs]
            last = None if last is None else widened_inputs(last)
        a, b = (GraphView(subject) for subject in subjects)
        places = places_between(a, b, settings)
        if not places:
            return Covered(), None
        settings.progress("verifying, where the model was rewritten")
        if sum(len(subject.model) for subject in subjects) > _LARGE:
            self._unload()
        is_binding = settings.is_a_right and self.a.host is self.b.host is None
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

    def _unload(self) -> None:
        """Release both models and their twins, to free memory for copies."""
        self._watched = None
        for one in (self.a, self.b, self._twins, self._recorder):
            if one is not None:
                one.unload()
        give_back(at_once=True)

    def _covered(self, probed: Covered, *, is_same: bool) -> Covered:
        """Return what the comparison covered."""
        account, said = self._account, self._disagreement
        coarse = [] if self._twins is None else self._twins.unnoticed()
        unnoticed = *said.unnoticed, *coarse
        found = Covered(
            places=probed.places + said.noticed + len(unnoticed),
            noticed=probed.noticed + said.noticed,
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
        subjects, measure, runtime = (self.a, self.b), self._measure, self.runtime
        if found.is_of_twins and self._twins is not None:
            subjects, runtime = self._twins.subjects, self._twins.runtime
            measure = self._twins.measure
        elif self.settings.widened is not None:
            return None, None  # what lies in between has other types
        return earliest_difference(*subjects, found.inputs, measure, runtime, self._likeness)

    @property
    def does_a_fail(self) -> bool:
        """Whether the difference is that A fails and B runs."""
        found = self._account.difference
        return (
            found is not None
            and found.is_failure
            and found.reason.startswith(f"{self.a.name} fails ")
        )


def _output(name: str, account: Account) -> OutputReport:
    if (seen := account.outputs.get(name)) is None:
        return OutputReport(name)
    mismatch = None if seen.mismatch is None else FirstMismatch(seen.mismatch, seen.where)
    return OutputReport(name, seen.bit_equal, seen.max_abs_diff, mismatch)


def _knows_more(one: Subject, other: Subject) -> bool:
    """Return whether only the graph of `one` shows how caches are written.

    A TensorScatter tells sequence axis, mode and starts, which the scatter that it was lowered to
    no longer shows.
    """
    if other.plan is None or one.plan is None:
        return one.plan is not None
    return bool(one.plan.writes) and not other.plan.writes


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
