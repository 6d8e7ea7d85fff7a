"""Verification of static models that pass caches on, by runs beside their decoder."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.errors import KvtoolError, UsageError
from onnx_kvtool.core.machine import Budget, Progress
from onnx_kvtool.core.reporting import NamedTolerance, Shrunken
from onnx_kvtool.core.words import binary_bytes
from onnx_kvtool.decoding.bound import BoundSession
from onnx_kvtool.decoding.decoder import Decoder
from onnx_kvtool.decoding.kept import Feeder
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.rewrite.report import Verification
from onnx_kvtool.runtime.confined import Exceeded, Limits, confined
from onnx_kvtool.runtime.errors import RuntimeUnavailable
from onnx_kvtool.runtime.onnxruntime import named
from onnx_kvtool.verification.affordable import weight_bytes
from onnx_kvtool.verification.comparison.differences import Tolerance, compare
from onnx_kvtool.verification.inputs.plan import plan
from onnx_kvtool.verification.shrinking.alike_layers import thinned
from onnx_kvtool.verification.shrinking.drawn_weights import (
    skeleton,
    with_counterparts,
    without_unread,
)
from onnx_kvtool.verification.shrinking.shrink import Pair, shrink

_COPIES = 3
"""Copies of a model in memory during a run."""

_SECONDS = 60.0
"""Wall time beyond the budget that ends the runs."""


_ROWS = 512
"""Most rows that a run fills completely."""

_VOCABULARY = 4
"""Size of the vocabulary if the source does not declare it."""


def handed_on(
    source: ir.Model,
    models: Sequence[ir.Model],
    tolerance: NamedTolerance | None,
    *,
    dims: Mapping[str, int],
    budget: Budget,
    progress: Progress,
) -> Verification:
    """Run a decoder and its static models, which pass caches on, with the same tokens.

    The prompts have several lengths: up to all rows if there are at most 512, otherwise more than
    two parts. Tokens follow each prompt. `Decoder` runs both. Copies with fewer layers and smaller
    weights stand in for models that take more than the budget.

    Args:
        source: The decoder; it is not changed.
        models: The static models.
        tolerance: The tolerance of the logits; None for that of their type.
        dims: Sizes of symbolic dimensions of the source.
        budget: Memory and time.
        progress: Receives the current activity.

    Returns:
        `equal`, `different` with the first difference, or `skipped` with the reason.
    """
    progress("handing caches from one model to the next")
    allowed = None if tolerance is None else Tolerance(tolerance.rtol, tolerance.atol)
    times, shrunken = _COPIES * (len(models) + 1), list[Shrunken]()
    needed = times * weight_bytes(source)
    try:
        if needed > budget.memory:
            source, models = _copies(source, models, budget.memory // times, shrunken)
        limits = Limits(budget.seconds + _SECONDS, 4 * budget.memory)
        BoundSession.is_exact = True
        found = confined(
            lambda _: _driven(source, models, allowed, dims, budget.seconds), limits, progress
        )
        return replace(found, shrunken=tuple(shrunken))
    except (Exceeded, RuntimeUnavailable, _NotRun) as error:
        return Verification(
            "skipped",
            detail=f"no caches were handed from one model to the next: {error.message}",
        )
    finally:
        BoundSession.is_exact = False


class _NotRun(KvtoolError):
    """The source does not run, or no copy of it fits."""


def _copies(
    source: ir.Model, models: Sequence[ir.Model], most: int, shrunken: list[Shrunken]
) -> tuple[ir.Model, list[ir.Model]]:
    """Return copies of a source and its models, with the same weights of at most `most` bytes.

    `shrunken` gets the differences in size. Raises `_NotRun` if there are no such copies.
    """
    whole, pairs = skeleton(source, "the source"), list[Pair]()
    try:
        for model in models:
            both = with_counterparts(*without_unread(whole, skeleton(model, "the result")))
            if (fewer := thinned(*both, 2)) is not None:
                both = fewer.a, fewer.b
                shrunken[:] = [Shrunken("blocks that are alike", fewer.before, fewer.after)]
            pairs.append(shrink(*both, 0, most))
    except KvtoolError as error:
        more = (_COPIES * (len(models) + 1) * weight_bytes(source) - 1).bit_length()
        allows = f"`--verify-budget {binary_bytes(1 << more).replace(' ', '')}` allows"
        raise _NotRun(f"{error.message}; {allows} the models themselves") from error
    if len({serialize(pair.a) for pair in pairs}) > 1:
        raise _NotRun("the copies of the source differ between the models")
    shrunken += pairs[0].shrunken
    return pairs[0].a, [pair.b for pair in pairs]


def _driven(
    source: ir.Model,
    models: Sequence[ir.Model],
    allowed: Tolerance | None,
    dims: Mapping[str, int],
    seconds: float,
) -> Verification:
    """Run both and compare their logits."""
    means = plan(models[0])
    name = Feeder(means, 1, None, {}).embeddings
    specs = [s for s in means.inputs if s.role == "token_ids" or s.name == name]
    if not specs or len(specs[0].shape) < 2:
        raise _NotRun("kvtool finds no input for tokens")
    batch, _, *width = (size if isinstance(size, int) else 1 for size in specs[0].shape)
    begin, cases, runs, most, is_equal = time.monotonic(), 0, 0, 0.0, True

    def different(detail: str) -> Verification:
        return Verification("different", named(), cases, runs, detail=detail)

    try:
        pair = Decoder(models, threads=1)
        part = max(pair.parts)
        pair.prefill(np.zeros((batch, part, *width), np.float32 if width else np.int64))
    except UsageError as error:
        return different(f"the models are no decoder together: {error.message}")
    except KvtoolError as error:
        raise _NotRun(error.message) from error
    rows = int(min(pair.room, max(2 * part + 3, _ROWS)))
    try:
        one = Decoder(source, capacity=rows, threads=1, dims=dims)
    except KvtoolError as error:
        raise _NotRun(f"the source does not load: {error.message}") from error
    rng = np.random.default_rng(0)
    ids = rng.integers(0, one.vocabulary or _VOCABULARY, (batch, rows))
    text = rng.standard_normal((batch, rows, *width), np.float32) if width else ids
    for length in (part, rows, 1, part + 1, part - 1, 2 * part - 1, rows - 2):
        if not 0 < length <= rows or (cases and time.monotonic() - begin > seconds):
            continue
        cases += 1
        ends = [length, *(end for end in (length + 1, length + 2, length + 4) if end <= rows)]
        for start, end in zip([0, *ends], ends, strict=False):
            place = f"after a prompt of {length} tokens and {end - length} more"
            new = text[:, start:end]
            try:
                expected = one.step(new) if start else one.prefill(new)
            except KvtoolError as error:
                raise _NotRun(f"the source fails {place}: {error.message}") from error
            try:
                found = pair.step(new) if start else pair.prefill(new)
            except UsageError:
                break  # no model accepts so few tokens
            except KvtoolError as error:
                return different(f"the models fail {place}: {error.message}")
            runs += 1
            difference = compare("logits", expected, found, allowed)
            if not difference.within:
                return different(f"{place} {difference.reason}")
            most = max(most, difference.max_abs_diff or 0.0)
            is_equal = is_equal and difference.bit_equal
    detail = "each model went on with the caches of the other"
    return Verification(
        "equal", named(), cases, runs, most, ("logits",) if is_equal else (), detail
    )
