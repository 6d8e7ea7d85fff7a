"""What people read of a comparison of two models, as lines and rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from onnx_kvtool.core.reporting import Covered, NamedTolerance, Remedy
from onnx_kvtool.core.words import counted, enumerated
from onnx_kvtool.report.blocks import VERDICT_STYLES, Block, Grid, Line, named

if TYPE_CHECKING:
    from onnx_kvtool.verification.report import OutputReport, VerifyReport

__all__ = ["HEADER", "blocks", "covered", "not_covered", "output_rows", "remarks", "unproven"]

HEADER = ("output", "bit for bit", "largest difference", "first mismatch")


def blocks(report: VerifyReport) -> Iterator[Block]:
    """Yield which models were compared, how each output did, what differs, and where it begins."""
    yield Line(report.status, _headline(report), VERDICT_STYLES[report.status])
    if report.steps and report.outputs:
        yield _table(report.outputs, report.covered)
    for label, text in _places(report):
        yield Line(label, text)
    if report.covered is not None and report.status == "equal":
        yield from covered(report.covered, "place")


def remarks(report: VerifyReport) -> Iterator[Block]:
    """Yield what is worth knowing about how the models were compared."""
    for note in report.notes:
        yield Line("note", note)
    if report.covered is not None and report.status == "equal":
        yield from not_covered(report.covered, "`--cases 16` or another `--seed`")


def covered(found: Covered, noun: str) -> Iterator[Line]:
    """Yield the line about what a comparison covered; none where there is nothing to count.

    Args:
        found: What it covered.
        noun: What its places are called, in the singular.
    """
    parts = []
    if found.places:
        parts.append(f"{found.noticed} of {counted(found.places, noun)}")
    if found.rows:
        parts.append(f"lengths to {found.lengths or 0:,} of {counted(found.rows, 'row')}")
    for names, text in (
        (found.not_finite, "never finite"),
        (found.constant, "constant"),
        (found.unproven, "random"),
    ):
        if names:
            parts.append(f"{enumerated(names)} {text}")
    if parts and not found.not_finite:
        parts.append("values finite")
    if parts:
        yield Line("covered", "; ".join(parts))


def not_covered(found: Covered, redraw: str) -> Iterator[Line]:
    """Yield the last line where a comparison did not cover something.

    Args:
        found: What it covered.
        redraw: What draws other inputs, in the words of the command.
    """
    remedies: Mapping[Remedy, str] = {
        "places": "`--thorough` tests them all",
        "values": f"{redraw} draws other inputs",
        "lengths": "`--dim` and a larger `--verify-budget` allow longer runs",
        "none": "nothing that kvtool draws shows it",
    }
    gaps = [f"{gap.what} ({remedies[gap.remedy]})" for gap in found.gaps]
    if gaps:
        yield Line("not covered", "; ".join(gaps), VERDICT_STYLES["skipped"])


def _headline(report: VerifyReport) -> str:
    """Return which models were compared, where, and how often."""
    text = f"{named(report.a)} and {named(report.b)}"
    if report.runtime is not None and report.steps:
        runs = f"{counted(report.cases, 'case')}, {counted(report.steps, 'run')}"
        text += f" in {report.runtime} ({runs})"
    elif report.runtime is not None:
        text += f" in {report.runtime}"
    return text + unproven(report.covered)


def unproven(found: Covered | None) -> str:
    """Return what a verdict says of outputs that it does not hold for; "" where there are none."""
    if found is None or not found.unproven:
        return ""
    is_one = len(found.unproven) == 1
    return f"; {enumerated(found.unproven)} {'is' if is_one else 'are'} random and not proven"


def output_rows(outputs: Sequence[OutputReport]) -> list[tuple[str, ...]]:
    """Return one row per output under `HEADER`."""
    return [_row(output) for output in outputs]


def _table(outputs: Sequence[OutputReport], found: Covered | None) -> Grid:
    """Return the rows of all outputs, with how close each had to be."""
    rows = output_rows(outputs)
    if found is None:
        return Grid(HEADER, tuple(rows))
    random = ("-", "-", "random, not proven")
    rows = [(row[0], *random) if row[0] in found.unproven else row for row in rows]
    allowed = [_allowed(found.tolerance.get(row[0])) for row in rows]
    pairs = zip(rows, allowed, strict=True)
    return Grid((*HEADER[:3], "allowed", HEADER[3]), tuple((*r[:3], t, r[3]) for r, t in pairs))


def _allowed(found: NamedTolerance | None) -> str:
    """Return a tolerance in words: `1e-05 + 0.0001 |x| (float32)`, x being the value of A."""
    if found is None:
        return "-"
    parts = [f"{found.atol:.2g}"] if found.atol or not found.rtol else []
    parts += [f"{found.rtol:.2g} |x|"] if found.rtol else []
    return f"{' + '.join(parts)} ({found.because})"


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
