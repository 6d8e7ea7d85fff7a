"""Proof by running that static models of one decoder hand on its caches as it does itself."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from onnx_kvtool.core.errors import KvtoolError
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
from onnx_kvtool.verification.comparison.compare import Tolerance, compare
from onnx_kvtool.verification.inputs.plan import plan
from onnx_kvtool.verification.shrinking.layers import thinned
from onnx_kvtool.verification.shrinking.shrink import Pair, shrink
from onnx_kvtool.verification.shrinking.weights import (
    skeleton,
    with_counterparts,
    without_unread,
)
from onnx_kvtool.verification.sizes import weight_bytes

__all__ = ["handed_on"]

_COPIES = 3
"""How often a model stands in memory while it is run."""

_SECONDS = 60.0
"""Wall time beyond the budget that ends the runs."""


def handed_on(
    source: ir.Model,
    models: Sequence[ir.Model],
    tolerance: NamedTolerance | None,
    *,
    dims: Mapping[str, int],
    budget: Budget,
    progress: Progress,
) -> Verification:
    """Drive a decoder and static models of it, which hand on their caches, by the same tokens.

    Prompts of several lengths, the longest of which fill all rows, and tokens behind each of them.
    Both are driven as `Decoder` does it. Models that take more than the budget are driven by
    copies with fewer layers and smaller weights.

    Args:
        source: The decoder; it is not changed.
        models: The models that together are to be equal.
        tolerance: How close their logits have to be; None for what the type of these allows.
        dims: Sizes of symbolic dimensions of the source.
        budget: Memory and time.
        progress: Told of what is begun.

    Returns:
        `equal`, `different` with the first difference, or `skipped` with the reason.
    """
    progress("handing caches from one model to the next")
    allowed = None
    if tolerance is not None:
        allowed = Tolerance(tolerance.rtol, tolerance.atol, tolerance.because)
    try:
        run = _Run.of(source, models, budget)
        limits = Limits(budget.seconds + _SECONDS, 4 * max(budget.memory, run.needed))
        BoundSession.is_exact = True
        return confined(lambda _: run.driven(allowed, dims, budget.seconds), limits, progress)
    except (Exceeded, RuntimeUnavailable, _NotRun) as error:
        detail = f"no caches were handed from one model to the next: {error.message}"
        return Verification("skipped", detail=detail)
    finally:
        BoundSession.is_exact = False


_VOCABULARY = 4
"""Tokens that are taken to exist where the source does not say how many it knows."""


class _NotRun(KvtoolError):
    """The source does not run, or there is no copy of it."""


@dataclass(frozen=True, slots=True)
class _Run:
    """What is run.

    Attributes:
        source: The decoder, or a copy.
        models: The models that are made of it, or copies.
        needed: Bytes that all of them take.
        shrunken: What copies have less of.
    """

    source: ir.Model
    models: Sequence[ir.Model]
    needed: int
    shrunken: tuple[Shrunken, ...] = ()

    @staticmethod
    def of(source: ir.Model, models: Sequence[ir.Model], budget: Budget) -> _Run:
        """Return the models, or copies where these take more than the budget.

        Raises:
            _NotRun: If there are no copies.
        """
        times = _COPIES * (len(models) + 1)
        needed = times * weight_bytes(source)
        if needed <= budget.memory:
            return _Run(source, models, needed)
        try:
            return _copies(source, models, budget.memory // times)
        except KvtoolError as error:
            more = binary_bytes(1 << (needed - 1).bit_length()).replace(" ", "")
            text = f"{error.message}; `--verify-budget {more}` allows the models themselves"
            raise _NotRun(text) from error

    def driven(
        self, allowed: Tolerance | None, dims: Mapping[str, int], seconds: float
    ) -> Verification:
        """Drive both and compare their logits."""
        means = plan(self.models[0])
        name = Feeder(means, 1, None, {}).embeddings
        specs = [s for s in means.inputs if s.role == "token_ids" or s.name == name]
        if not specs or len(specs[0].shape) < 2:
            raise _NotRun("no input is known to take tokens")
        batch, _, *width = (size if isinstance(size, int) else 1 for size in specs[0].shape)
        try:
            pair = Decoder(self.models, threads=1)
            pair.prefill(np.zeros((batch, 1, *width), np.float32 if width else np.int64))
        except RuntimeUnavailable:
            raise
        except KvtoolError as error:
            return self._different(f"the models are no decoder together: {error.message}")
        part = max(pair.parts)
        rows = int(min(pair.room, 2 * part + 3))
        one = Decoder(self.source, capacity=rows, threads=1, dims=dims)
        rng = np.random.default_rng(0)
        ids = rng.integers(0, one.vocabulary or _VOCABULARY, (batch, rows))
        text = rng.standard_normal((batch, rows, *width), np.float32) if width else ids
        begin, cases, runs, most, is_equal = time.monotonic(), 0, 0, 0.0, True
        for length in (part, part + 1, 1, part - 1, 2 * part - 1, rows - 2, rows):
            if not 0 < length <= rows or (cases and time.monotonic() - begin > seconds):
                continue
            cases += 1
            ends = [length, *(end for end in (length + 1, length + 2, length + 4) if end <= rows)]
            for start, end in zip([0, *ends], ends, strict=False):
                place = f"after a prompt of {length} tokens and {end - length} more"
                try:
                    expected = one.step(text[:, start:end]) if start else one.prefill(text[:, :end])
                except KvtoolError as error:
                    raise _NotRun(f"the source fails {place}: {error.message}") from error
                try:
                    found = pair.step(text[:, start:end]) if start else pair.prefill(text[:, :end])
                except KvtoolError as error:
                    return self._different(f"the models fail {place}: {error.message}")
                runs += 1
                difference = compare("logits", expected, found, allowed)
                if not difference.within:
                    return self._different(f"{place} {difference.reason}")
                most = max(most, difference.max_abs_diff or 0.0)
                is_equal = is_equal and difference.bit_equal
        return Verification(
            "equal",
            named(),
            cases,
            runs,
            most,
            ("logits",) if is_equal else (),
            "each model went on with the caches of the other" + ", of copies" * bool(self.shrunken),
            self.shrunken,
        )

    def _different(self, detail: str) -> Verification:
        return Verification("different", named(), detail=detail, shrunken=self.shrunken)


def _copies(source: ir.Model, models: Sequence[ir.Model], most: int) -> _Run:
    """Return copies of a source and its models, with the same weights.

    Raises:
        KvtoolError: If there are none within so many bytes each.
    """
    whole, pairs, layers = skeleton(source, "the source"), list[Pair](), list[Shrunken]()
    for model in models:
        both = with_counterparts(*without_unread(whole, skeleton(model, "the result")))
        fewer = thinned(*both, 2)
        if fewer is not None:
            both = fewer.a, fewer.b
            layers = [Shrunken("blocks that are alike", fewer.before, fewer.after)]
        pairs.append(shrink(*both, 0, most))
    copies = {serialize(pair.a) for pair in pairs}
    if len(copies) > 1:
        raise _NotRun("each model has another copy of the source")
    return _Run(
        pairs[0].a,
        [pair.b for pair in pairs],
        most * (len(models) + 1),
        (*layers, *pairs[0].shrunken),
    )
