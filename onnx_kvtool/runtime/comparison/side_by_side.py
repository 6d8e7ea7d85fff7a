"""Two models run on the same inputs, step by step."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from onnx_kvtool.core.budget import Budget
from onnx_kvtool.core.progress import Progress, silent
from onnx_kvtool.runtime.comparison.judge import Judge
from onnx_kvtool.runtime.errors import CannotDraw, RunFailed
from onnx_kvtool.runtime.inputs.cases import Case
from onnx_kvtool.runtime.inputs.drawing import draw
from onnx_kvtool.runtime.inputs.fitting import fitting
from onnx_kvtool.runtime.inputs.plan import InputPlan
from onnx_kvtool.runtime.inputs.stepping import advance
from onnx_kvtool.runtime.inputs.symbols import attempts
from onnx_kvtool.runtime.sessions import Arrays, Session

__all__ = ["Script", "run_side_by_side"]


@dataclass(frozen=True, slots=True)
class Script:
    """What is run.

    Attributes:
        plan: Inputs of the model that leads.
        cases: Sizes and starts.
        seed: Seed of the first case; each case has its own.
        steps: Decode steps after the first run of each case, as far as the caches have room.
        dims: Sizes that the user has bound.
        progress: Told of each case.
        budget: Memory that a run may take, and time after which no further case is begun.
    """

    plan: InputPlan
    cases: Sequence[Case]
    seed: int
    steps: int
    dims: Mapping[str, int] = field(default_factory=dict)
    progress: Progress = field(default=silent, compare=False, repr=False)
    budget: Budget = field(default_factory=Budget)


def run_side_by_side(leader: Session, other: Session, script: Script, judge: Judge) -> str | None:
    """Run both models on the same inputs over all cases and let `judge` compare every run.

    In every step both are fed the presents of the leader, so that rounding does not add up over
    the steps to what looks like a fault. A case that the leader does not run in any reading of its
    dimensions is left out; one that only the other model fails is a difference. Cases have fewer
    sequences, and fewer rows, where that is what fits into the memory.

    Returns:
        Why the leader ran no case; None if it ran one.
    """
    failure: str | None = None
    ran = False
    begin = time.monotonic()
    for number, wanted in enumerate(script.cases):
        if ran and time.monotonic() - begin > script.budget.seconds:
            judge.leave_out(len(script.cases) - number)
            break
        script.progress("verifying, case", number + 1, len(script.cases))
        case = fitting(script.plan, wanted, script.dims, script.budget.memory)
        start = _first_run(leader, script, case, script.seed + number)
        if isinstance(start, str):
            failure = failure or start
            continue
        ran = True
        judge.begin_case()
        _run_case(leader, other, script, judge, case, script.seed + number, *start)
    return None if ran else failure


def _run_case(
    leader: Session,
    other: Session,
    script: Script,
    judge: Judge,
    case: Case,
    seed: int,
    inputs: Arrays,
    led: Arrays,
) -> None:
    """Compare a first run, which the leader has done, and the decode steps after it."""
    for step in range(script.steps + 1):
        where = f"in {case.name}" + (f", decode step {step}" if step else "")
        try:
            found = other.run(inputs)
        except RunFailed as error:
            judge.fail(inputs, error, where)
            return
        judge.compare(inputs, led, found, where)
        del found  # before the leader makes as much again
        following = advance(
            script.plan, inputs, led, seed=seed + 1000 * (step + 1), dims=script.dims
        )
        if following is None:
            return
        try:
            inputs, led = following, leader.run(following)
        except RunFailed:
            return  # the caches go round in another way than was guessed; one run stands


def _first_run(
    leader: Session, script: Script, case: Case, seed: int
) -> tuple[Arrays, Arrays] | str:
    """Return inputs of `case` on which the leader runs, and its outputs; else why it does not."""
    failures: list[str] = []
    for attempt, sizes in attempts(script.plan, case, script.dims):
        run = _try(leader, script, attempt, seed, sizes)
        if not isinstance(run, str):
            return run
        failures.append(run)
    return failures[0]  # the likeliest reading has the most telling message


def _try(
    leader: Session, script: Script, case: Case, seed: int, sizes: Mapping[str, int]
) -> tuple[Arrays, Arrays] | str:
    try:
        inputs = draw(script.plan, case, seed, sizes, memory=script.budget.memory)
        return inputs, leader.run(inputs)
    except (CannotDraw, RunFailed) as error:
        return error.message
