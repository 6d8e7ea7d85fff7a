"""The cost of the caches of a model with another capacity and element type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import onnx_ir as ir

from onnx_kvtool.analysis.caches.cache import Cache, kept
from onnx_kvtool.core.record import Record
from onnx_kvtool.core.words import counted, enumerated
from onnx_kvtool.ops.traits import dtype_name
from onnx_kvtool.symbolic.dimensions import bind_dim


class Question(NamedTuple):
    """A question about the caches of a model.

    Attributes:
        capacity: Rows of each sequence; None for the capacity of each cache.
        dim: Name of the dimension that gets `capacity`; None for all caches.
        dtype: Element type of the caches; None for that of each cache.
        memory: Bytes for weights and caches together; None if not requested.
        bandwidth: Bytes per second; None if not requested.
    """

    capacity: int | None = None
    dim: str | None = None
    dtype: ir.DataType | None = None
    memory: int | None = None
    bandwidth: int | None = None

    @property
    def is_asked(self) -> bool:
        """Whether the question asks for anything."""
        return self != Question()


@dataclass(frozen=True, slots=True)
class Step(Record):
    """Bytes that a decode step of one token for each sequence moves, with all rows in use.

    Attributes:
        batch: Sequences.
        weights: Bytes of weights; each is read once.
        read: Bytes of cache rows that attention reads.
        written: Bytes of new rows.
        copied: Bytes read and written because an update is not in place: all rows of a growing
            cache, or of one that the graph keeps from in-place updates.
        tokens_per_second: Most tokens per second at this bandwidth; None if unknown.
        tokens_per_second_in_place: The same with all updates in place.
    """

    batch: int
    weights: int
    read: float
    written: float
    copied: float
    tokens_per_second: float | None
    tokens_per_second_in_place: float | None


@dataclass(frozen=True, slots=True)
class WhatIf(Record):
    """The cost of the caches.

    Attributes:
        capacity: Requested rows; None for those of the caches.
        dtype: Requested element type; None for that of each cache.
        bytes_per_token: Bytes per token and sequence; None if one is unknown.
        bytes_per_sequence: Bytes of all rows of one sequence; None if one is unknown.
        total_bytes: Bytes of all sequences of the batch; None if the batch size is unknown.
        memory: Bytes for weights and caches together; None if not requested.
        sequences: Sequences that fit beside the weights; None if not requested or unknown.
        step: Bytes that a decode step moves; None if unknown.
        notes: Requests that kvtool could not follow, and why.
    """

    capacity: int | None
    dtype: str | None
    bytes_per_token: float | None
    bytes_per_sequence: float | None
    total_bytes: float | None
    memory: int | None
    sequences: int | None
    step: Step | None
    notes: tuple[str, ...] = ()


def answer(question: Question, caches: Sequence[Cache], weight_bytes: int) -> WhatIf:
    """Return the cost of the caches of a model for a question.

    A window with fewer rows than requested keeps them. Windows are circular caches, and caches of a
    fixed size without a proof that their rows stay in place.

    Args:
        question: The question.
        caches: The caches, with the known sizes in their shapes.
        weight_bytes: Bytes of the initializers.
    """
    distinct = kept(caches)
    per_token = [_row_bytes(cache, question.dtype) for cache in distinct]
    rows = [_rows(cache, question) for cache in distinct]
    each = [
        None if row is None or count is None else row * count
        for row, count in zip(per_token, rows, strict=True)
    ]
    sequence = _sum(each)
    batch = _batch(distinct)
    fits = None
    if question.memory is not None and sequence:
        fits = int(max(0, question.memory - weight_bytes) // sequence)
    step = None
    if sequence is not None:
        # What is not updated in place is read and written.
        copied = 2 * sum(
            size or 0 for c, size in zip(distinct, each, strict=True) if not c.in_place.possible
        )
        step = _step(
            batch or 1, weight_bytes, sequence, _sum(per_token), copied, question.bandwidth
        )
    return WhatIf(
        capacity=question.capacity,
        dtype=None if question.dtype is None else dtype_name(question.dtype),
        bytes_per_token=_sum(per_token),
        bytes_per_sequence=sequence,
        total_bytes=None if sequence is None or batch is None else _whole(sequence * batch),
        memory=question.memory,
        sequences=fits,
        step=step,
        notes=tuple(_notes(distinct, question, rows)),
    )


def _row_bytes(cache: Cache, dtype: ir.DataType | None) -> float | None:
    """Return the bytes of one row of one sequence in an element type."""
    now = cache.bytes_per_token
    if now is None or dtype is None:
        return now
    assert cache.dtype is not None
    return _whole(now * dtype.bitwidth / cache.dtype.bitwidth)


def _rows(cache: Cache, question: Question) -> int | None:
    """Return the rows of a sequence in a cache."""
    asked, known = question.capacity, cache.capacity
    if question.dim is not None:
        assert asked is not None
        known = bind_dim(known, {question.dim: asked})
        return known if isinstance(known, int) else None
    if asked is None:
        return known if isinstance(known, int) else None
    return min(asked, known) if is_window(cache) and isinstance(known, int) else asked


def is_window(cache: Cache) -> bool:
    """Return whether a cache is a window, which keeps its rows if it has fewer than requested."""
    return cache.mode != "linear" and not cache.is_growing


def _step(
    batch: int,
    weights: int,
    sequence: float,
    per_token: float | None,
    copied: float,
    bandwidth: int | None,
) -> Step:
    assert per_token is not None  # known where the sum of all rows is
    needed = weights + batch * (sequence + per_token)

    def most(number: float) -> float | None:
        return None if bandwidth is None or not number else batch * bandwidth / number

    return Step(
        batch=batch,
        weights=weights,
        read=_whole(batch * sequence),
        written=_whole(batch * per_token),
        copied=_whole(batch * copied),
        tokens_per_second=most(needed + batch * copied),
        tokens_per_second_in_place=most(needed),
    )


def _notes(caches: Sequence[Cache], question: Question, rows: Sequence[int | None]) -> list[str]:
    notes = []
    asked = question.capacity
    if asked is None or question.dim is not None:
        return []
    fewer = [r for r in rows if r is not None and r < asked]
    if fewer:
        sizes = ", ".join(f"{number:,}" for number in sorted({*fewer}))
        verb = "keeps its" if len(fewer) == 1 else "keep their"
        notes.append(f"{counted(len(fewer), 'window')} {verb} {sizes} rows")
    unsure = [
        cache.past or cache.present or ""
        for cache in caches
        if is_window(cache) and not isinstance(cache.capacity, int)
    ]
    if unsure:
        notes.append(
            f"the window of {enumerated(unsure)} is unknown, and counted with {asked:,} rows"
        )
    return notes


def _batch(caches: Sequence[Cache]) -> int | None:
    """Return the batch size; None if the caches disagree."""
    found = {
        None if c.shape is None or c.batch_axis is None else c.shape[c.batch_axis] for c in caches
    }
    (one,) = found if len(found) == 1 else (None,)
    return one if isinstance(one, int) else None


def _sum(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return _whole(sum(known)) if known and len(known) == len(numbers) else None


def _whole(number: float) -> float:
    return int(number) if number == int(number) else number
