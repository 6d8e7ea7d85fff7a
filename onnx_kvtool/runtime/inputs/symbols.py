"""What the symbolic dimensions of a model's inputs count, and sizes for them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice

from onnx_kvtool.runtime.inputs.cases import LIKELIEST, READINGS, Case, Kind, Reading
from onnx_kvtool.runtime.inputs.plan import InputPlan, InputSpec
from onnx_kvtool.symbolic.dimensions import names_in

__all__ = ["attempts", "fixed_capacities", "kinds_of", "sizes_for", "tokens_before"]


def attempts(
    plan: InputPlan, case: Case, dims: Mapping[str, int], known: Mapping[str, int] | None = None
) -> Iterator[tuple[Case, dict[str, int]]]:
    """Yield readings of the dimensions under which `case` may run, the likeliest first.

    Of a model that looks at its inputs through windows these are sizes for the windows first; of
    one without caches, at last the numbers that stand in it.

    Args:
        plan: The model's inputs.
        case: The sizes that are wanted.
        dims: Sizes that the user has bound; every reading has them.
        known: Sizes of the plan's extents at which another case ran; empty if none did, so that
            there is no point in a search; None for the first case.

    Yields:
        The case, changed where the reading demands it, and the size of every name; no two
        that would draw the same.
    """
    seen: list[object] = []
    for reading, found in _readings(plan, known, case.extra):
        changed = reading.apply(case)
        sizes = {**sizes_for(plan, changed, dims, reading), **found, **dims, **dict(case.sizes)}
        # All else that is drawn follows from these.
        drawn = sizes, changed.start, changed.length
        if drawn not in seen:
            seen.append(drawn)
            yield changed, sizes


_MOST_SIZES = 100
"""Sizes that are tried in one reading."""


def _readings(
    plan: InputPlan, known: Mapping[str, int] | None, extra: int
) -> Iterator[tuple[Reading, Mapping[str, int]]]:
    """Yield readings, each with sizes that take the place of what it gives some names."""
    windows = plan.windows
    if known and extra % windows.strides[-1]:  # not only multiples of the stride
        larger = {name: size + extra for name, size in known.items()}
        yield LIKELIEST, {**windows.channels, **larger}
    if known:
        for number, size in enumerate(known.values()):  # another size than in the other case
            yield (
                LIKELIEST,
                {**windows.channels, **known, [*known][number]: size + windows.strides[-1]},
            )
        yield LIKELIEST, {**windows.channels, **known}
        yield _ALONE, {**windows.channels, **known}
    for reading in (LIKELIEST, _ALONE) if known is None else ():
        for sizes in islice(windows.candidates(), _MOST_SIZES):
            yield reading, {**windows.channels, **sizes}
    for reading in READINGS:
        yield reading, windows.channels
    if not plan.has_caches and known is None:
        open_names = _open_names(plan)
        for number in windows.numbers[:_MOST_SIZES]:
            yield LIKELIEST, {**dict.fromkeys(open_names, number), **windows.channels}


_ALONE = Reading(batch=1)


def _open_names(plan: InputPlan) -> list[str]:
    """Return the names in shapes of which neither a role nor a name says what they count."""
    kinds = kinds_of(plan)
    named = [
        name
        for spec in plan.inputs
        if spec.role != "free"
        for dim in spec.shape
        for name in names_in(dim)
    ]
    return [name for name, kind in kinds.items() if kind != "batch" and name not in named]


_SIZES = (7, 11, 17, 19, 23, 29)
"""Sizes of dimensions that count something else, in order of appearance."""


def sizes_for(
    plan: InputPlan, case: Case, dims: Mapping[str, int], reading: Reading = LIKELIEST
) -> dict[str, int]:
    """Return the size of every name in the shapes of the model's inputs.

    Args:
        plan: The model's inputs.
        case: The sizes that are wanted; names that count the same get the same size.
        dims: Sizes that the user has bound; other names that count the same follow them.
        reading: How dimensions are read that can be read in several ways.
    """
    kinds = kinds_of(plan)
    bound: dict[Kind, int] = {kinds[name]: size for name, size in dims.items() if name in kinds}
    length = bound.get("length", min([case.length, *fixed_capacities(plan)]))
    values: dict[Kind, int] = {
        "batch": bound.get("batch", case.batch),
        "length": length,
        "past": bound.get("past", tokens_before(plan, case, dims, length)),
        "capacity": bound.get("capacity", case.capacity),
    }
    values["total"] = values["past"] + length
    values["total"] = bound.get("total", values[reading.total])
    values["lone"] = bound.get("lone", values[reading.lone])
    others = iter(_SIZES)
    sizes: dict[str, int] = {}
    for name, kind in kinds.items():
        if kind != "size":
            sizes[name] = values[kind]
        else:
            size = next(others, _SIZES[-1]) + (0 if plan.has_caches else case.extra)
            sizes[name] = size if reading.size is None else reading.size
    return {**sizes, **dims}


def tokens_before(plan: InputPlan, case: Case, dims: Mapping[str, int], length: int) -> int:
    """Return how many tokens went before a run of `case`, where growing caches do not say.

    Fixed caches have room for them and for the new rows, unless a case with padding of its own
    says how many they are.
    """
    is_counted = plan.is_counted and any(fixed_capacities(plan))
    if case.padding != "usual" or not (is_counted or plan.with_role("past_length")):
        return case.past
    names = [name for name, kind in kinds_of(plan).items() if kind == "capacity"]
    named = [dims.get(name, case.capacity) for name in names]
    room = max(min([*fixed_capacities(plan), *named], default=case.capacity) - length, 0)
    return room if case.start == "end" else min(case.past, room)


def fixed_capacities(plan: InputPlan) -> Iterator[int]:
    """Yield the sizes of the caches that have a fixed one, where these are numbers."""
    for spec in plan.inputs:
        yield from (w.capacity for w in spec.uses.writes if w.capacity is not None)
        pair = plan.pair_of(spec.name)
        if pair is not None and pair.kind == "fixed" and pair.axis is not None:
            size = spec.shape[pair.axis]
            if isinstance(size, int):
                yield size


def kinds_of(plan: InputPlan) -> dict[str, Kind]:
    """Return what each name in the shapes of the model's inputs counts, in order of appearance.

    The place of a name in an input whose role is known says most, then the name itself, then its
    place in other inputs.
    """
    votes: dict[str, list[tuple[int, Kind]]] = {}
    for spec in plan.inputs:
        for axis, dim in enumerate(spec.shape):
            for name in names_in(dim):
                vote = votes.setdefault(name, [])
                if named := _by_name(name):
                    vote.append((2, named))
                if name == dim:
                    vote.append(_by_place(plan, spec, axis))
    # `max` takes the first of equals, which keeps the answer independent of later inputs.
    return {
        name: max(given, key=lambda vote: vote[0], default=(0, "length"))[1]
        for name, given in votes.items()
    }


_NAMES: tuple[tuple[Kind, str], ...] = (
    ("capacity", r"max|capacity"),
    ("total", r"total|full|kv"),
    ("past", r"past|cache|prefix"),
    ("batch", r"batch|^b$|^bs$|^n$"),
    ("length", r"seq|len|tokens|^l$|^t$"),
)


@lru_cache(maxsize=256)
def _by_name(name: str) -> Kind | None:
    # Exporters that invent names put the input's in front (`cache_d0`), which says nothing.
    if re.search(r"_d(im_)?\d+$|\[\d+\]$", name):
        return None
    return next((kind for kind, pattern in _NAMES if re.search(pattern, name.lower())), None)


def _by_place(plan: InputPlan, spec: InputSpec, axis: int) -> tuple[int, Kind]:
    """Return how much the axis `axis` of an input tells, and what it counts there."""
    rank = len(spec.shape)
    is_last = axis == rank - 1
    match spec.role:
        case "past_cache":
            pair = plan.pair_of(spec.name)
            if axis and pair is not None and axis == pair.axis:
                return 3, "capacity" if pair.kind == "fixed" else "past"
            return 3, "size" if axis else "batch"
        case "update":
            if axis and axis == spec.uses.update_axis:
                return 3, "length"
            return (1, "length") if axis else (3, "batch")
        case "write_indices" | "nonpad_kv_seqlen":
            return (3, "batch") if rank == 1 else (0, "lone")
        case "token_ids" if rank == 1:
            return 3, "length"
        case "token_ids" | "position_ids" if rank > 1:
            return 3, "length" if is_last else "batch" if axis == rank - 2 else "size"
        case "attention_mask":
            if is_last:
                return 1, "total"
            return (3, "batch") if axis == 0 else (1, "length" if axis == rank - 2 else "size")
    if rank == 1:
        return 0, "lone"
    return (0, "length") if axis else (1, "batch")
