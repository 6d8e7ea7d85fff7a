"""The settings of `kvtool check`, from flags and configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from onnx_kvtool.core.diagnostic import Severity
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.core.machine import Budget
from onnx_kvtool.lint.finding import Applicability
from onnx_kvtool.lint.settings.baseline import Baseline, read_baseline
from onnx_kvtool.lint.settings.config import (
    Config,
    PerFileIgnore,
    Selection,
    check_codes,
    discover,
    is_pattern,
    load,
    split_codes,
)
from onnx_kvtool.targets.target import find_target

if TYPE_CHECKING:
    from onnx_kvtool.commands.requests import CheckRequest


FixMode = Literal["none", "apply", "show"]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings for every file of one run; picklable.

    Attributes:
        selection: Which rules are on.
        targets: Releases of runtimes, all known.
        dims: Sizes of symbolic dimensions.
        timeout: Seconds that each request to a web server may take; None for five minutes.
        budget: What comparing a fixed model with its source may take.
        thorough: Whether that comparison is tested at every fixed place and in all cases.
        strict: Whether a fixed model is not written if its proof did not cover something.
        fix: Whether fixes are applied, shown, or neither.
        allowed: Which fixes are applied or shown.
        baseline: Findings that are not reported; None for no baseline.
        fail_on: Lowest severity that makes the check fail.
        exit_zero: Whether findings leave the exit code at 0.
        output_format: Format of the report.
        statistics: Whether to count findings.
        jobs: Number of worker processes.
        cache_dir: Directory with results of earlier runs, which gets those of this one; None for
            none.
        dask: Address of a scheduler whose workers check the files; None for this machine.
        several: Whether a file that cannot be read is a finding.
    """

    selection: Selection = field(default_factory=Selection)
    targets: tuple[str, ...] = ()
    dims: Mapping[str, int] = field(default_factory=dict)
    timeout: float | None = None
    budget: Budget = field(default_factory=Budget)
    thorough: bool = False
    strict: bool = False
    fix: FixMode = "none"
    allowed: frozenset[Applicability] = frozenset()
    baseline: Baseline | None = None
    fail_on: Severity = "error"
    exit_zero: bool = False
    output_format: str = "text"
    statistics: bool = False
    jobs: int = 1
    cache_dir: str | None = None
    dask: str | None = None
    several: bool = False


def resolve(request: CheckRequest) -> Settings:
    """Merge flags and the configuration file; flags win.

    Raises:
        UsageError: For a code, a target, a configuration key or a value that is unknown, and for
            files of configuration and baseline that cannot be read.
    """
    config = _config(request)
    values = config.values
    targets = tuple(request.targets or values.get("target", ()))
    for target in targets:
        find_target(target)
    unsafe = _flag(request.unsafe_fixes, values, "unsafe-fixes")
    allowed = frozenset[Applicability](("safe", "unsafe") if unsafe else ("safe",))
    return Settings(
        selection=_selection(request, config),
        targets=targets,
        dims=request.sizes or values.get("dim", {}),
        timeout=request.timeout,
        budget=Budget.parse(request.verify_budget),
        thorough=request.thorough,
        strict=request.strict,
        fix="show" if request.diff else "apply" if _flag(request.fix, values, "fix") else "none",
        allowed=allowed,
        baseline=_baseline(request, config),
        fail_on=request.fail_on or values.get("fail-on", "error"),
        exit_zero=_flag(request.exit_zero, values, "exit-zero"),
        output_format=request.output_format or values.get("format", "text"),
        statistics=_flag(request.statistics, values, "statistics"),
        jobs=request.jobs or values.get("jobs", 1),
        cache_dir=_cache_dir(request, config),
        dask=request.dask,
    )


def _config(request: CheckRequest) -> Config:
    if request.isolated:
        if request.config is not None:
            raise UsageError(
                "`--config` and `--isolated` exclude each other", help="leave one of them out"
            )
        return Config()
    return discover(request.paths) if request.config is None else load(os.fspath(request.config))


def _selection(request: CheckRequest, config: Config) -> Selection:
    """Return which rules are on; `--select` replaces the `select` of the file."""
    where = f"`{config.path}`"
    if request.select is None:
        values, select, place = config.values, config.values.get("select"), f"{where}, `select`"
    else:
        values, select, place = {}, request.select, "`--select`"
    ignore = check_codes(values.get("ignore", ()), f"{where}, `ignore`")
    extend = check_codes(values.get("extend-select", ()), f"{where}, `extend-select`")
    return Selection(
        select=None if select is None else check_codes(select, place),
        extend_select=extend + check_codes(request.extend_select, "`--extend-select`"),
        ignore=ignore + check_codes(request.ignore, "`--ignore`"),
        per_file=_per_file(request, config),
    )


def _per_file(request: CheckRequest, config: Config) -> tuple[PerFileIgnore, ...]:
    flags, where = request.per_file_ignores, "`--per-file-ignores`"
    if flags:
        return tuple(_ignore(*_split(text), where, os.getcwd()) for text in flags)
    given, where = config.values.get("per-file-ignores", {}), f"`{config.path}`, `per-file-ignores`"
    return tuple(_ignore(name, codes, where, config.base) for name, codes in given.items())


def _split(text: str) -> tuple[str, Sequence[str]]:
    pattern, _, codes = text.rpartition(":")
    if not (pattern and codes.strip()):
        raise UsageError(
            f"`--per-file-ignores` is `{text}`, expected `GLOB:CODES`",
            help="write it like `--per-file-ignores 'legacy/*.onnx:KV1,MD405'`",
        )
    return pattern, split_codes(codes)


def _ignore(pattern: str, codes: Sequence[str], where: str, base: str) -> PerFileIgnore:
    if not is_pattern(pattern):
        raise UsageError(f"{where} has `{pattern}`, expected a pattern as in `.gitignore`")
    return PerFileIgnore(pattern, check_codes(codes, where), base)


def _baseline(request: CheckRequest, config: Config) -> Baseline | None:
    if request.write_baseline is not None:
        return None  # all findings go into the new one
    named = config.values.get("baseline")
    path = request.baseline or (None if named is None else os.path.join(config.base, named))
    if path is None and request.prune_baseline:
        raise UsageError(
            "`--prune-baseline` has no baseline to prune", help="name one with `--baseline`"
        )
    return None if path is None else read_baseline(os.fspath(path))


def _cache_dir(request: CheckRequest, config: Config) -> str | None:
    if request.cache_dir is not None:
        return os.fspath(request.cache_dir)
    named = config.values.get("cache-dir")
    return None if named is None else os.path.join(config.base, named)


def _flag(given: bool | None, values: Mapping[str, Any], key: str) -> bool:
    return bool(values.get(key, False)) if given is None else given
