"""What decoders took, in a table for people."""

from __future__ import annotations

from collections.abc import Iterator

from onnx_kvtool.core.words import counted
from onnx_kvtool.decoding.report import BenchReport, BenchRun
from onnx_kvtool.report.blocks import Block, Grid, Line, named
from onnx_kvtool.report.inspect_text import bytes_text

__all__ = ["blocks"]

_HEADER = ("model", "form", "in place", "first token", "step", "least", "most", "tokens/s", "peak")
_RATIOS = ("model", "step", "first token", "peak")


def blocks(report: BenchReport) -> Iterator[Block]:
    """Yield what was run, what each model took, and how that is to the first one."""
    work = report.workload
    text = f"{report.runtime}, {counted(work.batch, 'sequence')}, prompt of {work.prompt} tokens"
    if work.context > work.prompt:
        text += f", steps behind {work.context} rows"
    text += f", {work.tokens} tokens, {counted(work.rounds, 'round')} in turns"
    threads = "a thread for each core" if work.threads is None else counted(work.threads, "thread")
    yield Line("ran", f"{text}, {threads}")
    yield Grid(_HEADER, tuple(_row(run) for run in report.runs))
    if len(report.runs) > 1:
        yield Line("to the first", "ratios of medians; less than 1 is less time or memory")
        yield Grid(
            _RATIOS,
            tuple(
                (named(r.model), _ratio(r.step), _ratio(r.first_token), _ratio(r.peak))
                for r in report.ratios
            ),
        )
        done = [run for run in report.runs if run.failure is None]
        if len(done) > 1:
            style = "green" if report.same_tokens else "yellow"
            yield Line("tokens", "all the same" if report.same_tokens else "not the same", style)
    for run in report.runs:
        if run.failure is not None:
            yield Line("failed", f"{named(run.model)}: {run.failure}", "bold red")


def _row(run: BenchRun) -> tuple[str, ...]:
    step, speed = run.step_seconds, run.tokens_per_second
    return (
        named(run.model),
        run.form or "-",
        "yes" if run.in_place else "no",
        _time(run.first_token_seconds),
        _time(step.median),
        _time(step.min),
        _time(step.max),
        "-" if speed is None else f"{speed:,.1f}",
        bytes_text(run.peak_bytes),
    )


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _ratio(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}"
