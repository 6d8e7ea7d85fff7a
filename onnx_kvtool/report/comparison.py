"""What people read of a comparison of two models, as lines and rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnx_kvtool.core.quantity import counted
from onnx_kvtool.report.blocks import VERDICT_STYLES, Block, Grid, Line, named
from onnx_kvtool.runtime.verification.report import OutputReport, VerifyReport

__all__ = ["HEADER", "blocks", "output_rows", "remarks"]

HEADER = ("output", "bit for bit", "largest difference", "first mismatch")


def blocks(report: VerifyReport) -> Iterator[Block]:
    """Yield which models were compared, how each output did, what differs, and where it begins."""
    yield Line(report.status, _headline(report), VERDICT_STYLES[report.status])
    if report.steps and report.outputs:
        yield Grid(HEADER, tuple(output_rows(report.outputs)))
    for label, text in _places(report):
        yield Line(label, text)


def remarks(report: VerifyReport) -> Iterator[Block]:
    """Yield what is worth knowing about how the models were compared."""
    for note in report.notes:
        yield Line("note", note)


def _headline(report: VerifyReport) -> str:
    """Return which models were compared, where, and how often."""
    text = f"{named(report.a)} and {named(report.b)}"
    if report.runtime is not None and report.steps:
        runs = f"{counted(report.cases, 'case')}, {counted(report.steps, 'run')}"
        text += f" in {report.runtime} ({runs})"
    elif report.runtime is not None:
        text += f" in {report.runtime}"
    return text


def output_rows(outputs: Sequence[OutputReport]) -> list[tuple[str, ...]]:
    """Return one row per output under `HEADER`."""
    return [_row(output) for output in outputs]


def _places(report: VerifyReport) -> list[tuple[str, str]]:
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
