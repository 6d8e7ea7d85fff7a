"""The inputs of the next decode step."""

from __future__ import annotations

import sys

import numpy as np

from onnx_kvtool.runtime.errors import CannotDraw
from onnx_kvtool.runtime.sessions import Array, Arrays
from onnx_kvtool.symbolic.dimensions import evaluate, names_in
from onnx_kvtool.verification.inputs.cases import CASES, Sizes
from onnx_kvtool.verification.inputs.drawing import counted_positions, lengthened
from onnx_kvtool.verification.inputs.plan import InputPlan, InputSpec
from onnx_kvtool.verification.inputs.symbols import Layout, sizes_for
from onnx_kvtool.verification.inputs.values import any_bits, moderate, token_ids


def advance(
    plan: InputPlan,
    inputs: Arrays,
    outputs: Arrays,
    *,
    seed: int = 0,
    dims: Sizes | None = None,
    length: int = 1,
    is_padded: bool = False,
) -> Arrays | None:
    """Return the inputs of the step after the one that took `inputs` and gave `outputs`.

    Each present becomes its past; starts, positions and valid lengths move on by the rows that
    were written; tokens are drawn.

    A number of rows that `dims` binds does not change. If `is_padded`, a mask of all rows tells
    which rows are padding, and positions do not count them. Return None when there is no next step:
    no cache goes round, a linear cache or a table of positions has no room left, or a present does
    not fit its past.
    """
    old = _layout(plan, _sizes(plan, inputs), 1)
    presents = {pair.past: outputs[pair.present] for pair in plan.pairs}
    if old is None or not presents:
        return None
    before = rows_of(plan, inputs)[0]
    sizes = _next_sizes(plan, old, inputs, presents, dims or {}, length, before)
    new = _layout(plan, sizes, old.length)
    if plan.is_counted and before + old.length >= min(plan.capacities, default=sys.maxsize):
        return None  # the present would have more rows than the past
    if new is None or any(new.shapes[past] != a.shape for past, a in presents.items()):
        return None
    rng = np.random.default_rng(seed)

    def value(spec: InputSpec, before: Array) -> Array:
        """Return the next value of an input that is not a cache."""
        shape = new.shapes[spec.name]
        if spec.name in plan.unpadded:
            return np.ones(shape, before.dtype)
        match spec.role:
            case "token_ids":
                return token_ids(rng, spec.dtype, shape, spec.uses, plan.directions)
            case "update" | "past_cache":
                return any_bits(rng, spec.dtype, shape)
            case "write_indices" | "past_length":
                values = before.astype(np.int64) + old.length
            case "nonpad_kv_seqlen" | "seqlens_k" | "total_sequence_length":
                values = before.astype(np.int64) + new.length
                limit = new.valid_limit(spec) if spec.role == "nonpad_kv_seqlen" else None
                values = values if limit is None else np.minimum(values, limit)
            case "position_ids":
                values = before.astype(np.int64)
                if old.is_sequence(spec) and values.size:
                    values = values[..., -1:] + 1 + np.arange(shape[-1], dtype=np.int64)
                else:
                    values = values + old.length
            case "attention_mask":  # ones, but for what the last step masked
                values = np.ones(shape, np.int64)
                kept = tuple(slice(min(a, b)) for a, b in zip(before.shape, shape, strict=True))
                values[kept] = before[kept]
            case "condition" if is_padded:
                values = np.ones(shape, np.int64)  # rows stand before the new ones
            case _:
                is_kept = spec.role == "condition" or before.shape == shape
                return before if is_kept else moderate(rng, spec.dtype, shape)
        return np.asarray(values, spec.dtype.numpy())  # sums of a single position are no arrays

    following = {
        spec.name: presents[spec.name] if spec.name in presents else value(spec, inputs[spec.name])
        for spec in plan.inputs
    }
    if is_padded:
        if (mask := plan.covering_mask) is not None:
            old_mask, shape = inputs[mask.name], following[mask.name].shape
            following[mask.name] = lengthened(old_mask, shape, is_counted=plan.is_counted)
        following.update(counted_positions(plan, following))
    is_full = any(_is_full(spec, new, following[spec.name]) for spec in plan.inputs)
    return None if is_full else following


def rows_of(plan: InputPlan, inputs: Arrays) -> tuple[int, int]:
    """Return how many tokens went before a run, and how many new ones it brings.

    Raises:
        CannotDraw: If the inputs do not say.
    """
    layout = Layout(plan, sizes_for(plan, CASES[0], _sizes(plan, inputs)), 1)
    for counter in plan.with_role("past_length"):
        return int(inputs[counter.name].reshape(-1)[0]), layout.length
    if plan.is_counted and (mask := plan.covering_mask) is not None:
        return inputs[mask.name].shape[-1] - layout.length, layout.length
    for spec in plan.with_role("total_sequence_length"):
        return int(inputs[spec.name].reshape(-1)[0]) - layout.length, layout.length
    return layout.past, layout.length


def reached(plan: InputPlan, inputs: Arrays) -> tuple[int, int]:
    """Return the most rows of a cache or table that a run uses, and the rows of the largest one.

    The latter is 0 where caches grow and no table limits them. Where caches are fixed, no run gets
    further into a table than into the largest cache.
    """
    layout = _layout(plan, _sizes(plan, inputs), 1)
    if layout is None:
        return 0, 0
    used = [layout.past + layout.length if plan.has_caches else 0]
    rows, tables = [*plan.capacities], list[int]()
    fixed = (pair for pair in plan.pairs if pair.kind == "fixed" and pair.window is None)
    rows += filter(None, map(layout.rows, fixed))
    for spec in plan.inputs:
        values = inputs[spec.name]
        if not values.size:
            continue
        most = int(values.max()) if spec.role in _COUNTING else 0
        if spec.role == "write_indices":
            used.append(most + layout.length)
        elif spec.role == "position_ids":
            used.append(most + 1)
            tables += [] if spec.uses.rows is None else [spec.uses.rows]
        elif spec.role in ("nonpad_kv_seqlen", "total_sequence_length"):
            used.append(most)
    largest = max(rows or tables, default=0)
    return min(max(used), largest) if largest else max(used), largest


_COUNTING = frozenset(
    {"write_indices", "position_ids", "nonpad_kv_seqlen", "total_sequence_length"}
)
"""Roles of inputs whose values count rows."""


def _layout(plan: InputPlan, sizes: Sizes, length: int) -> Layout | None:
    try:
        return Layout(plan, sizes_for(plan, CASES[0], sizes), length)
    except CannotDraw:
        return None


def _sizes(plan: InputPlan, arrays: Arrays) -> dict[str, int]:
    """Return the sizes of names, read off the shapes of arrays.

    If a name stands nowhere alone, its size is what the other terms leave of a sum. The rows in use
    of a fixed cache may only show in a mask that is `past + new` long.
    """
    sizes = _alone(plan, arrays)
    summed: dict[str, int] = {}
    for spec in plan.inputs:
        shape = arrays[spec.name].shape if spec.name in arrays else ()
        for dim, size in zip(spec.shape, shape, strict=False):
            unknown = [name for name in names_in(dim) if name not in sizes]
            if isinstance(dim, int) or len(unknown) != 1:
                continue
            try:
                least, following = (evaluate(dim, {**sizes, unknown[0]: n}) for n in (0, 1))
            except ZeroDivisionError:
                continue
            if following == least + 1 and size >= least:
                summed.setdefault(unknown[0], size - least)
    return {**summed, **sizes}


def _alone(plan: InputPlan, arrays: Arrays) -> dict[str, int]:
    return {
        str(dim): size
        for spec in plan.inputs
        if spec.name in arrays
        for dim, size in zip(spec.shape, arrays[spec.name].shape, strict=False)
        if names_in(dim) == (dim,)
    }


def _next_sizes(
    plan: InputPlan,
    old: Layout,
    inputs: Arrays,
    presents: Arrays,
    dims: Sizes,
    length: int,
    before: int,
) -> dict[str, int]:
    kinds = plan.kinds
    sizes = _sizes(plan, inputs)
    totals: list[str] = []
    for name in list(sizes):
        kind = kinds.get(name)
        if kind == "length" and name not in dims:
            sizes[name] = length
        elif kind == "total" and sizes[name] == before + old.length:
            totals.append(name)
    for name in sizes.keys() - _alone(plan, inputs).keys() - dims.keys():
        if kinds.get(name) == "past":  # that no cache has
            sizes[name] += old.length
    sizes.update(_alone(plan, presents))
    lengths = [sizes[name] for name, kind in kinds.items() if kind == "length" and name in sizes]
    new = lengths[0] if lengths else old.length
    sizes.update(dict.fromkeys(totals, before + old.length + new))
    return sizes


def _is_full(spec: InputSpec, layout: Layout, values: Array) -> bool:
    """Return whether the new rows of the starts or positions in `values` would find no room."""
    if spec.role not in ("write_indices", "position_ids", "past_length") or not values.size:
        return False
    last = layout.last_start(spec)
    starts = values[..., :1] if layout.is_sequence(spec) else values
    return last is not None and int(starts.astype(np.int64).max()) > last
