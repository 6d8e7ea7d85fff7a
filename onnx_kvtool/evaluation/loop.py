"""A first run and the decode steps after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from onnx_kvtool.core.diagnostic import Diagnostic
from onnx_kvtool.core.machine import Progress, silent
from onnx_kvtool.evaluation.owned import apart_from
from onnx_kvtool.evaluation.report import TraceEntry
from onnx_kvtool.evaluation.runner import Runner
from onnx_kvtool.evaluation.summary import type_facts
from onnx_kvtool.runtime.engine.program import Trace
from onnx_kvtool.runtime.errors import RunFailed
from onnx_kvtool.runtime.kernels.kernel import Value
from onnx_kvtool.verification.inputs.plan import InputPlan
from onnx_kvtool.verification.inputs.stepping import advance

__all__ = ["Loop", "Outcome"]


Watch = Callable[[int, Mapping[str, Value], Mapping[str, Value]], None]
"""Called after each run with its number, its inputs and its outputs, before anything is reused."""


@dataclass(slots=True)
class Outcome:
    """What the runs gave.

    Attributes:
        inputs: What the last run was fed; its caches may have been written into.
        values: What the last run gave.
        warnings: Those of all runs, each once.
        trace: The nodes that ran, over all runs.
    """

    inputs: dict[str, Value]
    values: dict[str, Value]
    warnings: tuple[Diagnostic, ...] = ()
    trace: list[TraceEntry] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Loop:
    """How often a part is run, and what is done with its outputs.

    Attributes:
        runner: The part.
        steps: Decode steps after the first run.
        plan: What the inputs mean; None when there are no steps.
        seed: For what has to be drawn in a step.
        dims: Sizes that the user has bound; a bound number of rows stays as it is.
        traced: Whether to gather every node that runs.
        watch: Sees every run; None when nobody does. The caches are then not written in place.
        progress: Told of each run.
    """

    runner: Runner
    steps: int = 0
    plan: InputPlan | None = None
    seed: int = 0
    dims: Mapping[str, int] = field(default_factory=dict)
    traced: bool = False
    watch: Watch | None = None
    progress: Progress = silent

    def run(self, candidates: Iterable[dict[str, Value]]) -> Outcome:
        """Run the part, with each present fed back to its past in every step.

        The arrays of the first run are only read; from the first step on the caches, which nobody
        else has, are updated in place.

        Args:
            candidates: Inputs of the first run, of which the first ones that work are taken.

        Raises:
            RunFailed: If the first run fails on all of them, for the first reason; if a step fails,
                or has no room in a cache or a table of positions.
        """
        outcome = self._first(candidates)
        for step in range(1, self.steps + 1):
            self._step(outcome, step)
        return outcome

    def _first(self, candidates: Iterable[dict[str, Value]]) -> Outcome:
        failure: RunFailed | None = None
        for inputs in candidates:
            outcome = Outcome(inputs, {})
            try:
                self._run(outcome, 0, ())
            except RunFailed as error:
                failure = failure or error
                continue
            return outcome
        assert failure is not None
        raise failure

    def _step(self, outcome: Outcome, step: int) -> None:
        assert self.plan is not None
        # A present that lies in an array of the caller must not be written into.
        if step == 1:
            outcome.values = apart_from(outcome.values, outcome.inputs)
        following = advance(
            self.plan,
            outcome.inputs,
            outcome.values,
            seed=self.seed + 1000 * step,
            dims=self.dims,
        )
        if following is None:
            raise RunFailed(
                f"decode step {step} of {self.steps} finds no room: a cache or a table of "
                f"positions is full, or a present does not fit its past",
                help=f"ask for `--steps {step - 1}`" if step > 1 else "leave `--steps` out",
            )
        outcome.inputs, outcome.values = dict(following), {}
        caches = () if self.watch else tuple(pair.past for pair in self.plan.pairs)
        self._run(outcome, step, caches)

    def _run(self, outcome: Outcome, step: int, give_up: tuple[str, ...]) -> None:
        if self.steps:
            self.progress("running, step", step + 1, self.steps + 1)
        else:
            self.progress("running")
        trace: list[TraceEntry] = []
        observe = (lambda seen: trace.append(_entry(seen, step))) if self.traced else None
        run = self.runner.run(outcome.inputs, give_up=give_up, observe=observe)
        outcome.values = run.values
        outcome.warnings = tuple(dict.fromkeys((*outcome.warnings, *run.warnings)))
        outcome.trace += trace
        if self.watch is not None:
            self.watch(step, outcome.inputs, outcome.values)


def _entry(seen: Trace, step: int) -> TraceEntry:
    outputs = tuple(type_facts(name, value) for name, value in seen.outputs if name)
    return TraceEntry(seen.location, outputs, seen.seconds, seen.runtime, step)
