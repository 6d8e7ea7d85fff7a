"""The runs in which a model with growing caches is compared with its fixed form."""

from __future__ import annotations

from dataclasses import replace

from onnx_kvtool.runtime.inputs.cases import Case, Padding
from onnx_kvtool.runtime.inputs.padding import padding_input
from onnx_kvtool.runtime.verification.growing.pair import GrowingPair

__all__ = ["growing_cases"]

_CHUNK = 3
"""New rows of a chunk: more than one, and another number than a batch has sequences."""


def growing_cases(pair: GrowingPair, count: int | None, steps: int | None) -> tuple[Case, ...]:
    """Return the cases for a pair: prompts, steps, padding, chunks, and caches filled to the end.

    No case asks for more rows than the capacity but by its steps, which end there.

    Args:
        pair: The models.
        count: How many cases; None for the usual ones, more for others in other sizes.
        steps: Decode steps after the first run of each; None for those of the cases.
    """
    room = pair.room
    usual = _usual(room, _sides(pair), pair.window, is_counted=pair.plan.is_counted)
    cases = list(usual if count is None else usual[:count])
    while count is not None and len(cases) < count:
        cases.append(_varied(usual[len(cases) % len(usual)], len(cases), room))
    cases = [_sized(case, pair) for case in cases]
    if steps is not None:
        cases = [replace(case, chunks=(1,) * steps) for case in cases]
    return tuple(cases)


def _sized(case: Case, pair: GrowingPair) -> Case:
    """Return a case with sizes for caches of A that hold the last rows only.

    Where one of them shares the name of its size with a cache that holds all rows, the case has no
    more rows than both hold.
    """
    shapes = {spec.name: spec.shape for spec in pair.plan.inputs}
    named = [(cache, str(shapes[cache.past][cache.axis])) for cache in pair.caches]
    every = {dim for cache, dim in named if cache.most is None}
    most = min((c.most for c, dim in named if c.most and dim in every), default=case.past)
    case = replace(case, past=min(case.past, most))
    sizes = {
        dim: min(case.past, cache.most)
        for cache, dim in named
        if cache.most is not None and cache.arrangement == "grows" and dim not in every
    }
    return replace(case, sizes=tuple(sizes.items()))


def _sides(pair: GrowingPair) -> tuple[Padding, ...]:
    """Return on which sides of the tokens padding may stand."""
    if padding_input(pair.plan) is None:
        return ()
    return ("right",) if pair.plan.is_counted else ("left", "right")


def _usual(
    capacity: int, sides: tuple[Padding, ...], window: int | None, *, is_counted: bool
) -> tuple[Case, ...]:
    last = sides[:1] or ("none",)
    cases = [
        _case("a prompt for two empty caches", 2, 3, 0, capacity, chunks=(1, 1)),
        _case("one token for one sequence", 1, 1, 4, capacity, chunks=(1,)),
        *(
            _case(
                f"three prompts with padding on the {side}", 3, 5, 0, capacity, side, chunks=(1, 1)
            )
            for side in sides
        ),
        _case("a chunk of tokens in mid-sequence", 1, _CHUNK, 4, capacity, chunks=(1,)),
    ]
    # onnxruntime's GroupQueryAttention takes chunks behind other rows for one sequence only.
    chunk = 1 if is_counted else _CHUNK
    if is_counted:
        case = _case("sequences of different lengths", 3, 1, 5, capacity, last[0], chunks=(1, 1))
    else:
        case = _case("chunks behind padding", 2, 2, 5, capacity, last[0], chunks=(_CHUNK, 1))
    cases.append(case)
    if window is not None:
        past, chunks = max(min(window, capacity) - 2, 0), (1, 1, 1)
        cases.append(_case("tokens over the end of a window", 2, 1, past, capacity, chunks=chunks))
        case = _case("a chunk over the end of a window", 1, _CHUNK, past, capacity, chunks=(1,))
        cases.append(case)
    length = min(chunk, capacity)
    past = max(capacity - length - 2, 0)
    steps = (1,) * (capacity - length - past)
    cases.append(Case("tokens up to the last row", 2, length, past, "end", last[0], steps))
    return tuple(cases)


def _case(
    name: str,
    batch: int,
    length: int,
    past: int,
    capacity: int,
    padding: Padding = "none",
    *,
    chunks: tuple[int, ...],
) -> Case:
    length = min(length, capacity)
    return Case(name, batch, length, min(past, capacity - length), "anywhere", padding, chunks)


def _varied(base: Case, number: int, capacity: int) -> Case:
    """Return a case like `base` in sizes that follow from its number."""
    batch, length = 1 + (base.batch + number) % 4, min(1 + (base.length + 2 * number) % 7, capacity)
    past = min(base.past and 1 + (base.past + number) % 9, capacity - length)
    name = f"case {number + 1}, {batch} x {length} rows behind {past}"
    return replace(base, name=name, batch=batch, length=length, past=past)
