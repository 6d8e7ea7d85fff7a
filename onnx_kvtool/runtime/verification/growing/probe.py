"""How a model keeps the rows of a cache that is said to roll, seen from runs of it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onnx_kvtool.runtime.comparison.compare import bits_differ
from onnx_kvtool.runtime.comparison.kept import moved_rows
from onnx_kvtool.runtime.errors import CannotDraw, RunFailed, RuntimeUnavailable
from onnx_kvtool.runtime.inputs.cases import Case
from onnx_kvtool.runtime.inputs.drawing import draw
from onnx_kvtool.runtime.inputs.pairs import CachePair
from onnx_kvtool.runtime.inputs.plan import InputPlan
from onnx_kvtool.runtime.inputs.symbols import attempts
from onnx_kvtool.runtime.sessions import RUNTIMES, Array, Arrays
from onnx_kvtool.runtime.verification.growing.rows import Arrangement
from onnx_kvtool.runtime.verification.subject import Subject

__all__ = ["kept_rows_of"]


def kept_rows_of(
    subject: Subject,
    plan: InputPlan,
    pair: CachePair,
    axis: int,
    capacity: int,
    dims: Mapping[str, int],
) -> tuple[Arrangement, int] | None:
    """Return how a model keeps the rows of a cache, and how many; None if it rolls in no known way.

    Args:
        subject: The model.
        plan: Its inputs, and one that counts the tokens before a step.
        pair: The cache.
        axis: The sequence axis.
        capacity: Rows of the cache in its other form.
        dims: Sizes that are bound.
    """
    full = None
    # A cache that keeps all rows beside this one may leave no room for a token more.
    for tokens in (capacity, capacity - 1, 1):
        if (full := _step(subject, plan, pair, tokens, dims)) is not None:
            break
    if full is None:
        return None
    past, present = full
    before, after = past.shape[axis], present.shape[axis]
    new = before - moved_rows(past, present, axis)
    if new in (0, before):
        return None  # no row of the past is found behind another one
    if after != before or before != capacity:
        return ("grows", after) if after < before + new and after <= capacity else None
    if capacity < 3:
        return None
    begun = _step(subject, plan, pair, 1, dims)
    if begun is None:
        return None
    past, present = begun
    if moved_rows(past, present, axis) not in (0, before):
        return "last", before
    other = tuple(index for index in range(past.ndim) if index != axis)
    changed = np.flatnonzero(bits_differ(past, present).any(axis=other))
    return ("first", before) if changed.tolist() == [1] else None


def _step(
    subject: Subject, plan: InputPlan, pair: CachePair, tokens: int, dims: Mapping[str, int]
) -> tuple[Array, Array] | None:
    """Return the cache before and after one more token; None if the model does not run."""
    case = Case("a token", 2, 1, tokens, "anywhere", "none")
    names = [port.name for port in subject.interface.inputs]
    for runtime in RUNTIMES:
        try:
            session = subject.session(runtime)
        except RuntimeUnavailable:
            continue
        for attempt, sizes in attempts(plan, case, dims):
            try:
                inputs: Arrays = draw(plan, attempt, 0, sizes)
                outputs = session.run({name: inputs[name] for name in names})
            except (CannotDraw, RunFailed):
                continue
            return inputs[pair.past], outputs[pair.present]
    return None
