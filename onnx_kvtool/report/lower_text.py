"""What `lower` did, in lines and tables for people; and how every rewrite ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from onnx_kvtool.core.diagnostic import Diagnostic
from onnx_kvtool.core.words import counted
from onnx_kvtool.report.alike import and_others, form, groups_alike
from onnx_kvtool.report.blocks import VERDICT_STYLES, Block, Grid, Line, named
from onnx_kvtool.report.comparison import covered, not_covered, unproven
from onnx_kvtool.rewrite.raise_report import RaiseReport
from onnx_kvtool.rewrite.report import LowerReport, Verification

__all__ = ["blocks", "ending"]


def blocks(report: LowerReport, *, dry_run: bool = False) -> Iterator[Block]:
    """Yield what was lowered, or every reason why nothing was.

    Args:
        report: What to say.
        dry_run: Whether nothing was to be written, so that its absence is no news.
    """
    failed = bool(report.refused) or report.verification.fails
    yield _head(report, failed)
    for refusals in groups_alike(report.refused, lambda r: (r.code, r.help, r.lowest_opset)):
        yield from _refusals(refusals)
    if report.lowered and not failed:
        yield Grid(("operator", "nodes", "rule", "form"), _counts(report))
    for note in report.notes:
        yield Line("note", note)
    yield from ending(report, verified=not report.refused, dry_run=dry_run and not failed)


def ending(report: LowerReport | RaiseReport, *, verified: bool, dry_run: bool) -> Iterator[Block]:
    """Yield how a result compared with its source and where it was written.

    Args:
        report: What to say.
        verified: Whether there was a result to compare.
        dry_run: Whether to say that nothing was written.
    """
    verification = report.verification
    if verified and not verification.is_unproven:
        style = VERDICT_STYLES[verification.status]
        yield Line("verification", _verdict(verification), style)
        if verification.covered is not None and verification.status == "equal":
            yield from covered(verification.covered, "rewritten place")
    if report.output is not None:
        yield Line("written", "standard output" if report.output == "-" else report.output)
    elif dry_run:
        yield Line("dry run", "nothing was written")
    if verified and verification.is_unproven:
        text = f"nothing was proven: {verification.detail}"
        yield Line("warning", text, VERDICT_STYLES["skipped"])
    elif verified and verification.covered is not None and verification.status == "equal":
        redraw = "`kvtool verify` of both models with `--cases 16`"
        yield from not_covered(verification.covered, redraw)


def _head(report: LowerReport, failed: bool) -> Line:
    """Return which model it was, and between which versions."""
    text = named(report.model)
    if report.target is not None:
        text += f" for {report.target}"
    text += f", opset {report.source_opset}"
    if report.target_opset != report.source_opset:
        text += f" to {report.target_opset}"
    if failed:
        return Line("not lowered", f"{text}; nothing was written", "bold red")
    done = report.lowered or report.target_opset != report.source_opset
    label = "lowered" if done else "nothing to lower"
    return Line(label, f"{text}, IR version {report.ir_version}")


def _counts(report: LowerReport) -> tuple[tuple[str, ...], ...]:
    """Return one row per operator, rule and form, in the order of their first nodes."""
    counts = Counter((done.location.op or "", done.rule, done.via or "") for done in report.lowered)
    return tuple((op, str(count), rule, via) for (op, rule, via), count in counts.items())


def _refusals(refusals: Sequence[Diagnostic]) -> Iterator[Line]:
    """Yield refusals of one remedy, those that differ in names only on one line."""
    first = refusals[0]
    for one, *others in groups_alike(refusals, lambda r: (r.location.op, form([r.message]))):
        place = and_others(str(one.location), len(others))
        yield Line(first.code, f"{place}: {one.message}", "red")
    if first.lowest_opset is not None:
        yield Line("  lowest opset", str(first.lowest_opset))
    if first.help is not None:
        yield Line("  help", first.help)


def _verdict(verification: Verification) -> str:
    """Return the verification in one sentence."""
    if verification.status == "skipped":
        return f"skipped, {verification.detail}"
    text = (
        f"{verification.status} in {verification.runtime} "
        f"({counted(verification.cases, 'case')}, {counted(verification.steps, 'run')})"
    )
    if verification.status == "equal":
        text += f"; {_agreement(len(verification.bit_equal), verification.max_abs_diff)}"
    text += unproven(verification.covered)
    return f"{text}; {verification.detail}" if verification.detail else text


def _agreement(bit_equal: int, max_abs_diff: float | None) -> str:
    exact = f"{counted(bit_equal, 'output')} equal bit for bit"
    if not max_abs_diff:
        return exact
    close = f"largest difference {max_abs_diff:.1e}"
    return f"{exact}, {close} in the others" if bit_equal else close
