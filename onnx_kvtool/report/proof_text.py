"""What `lower` and `raise` did and how two models compared, for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from onnx_kvtool.core.diagnostic import Diagnostic
from onnx_kvtool.core.reporting import Covered, NamedTolerance, Remedy
from onnx_kvtool.core.words import counted, enumerated
from onnx_kvtool.report.blocks import (
    VERDICT_STYLES,
    Block,
    Grid,
    Line,
    and_others,
    form,
    groups_alike,
    joined,
    named,
    without_numbers,
)
from onnx_kvtool.rewrite.raise_report import Raised, RaisedAttention, RaiseReport, Unraised
from onnx_kvtool.rewrite.report import LowerReport, Verification

if TYPE_CHECKING:
    from onnx_kvtool.verification.report import OutputReport, VerifyReport


# What people read of a comparison of two models, as lines and rows.


def comparison_blocks(report: VerifyReport) -> Iterator[Block]:
    """Yield which models were compared, how each output did, what differs, and where it begins."""
    yield Line(report.status, _headline(report), VERDICT_STYLES[report.status])
    if report.steps and report.outputs:
        yield outputs_table(report.outputs, report.covered)
    if report.detail is not None:
        yield Line("difference" if report.status == "different" else "reason", report.detail)
    if (found := report.earliest) is not None:
        yield Line("earliest node", f"{found.a}: {found.reason}")
        if found.b != found.a:
            yield Line("  in B", str(found.b))
    if report.covered is not None and report.status == "equal":
        yield from covered(report.covered, "place")


def remarks(report: VerifyReport) -> Iterator[Block]:
    """Yield what is worth knowing about how the models were compared."""
    for note in report.notes:
        yield Line("note", note)
    if report.covered is not None and report.status == "equal":
        yield from not_covered(report.covered, "`--cases 16` or another `--seed`")


def covered(found: Covered, noun: str) -> Iterator[Line]:
    """Yield the line about what a comparison covered; none where there is nothing to count."""
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
    """Yield the last line where a comparison did not cover something."""
    remedies: Mapping[Remedy, str] = {
        "places": "`--thorough` tests them all",
        "values": f"{redraw} draws other inputs",
        "lengths": "`--dim` and a larger `--verify-budget` allow longer runs",
        "none": "nothing that kvtool draws shows it",
    }
    if gaps := [f"{gap.what} ({remedies[gap.remedy]})" for gap in found.gaps]:
        yield Line("not covered", "; ".join(gaps), VERDICT_STYLES["skipped"])


def _headline(report: VerifyReport) -> str:
    """Return which models were compared, where, and how often."""
    text = f"{named(report.a)} and {named(report.b)}"
    if report.runtime is not None:
        text += f" in {report.runtime}"
        if report.steps:
            text += f" {_runs(report)}"
    return text + unproven(report.covered)


def _runs(found: VerifyReport | Verification) -> str:
    return f"({counted(found.cases, 'case')}, {counted(found.steps, 'run')})"


def unproven(found: Covered | None) -> str:
    """Return what a verdict says of outputs that it does not hold for; "" where there are none."""
    if found is None or not found.unproven:
        return ""
    is_one = len(found.unproven) == 1
    return f"; {enumerated(found.unproven)} {'is' if is_one else 'are'} random and not proven"


def outputs_table(outputs: Sequence[OutputReport], found: Covered | None = None) -> Grid:
    """Return a row for each output, with how close it had to be if `found` says so."""
    rows = []
    for output in outputs:
        differs = output.first_mismatch
        row = [
            output.name,
            "yes" if output.bit_equal else "no",
            "-" if output.max_abs_diff is None else f"{output.max_abs_diff:.2g}",
            "" if differs is None else str(differs.mismatch).removeprefix("at "),
        ]
        if output.bit_equal is None:
            row[1:] = "-", "-", "not compared"
        if found is not None:
            if output.name in found.unproven:
                row[1:] = "-", "-", "random, not proven"
            row.insert(3, _allowed(found.tolerance.get(output.name)))
        rows.append(row)
    allowed = "" if found is None else "allowed, "
    return Grid(f"output, bit for bit, largest difference, {allowed}first mismatch", rows)


def _allowed(found: NamedTolerance | None) -> str:
    """Return a tolerance in words: `1e-05 + 0.0001 |x| (float32)`, x being the value of A."""
    if found is None:
        return "-"
    parts = [f"{found.atol:.2g}"] if found.atol or not found.rtol else []
    parts += [f"{found.rtol:.2g} |x|"] if found.rtol else []
    return f"{' + '.join(parts)} ({found.because})"


# What `lower` did, in lines and tables for people; and how every rewrite ends.


def lower_blocks(report: LowerReport, *, dry_run: bool = False) -> Iterator[Block]:
    """Yield what was lowered, or every reason why nothing was.

    Args:
        report: What to say.
        dry_run: Whether nothing was to be written, so that its absence is no news.
    """
    failed = bool(report.refused) or report.verification.fails
    yield _lower_head(report, failed)
    yield from _refusals(report.refused)
    if report.lowered and not failed:
        counts = Counter((one.location.op or "", one.rule, one.via or "") for one in report.lowered)
        rows = ((op, str(count), *how) for (op, *how), count in counts.items())
        yield Grid("operator, nodes, rule, form", rows)
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
    for phase in report.phases:
        text = f"{counted(phase.tokens, 'new token')}: {_verdict(phase.verification)}"
        yield Line(phase.name, text, VERDICT_STYLES[phase.verification.status])
    if verified and not verification.is_unproven:
        style = VERDICT_STYLES[verification.status]
        yield Line("verification", _verdict(verification), style)
        if verification.covered is not None and verification.status == "equal":
            yield from covered(verification.covered, "rewritten place")
    for path in (phase.output for phase in report.phases if phase.output):
        yield Line("written", path)
    if report.output is not None and not report.phases:
        yield Line("written", "standard output" if report.output == "-" else report.output)
    elif dry_run:
        yield Line("dry run", "nothing was written")
    if verified and verification.is_unproven:
        text = f"nothing was proven: {verification.detail}"
        yield Line("warning", text, VERDICT_STYLES["skipped"])
    elif verified and verification.covered is not None and verification.status == "equal":
        redraw = "`kvtool verify` of both models with `--cases 16`"
        yield from not_covered(verification.covered, redraw)


def _lower_head(report: LowerReport, failed: bool) -> Line:
    """Return which model it was, and between which versions."""
    target = "" if report.target is None else f" for {report.target}"
    text = f"{named(report.model)}{target}, {_opsets(report)}"
    if failed:
        return Line("not lowered", f"{text}; nothing was written", "bold red")
    done = report.lowered or report.target_opset != report.source_opset
    label = "lowered" if done else "nothing to lower"
    return Line(label, f"{text}, IR version {report.ir_version}")


def _opsets(report: LowerReport | RaiseReport) -> str:
    """Return the opset of the model, and that of the result if it is another."""
    text = f"opset {report.source_opset}"
    is_same = report.target_opset == report.source_opset
    return text if is_same else f"{text} to {report.target_opset}"


def _refusals(refusals: Iterable[Diagnostic]) -> Iterator[Line]:
    """Yield each remedy once, below its refusals; those that differ in names only share a line."""
    for group in groups_alike(refusals, lambda r: (r.code, r.help, r.lowest_opset)):
        yield from _one_by_one(group, "red")
        if group[0].lowest_opset is not None:
            yield Line("  lowest opset", str(group[0].lowest_opset))
        if group[0].help is not None:
            yield Line("  help", group[0].help)


def _one_by_one(refusals: Iterable[Diagnostic | Unraised], style: str) -> Iterator[Line]:
    for first, *others in groups_alike(refusals, lambda r: (r.location.op, form([r.message]))):
        place = and_others(str(first.location), len(others))
        yield Line(first.code, f"{place}: {first.message}", style)


def _verdict(verification: Verification) -> str:
    """Return the verification in one sentence."""
    if verification.status == "skipped":
        return f"skipped, {verification.detail}"
    text = f"{verification.status} in {verification.runtime} {_runs(verification)}"
    if verification.status == "equal":
        count, most = len(verification.bit_equal), verification.max_abs_diff
        agreement = f"{counted(count, 'output')} equal bit for bit"
        if most:
            close = f"largest difference {most:.1e}"
            agreement = f"{agreement}, {close} in the others" if count else close
        text += f"; {agreement}"
    text += unproven(verification.covered)
    return f"{text}; {verification.detail}" if verification.detail else text


# What `raise` did, in lines and tables for people.


def raise_blocks(
    report: RaiseReport, *, failed: bool = False, dry_run: bool = False
) -> Iterator[Block]:
    """Yield what was raised with its proof, what stays and why, and remarks.

    Updates that differ in names only share one proof, that of the first.

    Args:
        report: What to say.
        failed: Whether the raise counts as a failure although the report shows none, because
            every candidate had to be raised.
        dry_run: Whether nothing was to be written, so that its absence is no news.
    """
    failed = failed or bool(report.blocked) or report.verification.fails
    yield _raise_head(report, failed)
    yield from _refusals(report.blocked)
    if report.raised:
        updates = [
            (
                one.location.node_label or "",
                str(one.axis),
                one.mode,
                one.past,
                one.write_indices or "0",
                one.present,
            )
            for one in report.raised
        ]
        yield Grid("node, axis, mode, past, write_indices, present", _folded(updates))
        yield from _proofs(report.raised)
    if report.attention:
        forms = [(one.location.node_label or "", one.form, one.mask) for one in report.attention]
        yield Grid("attention of, form, mask", _folded(forms))
        yield from _proofs(report.attention)
    if report.contrib:
        counts = Counter((one.location.op or "", one.rule) for one in report.contrib)
        rows = ((op, str(number), rule) for (op, rule), number in counts.items())
        yield Grid("operator, nodes, rule", rows)
    for refusals in groups_alike(report.refused, lambda one: (one.code, one.assumption)):
        yield from _one_by_one(refusals, "yellow")
        assumption = refusals[0].assumption
        if assumption is not None:
            yield Line("  help", f"if it holds, grant it with `--assume {assumption}`")
    for note in report.notes:
        yield Line("note", note)
    done = report.is_changed
    yield from ending(report, verified=done, dry_run=dry_run and done and not failed)


def _raise_head(report: RaiseReport, failed: bool) -> Line:
    text = f"{named(report.model)}, {_opsets(report)}"
    if failed:
        return Line("not raised", f"{text}; nothing was written", "bold red")
    if not report.is_changed:
        found = counted(len(report.refused), "candidate") if report.refused else "no candidate"
        return Line("nothing to raise", f"{text}; {found}, nothing was written")
    said = [counted(len(report.raised), "update")] if report.raised else []
    if report.attention:
        said.append(f"{len(report.attention)} Attention")
    text += f", IR version {report.ir_version}; {', '.join(said)}"
    if report.refused:
        text += f", {counted(len(report.refused), 'candidate')} left as before"
    return Line("raised", f"{text}, {counted(report.removed, 'fewer node')}")


_MOST_ROWS = 12
"""Most rows of a table that shows each update by itself."""


def _folded(rows: Sequence[tuple[str, ...]]) -> Sequence[tuple[str, ...]]:
    """Return rows, those that differ in numbers of names alone as one where they are many."""
    if len(rows) <= _MOST_ROWS:
        return rows
    folded = []
    for group in groups_alike(rows, _pattern):
        label, *cells = map(_common, zip(*group, strict=True))
        if label == group[0][0]:
            label = and_others(label, len(group) - 1)
        folded.append((label, *cells))
    return folded


def _pattern(row: Iterable[str]) -> Hashable:
    return tuple(cell if cell.isdigit() else without_numbers(cell) for cell in row)


def _common(cells: Sequence[str]) -> str:
    """Return one name for several, if it is short: `key.{0..31}`, no list of numbers; or one."""
    name = joined(cells)
    return cells[0] if name is None or "," in name.partition("{")[2] else name


def _proofs(raised: Iterable[Raised | RaisedAttention]) -> Iterator[Line]:
    """Yield each proof once, under the first node that has it, with the number of the others."""
    for first, *others in groups_alike(raised, lambda done: form(done.proof)):
        label = and_others(f"proof of {first.location.node_label}", len(others))
        for sentence in first.proof:
            yield Line(label, sentence)
