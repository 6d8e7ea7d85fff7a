"""Which two models are one with caches that grow and its form with caches of fixed capacity."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from onnx_kvtool.runtime.inputs.interface import Interface, Port, interface_difference
from onnx_kvtool.runtime.inputs.padding import covering_mask
from onnx_kvtool.runtime.inputs.pairs import CachePair
from onnx_kvtool.runtime.inputs.plan import Dim, InputPlan, InputSpec
from onnx_kvtool.runtime.inputs.symbols import CAPACITY, kinds_of

__all__ = ["FixedCache", "GrowingPair", "Side", "growing_pair"]


@dataclass(frozen=True, slots=True)
class Side:
    """One of two models: what it looks like from outside, and what its inputs mean."""

    interface: Interface
    plan: InputPlan | None


@dataclass(frozen=True, slots=True)
class FixedCache:
    """A cache that grows in A and has a fixed number of rows in B.

    Attributes:
        past: Name of the input of both models.
        present: Name of the output of both models.
        axis: The sequence axis, counted from the front.
        capacity: Rows that it has in B.
    """

    past: str
    present: str
    axis: int
    capacity: int


@dataclass(frozen=True, slots=True)
class GrowingPair:
    """A model with caches that grow, and another one that is to be its form with fixed ones.

    Attributes:
        plan: What the inputs of A mean.
        caches: The caches that grow in A only.
        capacity: Rows of the smallest of them.
        past_length: The input of B alone: the number of tokens before a step; None without.
        mask_columns: Columns of the mask of all rows in B, where that is a number; else None.
        dims: Sizes that B has as numbers, for the names that they have in A.
    """

    plan: InputPlan
    caches: tuple[FixedCache, ...]
    capacity: int
    past_length: InputSpec | None
    mask_columns: int | None
    dims: Mapping[str, int]


def growing_pair(a: Side, b: Side, dims: Mapping[str, int]) -> GrowingPair | None:
    """Return how A, whose caches grow, and B, whose caches do not, belong together.

    Args:
        a: The model with caches that grow.
        b: The other one: the same inputs, outputs and caches, of which some that grow in A have a
            fixed number of rows, and at most one input more, the number of tokens before a step.
        dims: Sizes that the user has bound.

    Returns:
        The pair; None for models that differ in anything else, or of which no cache is fixed.
    """
    if a.plan is None or b.plan is None:
        return None
    more = b.plan.inputs[len(a.plan.inputs) :]
    if len(more) > 1 or any(not _counts_tokens(spec) for spec in more):
        return None
    common = replace(b.interface, inputs=b.interface.inputs[: len(a.interface.inputs)])
    if interface_difference(a.interface, common) is not None:
        return None
    other = {spec.name: spec for spec in b.plan.inputs}
    outputs = {port.name: port for port in b.interface.outputs}
    grown = [p for p in a.plan.pairs if p.kind == "growing" and p.axis is not None]
    fixed = [pair for pair in grown if _is_fixed(pair, other, outputs, b.plan)]
    if not fixed:
        return None
    caches = tuple(
        FixedCache(pair.past, pair.present, axis, _size(other[pair.past].shape[axis], dims))
        for pair in fixed
        if (axis := pair.axis) is not None
    )
    return GrowingPair(
        plan=a.plan,
        caches=caches,
        capacity=min(cache.capacity for cache in caches),
        past_length=more[0] if more else None,
        mask_columns=_mask_columns(a.plan, other),
        dims={**_bound(a.plan, other), **dims},
    )


def _counts_tokens(spec: InputSpec) -> bool:
    return (
        spec.dtype.is_integer()
        and len(spec.shape) < 2
        and re.fullmatch(r"past_length(_\d+)?", spec.name) is not None
    )


def _is_fixed(
    pair: CachePair, other: Mapping[str, InputSpec], outputs: Mapping[str, Port], plan: InputPlan
) -> bool:
    """Return whether a cache that grows in A comes out of B with as many rows as it goes in."""
    assert pair.axis is not None
    shape = outputs[pair.present].shape
    size = other[pair.past].shape[pair.axis]
    if shape is not None and (present := shape[pair.axis]) is not None:
        return size == present
    found = plan.pair_of(pair.past)
    return found is not None and found.kind == "fixed"


def _size(dim: Dim, dims: Mapping[str, int]) -> int:
    return dim if isinstance(dim, int) else dims.get(dim, CAPACITY)


def _mask_columns(plan: InputPlan, other: Mapping[str, InputSpec]) -> int | None:
    mask = covering_mask(plan)
    columns = None if mask is None else other[mask.name].shape[-1]
    return columns if isinstance(columns, int) else None


def _bound(plan: InputPlan, other: Mapping[str, InputSpec]) -> dict[str, int]:
    """Return the sizes that B has as numbers, by their names in A, but for rows of all tokens."""
    return dict(_numbers(plan, other))


def _numbers(plan: InputPlan, other: Mapping[str, InputSpec]) -> Iterator[tuple[str, int]]:
    kinds = kinds_of(plan)
    for spec in plan.inputs:
        for dim, size in zip(spec.shape, other[spec.name].shape, strict=True):
            if not isinstance(dim, str) or not isinstance(size, int):
                continue
            if kinds.get(dim) in ("batch", "length", "size", "lone"):
                yield dim, size
