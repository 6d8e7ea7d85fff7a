"""Two models that are a growing one and its fixed form, made ready to be compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from onnx_kvtool.core.quantity import counted
from onnx_kvtool.runtime.comparison.judge import Account
from onnx_kvtool.runtime.inputs.cases import CASES, Case
from onnx_kvtool.runtime.inputs.fitting import fitting, least_memory
from onnx_kvtool.runtime.inputs.padding import dead_rows, padding_input
from onnx_kvtool.runtime.inputs.pairs import CachePair
from onnx_kvtool.runtime.inputs.plan import InputPlan
from onnx_kvtool.runtime.inputs.stepping import rows_of
from onnx_kvtool.runtime.sessions import Arrays
from onnx_kvtool.runtime.verification.growing.cases import growing_cases
from onnx_kvtool.runtime.verification.growing.hosts import (
    FixedHost,
    GrowingHost,
    PaddingHost,
    query_axes,
)
from onnx_kvtool.runtime.verification.growing.pair import GrowingPair, Side, growing_pair
from onnx_kvtool.runtime.verification.growing.probe import kept_rows_of
from onnx_kvtool.runtime.verification.growing.rows import Arrangement
from onnx_kvtool.runtime.verification.hosting import through
from onnx_kvtool.runtime.verification.settings import Settings
from onnx_kvtool.runtime.verification.subject import Subject

__all__ = ["Grown", "dead_count", "grown", "padding_note", "without_padding"]


@dataclass(frozen=True, slots=True)
class Grown:
    """A growing model and its fixed form.

    Attributes:
        pair: What they are to each other.
        a: The growing model, with a host that reads no padding.
        b: The fixed form, with a host that keeps its caches in buffers.
    """

    pair: GrowingPair
    a: Subject
    b: Subject

    @property
    def limit(self) -> int | None:
        """Rows after which the fixed form has to fail."""
        return self.pair.capacity

    def least(self, settings: Settings) -> int:
        """Return the bytes that the smallest run of the fixed form takes, beside its weights."""
        if self.b.plan is None:
            return 0
        return least_memory(self.b.plan, CASES[0], {**settings.dims, **self.pair.dims})

    def cases(self, settings: Settings) -> tuple[Case, ...]:
        """Return what is run, with as many sequences as there is memory for in either model."""
        cases = growing_cases(self.pair, settings.cases, settings.steps)
        if (plan := self.b.plan) is None:
            return cases
        memory = settings.budget.memory
        return tuple(fitting(plan, case, self.pair.dims, memory) for case in cases)

    def _sizes(self) -> Iterator[str]:
        for is_circular, what in (
            (False, "caches of {} grow, those of {} hold {} rows: the rows in use were compared"),
            (True, "caches of {} roll, those of {} are circular of {} rows: compared by position"),
        ):
            rows = {c.capacity for c in self.pair.caches if c.is_circular == is_circular}
            if rows:
                sizes = " or ".join(map(str, sorted(rows)))
                yield what.format(self.a.name, self.b.name, sizes)

    def notes(self, account: Account) -> list[str]:
        """Return what a reader should know of the comparison."""
        notes = list(self._sizes())
        loose = [
            cache.present
            for cache in self.pair.caches
            if (seen := account.outputs.get(cache.present)) is not None and not seen.bit_equal
        ]
        if loose and account.difference is None:
            caches = counted(len(loose), "cache")
            notes.append(f"new rows of {caches} agree within the tolerance, all others bit for bit")
        if account.dead:
            notes.append(padding_note(self.pair.plan, account))
        elif padding_input(self.pair.plan) is None and not self.pair.plan.unpadded:
            notes.append("run without padding: no input is known to be a mask of all rows")
        return [*notes, account.end] if account.end else notes


def dead_count(plan: InputPlan, inputs: Arrays) -> int:
    """Return how many rows of a run, new ones and those in caches, are not compared."""
    _, length = rows_of(plan, inputs)
    found = dead_rows(plan, inputs, length)
    return 0 if found is None else int(found[0].sum() + found[1].sum())


def padding_note(plan: InputPlan, account: Account) -> str:
    """Return how many rows were not compared, and what says that they are padding."""
    rows_left = counted(account.dead, "row")
    return f"{rows_left} of padding, as `{padding_input(plan)}` says, left out"


def grown(a: Subject, b: Subject, settings: Settings) -> Grown | None:
    """Return two models ready to be compared; None if they are no such pair."""
    dims = settings.dims

    def probe(
        plan: InputPlan, pair: CachePair, axis: int, capacity: int
    ) -> tuple[Arrangement, int] | None:
        known = next((one for one in settings.rotated if one.past == pair.past), None)
        if known is not None:
            return known.arrangement, known.rows
        return kept_rows_of(a, plan, pair, axis, capacity, dims)

    pair = growing_pair(Side(a.interface, a.plan), Side(b.interface, b.plan), dims, probe)
    if pair is None:
        return None
    shapes = {port.name: port.shape for port in a.interface.outputs}
    reader = GrowingHost(pair, query_axes(pair.plan, shapes))
    return Grown(
        pair, replace(a.with_host(reader), plan=pair.plan), b.with_host(FixedHost(pair, reader))
    )


def without_padding(a: Subject, b: Subject) -> tuple[Subject, Subject]:
    """Return two models whose caches are alike, read by a host that is told what is padding.

    What operators that count the tokens of each sequence (GroupQueryAttention) compute for the rows
    behind them, their standard form computes otherwise; nobody may read it.
    """
    plan = a.plan
    if plan is None or not plan.is_counted:
        return a, b
    shapes = {port.name: port.shape for port in a.interface.outputs}
    reader = PaddingHost(plan, query_axes(plan, shapes))
    return a.with_host(through(reader, a.host)), b.with_host(through(reader, b.host))
