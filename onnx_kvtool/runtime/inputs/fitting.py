"""Cases with as many sequences and rows as there is memory for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from onnx_kvtool.core.quantity import counted
from onnx_kvtool.runtime.errors import CannotDraw, TooLarge
from onnx_kvtool.runtime.inputs.cases import Case
from onnx_kvtool.runtime.inputs.layout import Layout
from onnx_kvtool.runtime.inputs.plan import InputPlan
from onnx_kvtool.runtime.inputs.symbols import sizes_for

__all__ = ["fitting", "least_memory"]


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
