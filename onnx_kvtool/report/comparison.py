"""What people read of a comparison of two models, as lines and rows."""

from __future__ import annotations

from collections.abc import Sequence

from onnx_kvtool.core.quantity import counted
from onnx_kvtool.runtime.verification.report import OutputReport, VerifyReport

__all__ = ["HEADER", "headline", "output_rows", "places", "rows"]

HEADER = ("output", "bit for bit", "largest difference", "first mismatch")


def headline(report: VerifyReport) -> str:
    """Return which models were compared, where, and how often."""
    text = f"{_spoken(report.a)} and {_spoken(report.b)}"
    if report.runtime is not None and report.steps:
        runs = f"{counted(report.cases, 'case')}, {counted(report.steps, 'run')}"
        text += f" in {report.runtime} ({runs})"
    elif report.runtime is not None:
        text += f" in {report.runtime}"
    return text


def rows(report: VerifyReport) -> list[tuple[str, ...]]:
    """Return one row per output under `HEADER`; none when nothing was run."""
    return output_rows(report.outputs) if report.steps else []


def output_rows(outputs: Sequence[OutputReport]) -> list[tuple[str, ...]]:
    """Return one row per output under `HEADER`."""
    return [_row(output) for output in outputs]


def places(report: VerifyReport) -> list[tuple[str, str]]:
    """Return what differs and where it begins, each line with its label."""
    lines = []
    if report.detail is not None:
        lines.append(("difference" if report.status == "different" else "reason", report.detail))
    if report.earliest is not None:
        found = report.earliest
        lines.append(("earliest node", f"{found.a}: {found.reason}"))
        if found.b != found.a:
            lines.append(("  in B", str(found.b)))
    return lines


def _row(output: OutputReport) -> tuple[str, ...]:
    if output.bit_equal is None:
        return output.name, "-", "-", "not compared"
    largest = "-" if output.max_abs_diff is None else f"{output.max_abs_diff:.2g}"
    found = output.first_mismatch
    mismatch = "" if found is None else str(found.mismatch).removeprefix("at ")
    return output.name, "yes" if output.bit_equal else "no", largest, mismatch


def _spoken(path: str) -> str:
    return {"-": "standard input", "": "a model in memory"}.get(path, path)
