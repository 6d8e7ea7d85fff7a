"""Cases with as many sequences and rows as there is memory for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from onnx_kvtool.core.budget import Budget
from onnx_kvtool.core.quantity import counted
from onnx_kvtool.runtime.errors import CannotDraw, TooLarge
from onnx_kvtool.runtime.inputs.cases import Case
from onnx_kvtool.runtime.inputs.layout import Layout
from onnx_kvtool.runtime.inputs.plan import InputPlan
from onnx_kvtool.runtime.inputs.symbols import kinds_of, sizes_for

__all__ = ["fitting", "least_memory", "reaching", "roomier"]


def fitting(plan: InputPlan, case: Case, dims: Mapping[str, int], memory: int) -> Case:
    """Return `case` with as many of its sequences, then rows, as fit; the smallest if none does.

    Args:
        plan: The model's inputs.
        case: The sizes that are wanted.
        dims: Sizes that the user has bound.
        memory: Bytes that a run may take.
    """
    found = case
    for found in _smaller(case):
        try:
            Layout(plan, sizes_for(plan, found, dims), found.length, memory)
        except TooLarge:
            continue
        except CannotDraw:
            return case  # another reading of the dimensions may be right
        return found
    return found


def least_memory(plan: InputPlan, case: Case, dims: Mapping[str, int]) -> int:
    """Return the bytes that a run of the smallest form of `case` takes; 0 if nobody knows."""
    *_, least = _smaller(case)
    try:
        Layout(plan, sizes_for(plan, least, dims), least.length, 0)
    except TooLarge as error:
        return error.needed
    except CannotDraw:
        return 0
    return 0


def reaching(
    plan: InputPlan, case: Case, dims: Mapping[str, int], budget: Budget
) -> Iterator[Case]:
    """Yield forms of `case` with as many rows as windows, limits and tables of the model ask for.

    Of the numbers that stand in the model the largest counts for which a run takes a small part of
    the budget. Rows go beyond it first, and then up to it, as nothing runs behind a table.

    Args:
        plan: The model's inputs.
        case: The case that may reach further.
        dims: Sizes that the user has bound.
        budget: Memory and time that all runs may take.
    """
    if not case.reaches:
        return
    kinds = set(kinds_of(plan).values())
    growing = any(pair.kind != "fixed" and pair.axis is not None for pair in plan.pairs)
    counted_rows = case.length + _STEPS
    tables = {spec.uses.rows or 0 for spec in plan.with_role("position_ids")}
    for point in sorted(tables.union(plan.points.lengths), reverse=True):
        if point > _FARTHEST:
            continue
        if growing and "past" in kinds and point > case.past + counted_rows:
            near = replace(case, batch=1)
            found = [replace(near, past=rows) for rows in (point - 2, point - counted_rows)]
            one = replace(near, length=1)
            found += [replace(one, past=rows) for rows in (point + 1, point - _STEPS - 1)]
        elif plan.has_caches and "capacity" in kinds and point >= case.capacity:
            found = [replace(case, capacity=rows) for rows in (point + 3, point)]
        elif not plan.has_caches and "length" in kinds and point >= case.length:
            found = [replace(case, length=rows, batch=1) for rows in (point + 3, point)]
            if point * plan.points.elements > _PRODUCTS * budget.seconds or point > _LONGEST:
                continue
        else:
            continue
        try:
            Layout(plan, sizes_for(plan, found[0], dims), case.length, budget.memory // _SHARE)
        except TooLarge:
            continue
        except CannotDraw:
            return
        yield from found
        return


def roomier(plan: InputPlan, case: Case, times: int, budget: Budget) -> Case:
    """Return `case` with so many times as many sequences, as far as there is time for them."""
    most = int(_PRODUCTS * budget.seconds) // max(plan.points.elements * case.batch, 1)
    times = max(min(times, most, _MOST_TIMES), 1)
    return replace(case, batch=case.batch * times, chunks=())


_MOST_TIMES = 64
"""Times as many sequences as a case has."""

_STEPS = 2
"""Decode steps that follow a first run, for which tables must have rows."""

_SHARE = 8
"""Of the memory for a run: the part that long caches may take."""

_PRODUCTS = 400_000_000
"""Elements of weights times rows that a second of the budget may be spent on."""

_FARTHEST = 8192
"""Rows of a cache, whatever there is memory for."""

_LONGEST = 2048
"""Rows of a prompt: each attends to each."""


def _smaller(case: Case) -> Iterator[Case]:
    """Yield a case and smaller ones; one sequence of two rows tells more than two of one row."""
    yield case
    for batch in range(case.batch - 1, 0, -1):
        yield _named(replace(case, batch=batch))
    if case.length > 1:
        yield _named(replace(case, batch=1, length=1))


def _named(case: Case) -> Case:
    sizes = f"{counted(case.batch, 'sequence')} of {counted(case.length, 'row')}"
    return replace(case, name=f"{case.name}, as {sizes}")
