"""Run decoders in turns, as a good host would, and say what each takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import onnx
import onnx_ir as ir

from onnx_kvtool.commands.arguments import check_least, check_sizes, speaking_python
from onnx_kvtool.core.errors import KvtoolError, UnreadableModel, UsageError
from onnx_kvtool.core.machine import Progress, silent
from onnx_kvtool.decoding.report import BenchReport, BenchRun, Workload
from onnx_kvtool.decoding.worker import Round, Worker
from onnx_kvtool.model_io.model import read, serialize
from onnx_kvtool.model_io.model_source import ModelSource, open_model, path_of

__all__ = ["BenchRequest", "bench", "run"]

_VOCABULARY = 4
"""Tokens that are taken to exist where no model says how many it knows."""


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """What `kvtool bench` was asked to do.

    Attributes:
        models: Paths of the models.
        prompt: Tokens of the prompt.
        tokens: Tokens that are made.
        context: Tokens before the steps; None for those of the prompt.
        batch: Sequences.
        threads: Threads that a node may use; None for one for each core.
        rounds: How often each model runs, in turns.
        seed: For the tokens of the prompt.
        dims: Sizes of symbolic dimensions.
    """

    models: tuple[str, ...]
    prompt: int = 64
    tokens: int = 32
    context: int | None = None
    batch: int = 1
    threads: int | None = None
    rounds: int = 3
    seed: int = 0
    dims: Mapping[str, int] = field(default_factory=dict)


@speaking_python
def bench(
    models: ModelSource | Sequence[ModelSource],
    *,
    prompt: int = 64,
    tokens: int = 32,
    context: int | None = None,
    batch: int = 1,
    threads: int | None = None,
    rounds: int = 3,
    seed: int = 0,
    dims: Mapping[str, int] | None = None,
) -> BenchReport:
    """Run decoders of any form in onnxruntime, in turns, and return what each takes.

    Each runs in a process of its own as `kv.Decoder` runs it: caches in place where the model
    allows it. A run that fails is in the report, with the reason.

    Args:
        models: A model or several: paths, or models in memory, which are not changed.
        prompt: Tokens of the prompt of each sequence.
        tokens: Tokens that are made after it, at least 2; the first one is that of the prompt.
        context: Tokens that stand before the steps; between prompt and steps there are rows of
            zeros. None for those of the prompt.
        batch: Sequences.
        threads: Threads that a node may use; None for one for each core.
        rounds: How often each model runs.
        seed: The same seed gives the same prompt.
        dims: Sizes of symbolic dimensions that are neither sequences nor rows.

    Raises:
        UnreadableModel: If a model cannot be read.
        UsageError: If an argument is out of its range.

    Examples:
        >>> report = kv.bench(["decoder.onnx"], prompt=3, tokens=4, rounds=1)
        >>> report.runs[0].form, report.runs[0].in_place, report.same_tokens
        ('fixed', True, True)
    """
    one = isinstance(models, ir.Model | onnx.ModelProto | str) or not isinstance(models, Sequence)
    sources = [cast(ModelSource, models)] if one else list(cast(Sequence[ModelSource], models))
    request = BenchRequest(
        models=tuple(path_of(source) for source in sources),
        prompt=prompt,
        tokens=tokens,
        context=context,
        batch=batch,
        threads=threads,
        rounds=rounds,
        seed=seed,
        dims=dims or {},
    )
    given = [
        path_of(source) if path_of(source) else serialize(open_model(source)) for source in sources
    ]
    return _bench(request, given, silent)


def run(request: BenchRequest, progress: Progress = silent) -> BenchReport:
    """Carry out `kvtool bench`.

    Args:
        request: What to do.
        progress: Told of what is begun.

    Raises:
        UnreadableModel: If a model cannot be read.
        UsageError: If an argument is out of its range.
    """
    return _bench(request, request.models, progress)


def _bench(request: BenchRequest, models: Sequence[str | bytes], progress: Progress) -> BenchReport:
    workload = _workload(request)
    if not models:
        raise UsageError("there is no model to run")
    for model in models:
        if isinstance(model, str):
            read(model)
    runs = [BenchRun(name, batch=workload.batch) for name in request.models]
    with ExitStack() as open_:
        workers: list[Worker | None] = []
        for number, model in enumerate(models):
            progress("loading", number + 1, len(models))
            workers.append(None)
            try:
                name = request.models[number] or "a model in memory"
                worker = Worker(
                    model,
                    name,
                    capacity=workload.context + workload.tokens,
                    threads=workload.threads,
                    dims=request.dims,
                )
            except UnreadableModel:
                raise
            except KvtoolError as error:
                runs[number] = replace(runs[number], failure=_told(error))
                continue
            open_.callback(worker.close)
            workers[number] = worker
            form, in_place = worker.loaded.form, worker.loaded.in_place
            runs[number] = replace(runs[number], form=form, in_place=in_place)
        ids = _prompt(workload, [w.loaded.vocabulary for w in workers if w is not None])
        for round_ in range(workload.rounds):
            progress("running, round", round_ + 1, workload.rounds)
            for number, runner in enumerate(workers):
                if runner is None:
                    continue
                try:
                    done = runner.round(ids, workload.context, workload.tokens)
                except KvtoolError as error:
                    runs[number] = replace(runs[number], failure=_told(error))
                    workers[number] = None
                    continue
                runs[number] = _added(runs[number], done)
    from onnx_kvtool.runtime.onnxruntime import VERSION

    return BenchReport(workload, f"onnxruntime {VERSION}", tuple(runs))


def _told(error: KvtoolError) -> str:
    return error.message if error.help is None else f"{error.message}; {error.help}"


def _added(run: BenchRun, done: Round) -> BenchRun:
    return replace(
        run,
        first_tokens=(*run.first_tokens, done.first_token),
        steps=(*run.steps, *done.steps),
        peak_bytes=done.peak_bytes,
        chosen=tuple(tuple(int(token) for token in row) for row in done.chosen),
    )


def _workload(request: BenchRequest) -> Workload:
    for name in ("prompt", "batch", "rounds", "threads"):
        check_least(name, getattr(request, name), 1)
    check_least("tokens", request.tokens, 2)
    check_sizes(request.dims)
    context = request.prompt if request.context is None else request.context
    check_least("context", context, request.prompt)
    return Workload(
        prompt=request.prompt,
        tokens=request.tokens,
        context=context,
        batch=request.batch,
        threads=request.threads,
        rounds=request.rounds,
        seed=request.seed,
    )


def _prompt(
    workload: Workload, vocabularies: Sequence[int | None]
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    known = [size for size in vocabularies if size is not None]
    rng = np.random.default_rng(workload.seed)
    shape = workload.batch, workload.prompt
    return rng.integers(0, min(known, default=_VOCABULARY), shape, dtype=np.int64)
