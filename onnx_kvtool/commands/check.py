"""`kvtool check`: its request, the checks of it, and the work."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import cast

import onnx
import onnx_ir as ir

from onnx_kvtool.commands.arguments import asked, check_sizes
from onnx_kvtool.commands.check_file import check_file, check_model, check_nothing, died
from onnx_kvtool.commands.check_settings import Settings, resolve
from onnx_kvtool.commands.requests import CheckCall, CheckRequest
from onnx_kvtool.core.errors import UsageError, refuse
from onnx_kvtool.core.machine import Progress, silent
from onnx_kvtool.core.words import counted, unknown_name
from onnx_kvtool.lint.jobs import run_jobs
from onnx_kvtool.lint.report import CheckReport, FileReport, Known, Tally
from onnx_kvtool.lint.settings.baseline import Baseline
from onnx_kvtool.lint.settings.files import find_models, parse_shard, take_shard
from onnx_kvtool.model_io.atomic import watch
from onnx_kvtool.model_io.model_source import path_of
from onnx_kvtool.model_io.places import is_same
from onnx_kvtool.model_io.remote import is_remote, requests


@asked(CheckCall)
def check(request: CheckCall) -> CheckReport:
    """Return what the rules find in a model, or in several.

    Nothing is run and nothing is written. Configuration files count only where `config` names one.

    Returns:
        The report, a sequence of findings: each has `code`, `severity`, `message`, `help` and
        `location`. Its `files` tell them apart.

    Raises:
        UnreadableModel: If the only file cannot be read; among several, that is a finding.
        UsageError: If a code, a target, a dimension or the configuration is wrong.

    Examples:
        >>> for finding in kv.check("wrong_axis.onnx"):
        ...     print(finding.code, finding.severity, finding.location)
        KV001 error decoder, node `cache` (TensorScatter)
        >>> report = kv.check(["decoder.onnx", "exported.onnx"], select=["KV0"])
        >>> len(report), report.exit_code
        (0, 0)
    """
    check_sizes(request.sizes)
    model = request.model
    request = request.replace(isolated=request.config is None)
    if isinstance(model, ir.Model | onnx.ModelProto):
        settings = resolve(request)
        file = check_model(model, settings)
        sizes = _Sizes()
        sizes.check(file)
        sizes.check_all()
        return CheckReport((file,), settings.fail_on)
    several = isinstance(model, Sequence) and not isinstance(model, str | bytes)
    paths = tuple(map(path_of, cast(Sequence[str], model if several else (model,))))
    request = request.replace(paths=paths, fix=False)
    return run(request) if paths else CheckReport((), resolve(request).fail_on)


def run(request: CheckRequest) -> CheckReport:
    """Carry out `kvtool check` and keep all reports; see `stream`."""
    files: list[FileReport] = []
    tally = stream(request, files.append)
    return CheckReport(tuple(files), tally.fail_on, tally.notes, tally.shard)


def stream(
    request: CheckRequest,
    take: Callable[[FileReport], None],
    progress: Progress = silent,
    *,
    settings: Settings | None = None,
    tally: Tally | None = None,
    may_copy: bool = False,
) -> Tally:
    """Carry out `kvtool check`, but for the writing of the report.

    Reports are passed on and not kept: apart from names, memory does not grow with the number of
    files.

    Args:
        request: What to do.
        take: Gets the report of each file, in order, as soon as it is ready.
        progress: Receives the number of each file.
        settings: The resolved request; None to `resolve` it.
        tally: Counts each file before `take` gets it; None for a new one.
        may_copy: Whether worker processes may be copies of this one, as for `run_jobs`.

    Returns:
        The complete tally.

    Raises:
        UsageError: If the flags or the configuration are wrong or contradict each other; for a
            size of a dimension that no model has, after the last file.
        UnreadableModel: If the only file cannot be read.
        UnwritableOutput: If a fixed model or the baseline cannot be written.
    """
    settings = settings or resolve(request)
    _refuse_nonsense(request, settings)
    tally = tally or Tally(settings.fail_on)
    with requests(settings.timeout) as notes:
        paths = find_models(request.paths)
    tally.notes += tuple(notes)
    several = len(paths) > 1
    if request.shard is not None:
        shard = parse_shard(request.shard)
        paths = take_shard(paths, shard)
        tally.shard = "{}/{}".format(*shard)
    _spare_models(request, paths)
    settings = replace(settings, several=several)
    known = None if settings.baseline is None else _KnownFiles(settings.baseline, request, paths)
    if known is not None:
        settings = replace(settings, baseline=known.baseline)
    sizes = _Sizes()
    baseline = None if request.write_baseline is None else Baseline(request.write_baseline)
    for found in _each(paths, settings, progress, may_copy, tally):
        sizes.check(found)
        file = found
        if baseline is not None:
            baseline.add(found)
            file = replace(found, findings=(), baselined=len(found.findings))
        if known is not None:
            known.add(file)
        tally.add(file)
        take(file)
    sizes.check_all()
    if not paths:
        where = ", ".join(f"`{path}`" for path in request.paths) or "the current directory"
        tally.notes = (*tally.notes, f"there is no model in {where}")
    if baseline is not None:
        count = counted(baseline.write(), "finding")
        written = f"{count} written to the baseline `{request.write_baseline}`"
        tally.notes = (*tally.notes, written)
    if known is not None:
        tally.notes = (*tally.notes, *known.notes(prune=request.prune_baseline))
    return tally


class _KnownFiles:
    """A baseline, with the names that files have in a run, and its stale findings."""

    def __init__(self, baseline: Baseline, request: CheckRequest, paths: Sequence[str]) -> None:
        self._renamed = baseline.renamed(paths)
        self.baseline = baseline.with_names(self._renamed)
        directories = [p for p in request.paths or (os.curdir,) if os.path.isdir(p)]
        self._gone = self.baseline.gone(directories)
        self._stale: dict[str, tuple[Known, ...]] = {}

    def add(self, file: FileReport) -> None:
        if file.stale:
            self._stale[file.path] = file.stale

    def notes(self, *, prune: bool) -> Iterator[str]:
        """Yield messages about the baseline, and write it with --prune-baseline.

        Raises:
            UnwritableOutput: If it cannot be written.
        """
        name = f"`{self.baseline.path}`"
        for path, before in self._renamed.items():
            yield f"the baseline {name} knows `{path}` as `{before}`, which has the same content"
        count = sum(map(len, self._stale.values()))
        count += sum(len(self.baseline.files[gone]) for gone in self._gone)
        if prune and (count or self._renamed):
            self.baseline.without(self._stale, self._gone).write()
            yield f"{counted(count, 'finding')} dropped from the baseline {name}, which is written"
        elif count:
            what = counted(count, "finding")
            yield f"{what} in the baseline {name} no longer there: drop with `--prune-baseline`"


def _each(
    paths: Sequence[str], settings: Settings, progress: Progress, may_copy: bool, tally: Tally
) -> Iterator[FileReport]:
    """Yield the report of each file, in order; that of an earlier run if it is still valid."""
    if settings.cache_dir is None or settings.fix != "none":
        yield from _checked(paths, settings, progress, may_copy)
        return
    from onnx_kvtool.commands.check_cache import Kept

    with Kept(settings.cache_dir, settings) as kept:
        has = [path != "-" and not is_remote(path) and kept.has(path) for path in paths]
        others = [path for path, is_kept in zip(paths, has, strict=True) if not is_kept]
        checked = _checked(others, settings, progress, may_copy)
        for path, is_kept in zip(paths, has, strict=True):
            file = kept.get(path) if is_kept else None
            if file is None:
                file = check_file(path, settings) if is_kept else next(checked)
                kept.keep(file)
            yield file
        tally.notes += kept.notes


def _checked(
    paths: Sequence[str], settings: Settings, progress: Progress, may_copy: bool
) -> Iterator[FileReport]:
    """Check each file, and yield the reports in order."""
    jobs = 1 if "-" in paths else settings.jobs  # workers have another standard input
    work = functools.partial(check_file, settings=settings)
    if jobs > 1 and settings.fix == "apply":
        for path in paths:  # which other processes will write
            watch(path)
    dead = functools.partial(died, settings=settings)
    if settings.dask is None:
        prepare = functools.partial(check_nothing, settings)
        running = run_jobs(work, paths, jobs, dead, may_copy=may_copy, prepare=prepare)
    else:
        from onnx_kvtool.commands.check_dask import run_on_cluster

        running = run_on_cluster(work, paths, settings.dask, dead)
    with running as results:
        for number in range(1, len(paths) + 1):
            progress("checking, model", number, len(paths))
            yield next(results)


def _refuse_nonsense(request: CheckRequest, settings: Settings) -> None:
    """Raise `UsageError` for flags that contradict each other, before anything is read."""
    is_fixing, is_distributed = settings.fix != "none", settings.dask is not None
    refuse(
        (
            settings.fix == "apply" and "-" in request.paths,
            "`--fix` cannot replace standard input",
            "name a file, or show what would change with `--diff`",
        ),
        (
            is_fixing and request.write_baseline is not None,
            "`--write-baseline` records the models before any fix",
            "fix first, then write the baseline",
        ),
        (
            request.prune_baseline and (is_fixing or request.shard is not None),
            "`--prune-baseline` needs the findings of all models before any fix",
            "leave out `--fix`, `--diff` and `--shard`",
        ),
        (
            request.prune_baseline and request.write_baseline is not None,
            "`--write-baseline` and `--prune-baseline` exclude each other",
            "a new baseline has no stale findings",
        ),
        (
            is_distributed and settings.fix == "apply",
            "`--fix` replaces files, and the workers of `--dask` may read other copies",
            "fix without `--dask`",
        ),
        (
            is_distributed and "-" in request.paths,
            "the workers of `--dask` cannot read the standard input of this process",
            None,
        ),
        (
            is_fixing and any(map(is_remote, request.paths)),
            "kvtool cannot fix a model at a URL",
            "fetch it first",
        ),
    )


def _spare_models(request: CheckRequest, paths: Sequence[str]) -> None:
    """Refuse to write a report or a baseline over a model that is checked."""
    for target in (request.output, request.write_baseline):
        if target is None or target == "-" or not os.path.exists(target):
            continue
        if any(is_same(path, target) for path in paths if path != "-"):
            raise UsageError(
                f"`{target}` is one of the models, and would be overwritten",
                help="name another file",
            )


class _Sizes:
    """Checks that given sizes are those of dimensions, model by model."""

    def __init__(self) -> None:
        self._unknown: set[str] | None = None
        self._known: set[str] = set()

    def check(self, file: FileReport) -> None:
        """Refuse a size that no input of this model can have."""
        if not file.is_read:
            return
        if file.impossible_size is not None:
            raise UsageError(f"`{file.path}`: {file.impossible_size}")
        unknown = set(file.unknown_dims)
        if unknown and (self._unknown is None or self._unknown):
            self._known.update(file.dims)
        self._unknown = unknown if self._unknown is None else self._unknown & unknown

    def check_all(self) -> None:
        """Refuse a size for a dimension that no input of any model has."""
        if self._unknown:
            name = min(self._unknown)
            raise unknown_name(
                f"no input has a dimension called `{name}`", name, sorted(self._known)
            )
