"""What the caches of a model cost together, by batch and sequence length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnx_kvtool.analysis.caches.cache import Cache
from onnx_kvtool.core.quantity import binary_bytes, counted
from onnx_kvtool.symbolic.dims import Dim

__all__ = ["Footprint", "Share", "footprint", "growing", "growth_in_words", "kept"]


@dataclass(frozen=True, slots=True)
class Share:
    """What one or several caches of one size cost.

    Attributes:
        bytes_per_token: Bytes of one row of one sequence, of all these caches together.
        capacity: Rows of each sequence that are allocated; None where the cache grows, or its
            capacity is not a number.
        batch: Sequences of a batch; None where their number is not fixed.
    """

    bytes_per_token: int | float
    capacity: int | None
    batch: int | None

    def allocated(self, batch: int, tokens: int) -> float:
        """Return the bytes for `batch` sequences of `tokens` tokens each.

        A cache of fixed capacity takes it whole from the first token on. A number that the model
        fixes counts, not the one that is given.
        """
        rows = tokens if self.capacity is None else self.capacity
        return self.bytes_per_token * rows * (batch if self.batch is None else self.batch)


@dataclass(frozen=True, slots=True)
class Footprint:
    """What the caches of a model cost together; a cache that two nodes update counts once.

    Attributes:
        count: Number of caches.
        shares: Those whose bytes per token are known, equal ones added up.
        unknown: Names of those whose bytes per token are not known.
        bytes_per_token: Bytes of one token of one sequence; None when one is not known.
        total_bytes: Bytes of all; None when one is not known.
    """

    count: int
    shares: tuple[Share, ...]
    unknown: tuple[str, ...]
    bytes_per_token: int | float | None
    total_bytes: int | None

    def allocated(self, batch: int, tokens: int) -> float:
        """Return the bytes of the known shares for `batch` sequences of `tokens` tokens each."""
        return sum(share.allocated(batch, tokens) for share in self.shares)


def kept(caches: Sequence[Cache]) -> list[Cache]:
    """Return each cache once, though several nodes may update it in turn or in branches."""
    found: dict[object, Cache] = {}
    for cache in caches:
        value = cache.past_value
        name = cache.past or cache.present  # all that a report from JSON knows
        found.setdefault(id(value) if value is not None else name, cache)
    return list(found.values())


def footprint(caches: Sequence[Cache]) -> Footprint:
    """Add up what `caches` cost."""
    distinct = kept(caches)
    sizes: dict[tuple[int | None, int | None], int | float] = {}
    unknown: list[str] = []
    for cache in distinct:
        per_token = cache.bytes_per_token
        if per_token is None:
            unknown.append(cache.past or cache.present or "")
            continue
        assert cache.shape is not None and cache.batch_axis is not None
        capacity = None if cache.is_growing else _number(cache.capacity)
        key = capacity, _number(cache.shape[cache.batch_axis])
        sizes[key] = sizes.get(key, 0) + per_token
    totals = [cache.total_bytes for cache in distinct]
    known = [total for total in totals if total is not None]
    return Footprint(
        count=len(distinct),
        shares=tuple(Share(size, *key) for key, size in sizes.items()),
        unknown=tuple(unknown),
        bytes_per_token=None if unknown else sum(sizes.values()),
        total_bytes=sum(known) if len(known) == len(totals) else None,
    )


def growing(caches: Sequence[Cache]) -> list[Cache]:
    """Return the caches that come in with the rows of the past and go out with new ones as well."""
    return [cache for cache in caches if cache.is_growing and cache.past is not None]


def growth_in_words(caches: Sequence[Cache]) -> str:
    """Return what a step costs because these caches grow, as a clause."""
    text = f"a step copies all rows of {counted(len(caches), 'cache')}"
    per_token = footprint(caches).bytes_per_token
    if per_token is None:
        return text
    return f"{text}, {binary_bytes(per_token)} for each token so far of one sequence"


def _number(dim: Dim) -> int | None:
    return dim if isinstance(dim, int) else None
