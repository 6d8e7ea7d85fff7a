"""Run decoders in turns, and report the time and memory of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import cast

import numpy as np
import onnx
import onnx_ir as ir

from onnx_kvtool.commands.arguments import asked, check_least, check_sizes
from onnx_kvtool.commands.options import path_in
from onnx_kvtool.commands.requests import BenchRequest
from onnx_kvtool.core.errors import KvtoolError, UnreadableModel, UsageError
from onnx_kvtool.core.machine import Progress, silent
from onnx_kvtool.core.record import taken
from onnx_kvtool.decoding.report import BenchReport, BenchRun, Workload
from onnx_kvtool.decoding.worker import Round, Worker
from onnx_kvtool.model_io.model import read, serialize
from onnx_kvtool.model_io.model_source import ModelSource, open_model, path_of
from onnx_kvtool.model_io.places import members
from onnx_kvtool.runtime.sessions import check_provider, running_on

_VOCABULARY = 4
"""Size of the vocabulary if no model declares it."""


@asked(BenchRequest)
def bench(request: BenchRequest) -> BenchReport:
    """Run decoders of any form in onnxruntime, in turns, and return time and memory of each.

    Each runs in a process of its own as `kv.Decoder` runs it: caches in place where the model
    allows it. A run that fails is in the report, with the reason.

    Raises:
        UnreadableModel: If a model cannot be read.
        UsageError: If an argument is out of its range.

    Examples:
        >>> report = kv.bench(["decoder.onnx"], prompt=3, tokens=4, rounds=1)
        >>> report.runs[0].form, report.runs[0].in_place, report.same_tokens
        ('fixed', True, True)
    """
    sources = _sources(request)
    given = [
        path_of(source) if path_of(source) else serialize(open_model(source)) for source in sources
    ]
    return _bench(request, given, silent)


def _sources(request: BenchRequest) -> list[ModelSource]:
    models = request.models
    one = isinstance(models, ir.Model | onnx.ModelProto | str) or not isinstance(models, Sequence)
    return [cast(ModelSource, models)] if one else list(cast(Sequence[ModelSource], models))


def run(request: BenchRequest, progress: Progress = silent) -> BenchReport:
    """Carry out `kvtool bench`.

    Args:
        request: What to do.
        progress: Receives the current activity.

    Raises:
        UnreadableModel: If a model cannot be read.
        UsageError: If an argument is out of its range.
    """
    return _bench(request, list(map(path_in, _sources(request))), progress)


def _bench(request: BenchRequest, models: Sequence[str | bytes], progress: Progress) -> BenchReport:
    check_sizes(request.sizes)
    context = request.prompt if request.context is None else request.context
    check_least("context", context, request.prompt)
    workload = taken(Workload, request, context=context)
    check_provider(request.provider)
    if not models:
        raise UsageError("there is no model to run")
    for model in models:
        paths = members(model) if isinstance(model, str) else []
        for path in [paths] if isinstance(paths, str) else paths:
            read(path)
    names = list(map(path_in, _sources(request)))
    runs = [BenchRun(name, batch=workload.batch) for name in names]
    workers: list[Worker | None] = [None] * len(models)
    profiles = []

    @contextmanager
    def noting(number: int) -> Iterator[None]:
        """Note a failure of a model, which then runs no more."""
        try:
            yield
        except KvtoolError as error:
            if isinstance(error, UnreadableModel) and workers[number] is None:
                raise  # it never ran
            text = error.message if error.help is None else f"{error.message}; {error.help}"
            runs[number] = replace(runs[number], failure=text)
            workers[number] = None

    with ExitStack() as open_:
        for number, model in enumerate(models):
            progress("loading", number + 1, len(models))
            with noting(number):
                worker = Worker(
                    model,
                    names[number] or "a model in memory",
                    capacity=workload.context + workload.tokens,
                    threads=workload.threads,
                    provider=request.provider,
                    dims=request.sizes,
                )
                open_.callback(worker.close)
                workers[number] = worker
                form, in_place = worker.loaded.form, worker.loaded.in_place
                runs[number] = replace(runs[number], form=form, in_place=in_place)
        sizes = [w.loaded.vocabulary for w in workers if w and w.loaded.vocabulary is not None]
        rng, shape = np.random.default_rng(workload.seed), (workload.batch, workload.prompt)
        ids = rng.integers(0, min(sizes, default=_VOCABULARY), shape, dtype=np.int64)
        for round_ in range(workload.rounds):
            progress("running, round", round_ + 1, workload.rounds)
            for number, runner in enumerate(workers):
                with noting(number):
                    if runner is not None:
                        done = runner.round(ids, workload.context, workload.tokens)
                        runs[number] = _added(runs[number], done)
        for number, runner in enumerate(workers if request.profile else ()):
            with noting(number):
                if runner is not None:
                    progress("profiling", number + 1, len(workers))
                    found = runner.profile(ids, workload.context, workload.tokens)
                    profiles.append(replace(found, model=names[number]))
    from onnx_kvtool.runtime.onnxruntime import named

    with running_on(request.provider):
        return BenchReport(workload, named(), tuple(runs), tuple(profiles))


def _added(run: BenchRun, done: Round) -> BenchRun:
    return replace(
        run,
        first_tokens=(*run.first_tokens, done.first_token),
        steps=(*run.steps, *done.steps),
        peak_bytes=done.peak_bytes,
        chosen=tuple(tuple(int(token) for token in row) for row in done.chosen),
    )
