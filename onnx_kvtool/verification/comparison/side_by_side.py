"""Two models run on the same inputs, step by step."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from onnx_kvtool.core.machine import Budget, Progress
from onnx_kvtool.runtime.errors import CannotDraw, RunFailed
from onnx_kvtool.runtime.memory import give_back
from onnx_kvtool.runtime.sessions import Arrays, Session
from onnx_kvtool.verification.comparison.judge import Judge
from onnx_kvtool.verification.inputs.cases import Case, Range, Sizes
from onnx_kvtool.verification.inputs.drawing import draw, tokens_of
from onnx_kvtool.verification.inputs.plan import InputPlan
from onnx_kvtool.verification.inputs.stepping import advance, reached, rows_of
from onnx_kvtool.verification.inputs.symbols import attempts, fitting, reaching, roomier


@dataclass(frozen=True, slots=True)
class Script:
    """What is run.

    Attributes:
        leader: The model that leads, which gives the presents.
        plan: Its inputs.
        cases: Sizes and starts.
        seed: Seed of the first case; each case has its own.
        steps: Decode steps after the first run of each case, as far as the caches have room.
        dims: Sizes that the user has bound.
        progress: Told of each case.
        budget: Memory that a run may take, and time after which no further case is begun.
        is_empty: Whether some value within the leader has no element on given inputs; asked where
            other sizes can avoid that.
        limit: Rows that the fixed caches of the other model hold, where those of the leader grow:
            no run goes beyond, but for one in which the other has to fail; None for caches that
            both models have alike.
        shapes: What the other model declares of its inputs, by name: no decode step is made that
            has another size where that is a number, as of a cache that grows out of a fixed size.
        table: Returns the name of a table of the leader of as many rows as `limit`, if it has one
            that may be of positions.
    """

    leader: Session
    plan: InputPlan
    cases: Sequence[Case]
    seed: int
    steps: int
    dims: Sizes
    progress: Progress
    budget: Budget
    is_empty: Callable[[Arrays], bool]
    limit: int | None
    shapes: Mapping[str, Sequence[int | str | None]]
    table: Callable[[], str | None]


def run_side_by_side(other: Session, script: Script, judge: Judge) -> str | None:
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
    known: dict[str, int] | None = None
    sizes_run: Sizes = {}
    begin = time.monotonic()
    cases = list(script.cases)
    for number in range(len(script.cases) + _MOST_MORE):
        if number == len(cases):
            break
        wanted = cases[number]
        is_last = number == len(script.cases) - 1
        # The last one always runs: it goes to the end of the caches.
        if ran and not is_last and time.monotonic() - begin > script.budget.seconds:
            judge.account.left_out += 1
            continue
        seed = script.seed + number
        script.progress("verifying, case", number + 1, len(cases))
        case = fitting(script.plan, wanted, script.dims, script.budget.memory)
        start = None
        for longer in reaching(script.plan, case, script.dims, script.budget):
            likeliest = next(iter(attempts(script.plan, longer, script.dims)))
            if not isinstance(start := _try(script, likeliest[0], seed, likeliest[1]), str):
                case = longer
                break
        if start is None or isinstance(start, str):
            start = _first_run(script, case, seed, known)
        known = known or {}
        if isinstance(start, str):
            failure = failure or start
            continue
        inputs, led, sizes = start
        known = {name: sizes[name] for name in script.plan.windows.extents}
        ran = True
        judge.account.cases += 1
        name = case.name if script.plan.has_caches else _spoken(script.plan, number, inputs)
        first = [inputs, led]
        is_bounded = math.isfinite(script.budget.seconds)  # not where cases were asked for
        if is_bounded and wanted.values == "edges" and (times := script.plan.shortfall(inputs)) > 1:
            cases.append(roomier(script.plan, wanted, times, script.budget))
        sizes_run = sizes_run or sizes
        del start, inputs, led  # that nothing but the runs themselves holds them
        _run_case(other, script, judge, replace(case, name=name), number, first)
        give_back(at_once=True)
    if ran and time.monotonic() - begin <= script.budget.seconds:
        _draw_again(other, script, judge, sizes_run)
    if ran and script.limit is not None:
        _run_past_the_end(other, script, judge, script.limit)
    return None if ran else failure


_MOST_MORE = 2
"""Further cases around the points of a model whose inputs have few elements."""


def _run_case(
    other: Session,
    script: Script,
    judge: Judge,
    case: Case,
    number: int,
    first: list[Arrays],
) -> None:
    """Compare a first run and the decode steps after it.

    Nothing of a step is held when the next one runs but what it reads.
    """
    inputs, led = first
    first.clear()
    chunks = (1,) * script.steps if case.chunks is None else case.chunks
    for step in range(len(chunks) + 1):
        where = f"in {case.name}" + (f", decode step {step}" if step else "")
        try:
            found = other.run(inputs)
        except RunFailed as error:
            judge.fail(inputs, error, where)
            return
        give_back()
        judge.compare(inputs, led, found, where)
        judge.account.learn_from(led, script.plan.points.varying)
        _note_reached(script, judge, inputs)
        del found  # before the leader makes as much again
        give_back()
        if step == len(chunks):
            return
        following = advance(
            script.plan,
            inputs,
            led,
            seed=script.seed + number + 1000 * (step + 1),
            dims=script.dims,
            length=chunks[step],
            is_padded=case.padding != "usual",
        )
        if following is None or not _has_room(script, following) or _outgrows(script, following):
            return
        inputs, led = following, {}
        del following
        try:
            led = script.leader.run(inputs)
        except RunFailed:
            return  # the caches go round in another way than was guessed; one run stands


def _has_room(script: Script, inputs: Arrays) -> bool:
    return script.limit is None or sum(rows_of(script.plan, inputs)) <= script.limit


def _outgrows(script: Script, inputs: Arrays) -> bool:
    """Return whether an input has another size than the number that the other model declares."""
    return any(
        isinstance(dim, int) and dim >= 0 and dim != size
        for name, array in inputs.items()
        for dim, size in zip(script.shapes.get(name, ()), array.shape, strict=False)
    )


def _note_reached(script: Script, judge: Judge, inputs: Arrays) -> None:
    try:
        used, rows = reached(script.plan, inputs)
    except CannotDraw:
        return
    account = judge.account
    account.lengths = max(account.lengths, used)
    account.rows = max(account.rows, script.limit or rows)


_AGAIN: tuple[Range, ...] = ("positive", "small", "wide", "large")
"""Values that are drawn where outputs were not finite or constant in all runs."""


def _draw_again(other: Session, script: Script, judge: Judge, sizes: Sizes) -> None:
    """Run more cases if outputs say nothing yet, and other values let the leader say something."""
    for number, values in enumerate(_AGAIN, len(script.cases)):
        if not judge.account.silent or not script.plan.is_drawn_freely:
            return
        case = replace(script.cases[0], name=f"a case of {values} values", values=values)
        run = _try(script, case, script.seed + number, sizes)
        if isinstance(run, str) or not judge.account.learns_from(run[1]):
            continue
        judge.account.cases += 1
        _run_case(other, script, judge, replace(case, chunks=()), number, [*run[:2]])
        give_back(at_once=True)


def _run_past_the_end(other: Session, script: Script, judge: Judge, limit: int) -> None:
    """Run one more token behind full caches; the other model must fail there."""
    where = f"in a step past the capacity of {limit} rows"
    case = replace(script.cases[-1], name=where, batch=1, length=1, past=limit, padding="none")
    reason = "the source itself fails there"
    for attempt, sizes in attempts(script.plan, case, script.dims):
        try:
            inputs = draw(script.plan, attempt, script.seed, sizes, memory=script.budget.memory)
            if not _is_full(script.plan, inputs, limit):
                continue
            script.leader.run(inputs)
        except CannotDraw as error:
            reason = error.message
            continue
        except RunFailed:
            table = script.table()
            if table is not None:
                reason = f"the source fails there, with `{table}` of {limit} positions"
            continue
        failure = None
        try:
            other.run(inputs)
        except RunFailed as error:
            failure = error
        judge.stop(inputs, where, failure)
        return
    judge.account.end = f"nothing was run past the capacity of {limit} rows: {reason}"


def _is_full(plan: InputPlan, inputs: Arrays, limit: int) -> bool:
    """Return whether caches of so many rows are full of tokens before a step, for all sequences."""
    before, length = rows_of(plan, inputs)
    tokens = tokens_of(plan, inputs, length)
    return before == limit and (
        tokens is None or bool((tokens.sum(axis=-1) == limit + length).all())
    )


def _spoken(plan: InputPlan, number: int, inputs: Arrays) -> str:
    """Return what to call a case of a model without caches: the sizes that the model left open."""
    shapes = [
        f"`{spec.name}` of shape {inputs[spec.name].shape}"
        for spec in plan.inputs
        if any(isinstance(dim, str) for dim in spec.shape)
    ]
    return f"case {number + 1}" + (f" with {', '.join(shapes[:_MOST_SHAPES])}" if shapes else "")


_MOST_SHAPES = 2
"""Inputs whose shapes are told."""

_MOST_EMPTY = 8
"""Most runs with something empty; then no more sizes are tried."""

_MOST_SECONDS = 60.0
"""After which no more sizes are tried, however much time there is."""


_Run: TypeAlias = tuple[Arrays, Arrays, Sizes]
"""Inputs that the leader runs on, its outputs, and the sizes of all names."""


def _first_run(script: Script, case: Case, seed: int, known: Sizes | None) -> _Run | str:
    """Return a run of `case`; one with an empty value stands only if there is no other.

    Returns:
        Why it does not run if it does not.
    """
    extents = script.plan.windows.extents
    end = time.monotonic() + min(script.budget.seconds, _MOST_SECONDS)
    failures: list[str] = []
    with_empty: list[_Run] = []
    for attempt, sizes in attempts(script.plan, case, script.dims, known):
        run = _try(script, attempt, seed, sizes)
        if isinstance(run, str) and attempt != _plain(attempt):
            run = _try(script, _plain(attempt), seed, sizes)
        if isinstance(run, str):
            failures.append(run)
        elif not extents or not script.is_empty(run[0]):
            return run
        else:
            with_empty.append(run)
        if extents and (len(with_empty) == _MOST_EMPTY or time.monotonic() > end):
            break
    # The likeliest reading has the most telling message.
    return with_empty[-1] if with_empty else failures[0]


def _plain(case: Case) -> Case:
    """Return a case with safe values."""
    return replace(case, values="moderate", overrides=False, reaches=False)


def _try(script: Script, case: Case, seed: int, sizes: Sizes) -> _Run | str:
    """Return what `_first_run` returns, of one reading."""
    try:
        inputs = draw(script.plan, case, seed, sizes, memory=script.budget.memory)
        if not _has_room(script, inputs):
            raise CannotDraw(f"the rows would be more than the capacity of {script.limit}")
        return inputs, script.leader.run(inputs), sizes
    except (CannotDraw, RunFailed) as error:
        return error.message
