"""What `raise` did, in lines and tables for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from onnx_kvtool.core.words import counted
from onnx_kvtool.report.alike import and_others, form, groups_alike
from onnx_kvtool.report.blocks import Block, Grid, Line, named
from onnx_kvtool.report.cache_groups import joined, without_numbers
from onnx_kvtool.report.lower_text import ending
from onnx_kvtool.rewrite.raise_report import Raised, RaisedAttention, RaiseReport

__all__ = ["blocks"]


def blocks(report: RaiseReport, *, failed: bool = False, dry_run: bool = False) -> Iterator[Block]:
    """Yield what was raised with its proof, what stays and why, and remarks.

    Updates that differ in names only share one proof, that of the first.

    Args:
        report: What to say.
        failed: Whether the raise counts as a failure although the report shows none, because
            every candidate had to be raised.
        dry_run: Whether nothing was to be written, so that its absence is no news.
    """
    failed = failed or bool(report.blocked) or report.verification.fails
    yield _head(report, failed)
    for defect in report.blocked:
        yield Line(defect.code, f"{defect.location}: {defect.message}", "red")
        if defect.help is not None:
            yield Line("  help", defect.help)
    if report.raised:
        yield Grid(("node", "axis", "mode", "past", "write_indices", "present"), _rows(report))
        yield from _proofs(report.raised)
    if report.attention:
        yield Grid(("attention of", "form", "mask"), _attention_rows(report))
        yield from _proofs(report.attention)
    if report.contrib:
        counts = Counter((one.location.op or "", one.rule) for one in report.contrib)
        rows = tuple((op, str(number), rule) for (op, rule), number in counts.items())
        yield Grid(("operator", "nodes", "rule"), rows)
    for refusals in groups_alike(report.refused, lambda one: (one.code, one.assumption)):
        for one, *others in groups_alike(refusals, lambda r: (r.location.op, form([r.message]))):
            place = and_others(str(one.location), len(others))
            yield Line(one.code, f"{place}: {one.message}", "yellow")
        assumption = refusals[0].assumption
        if assumption is not None:
            yield Line("  help", f"if it holds, grant it with `--assume {assumption}`")
    for note in report.notes:
        yield Line("note", note)
    done = report.is_changed
    yield from ending(report, verified=done, dry_run=dry_run and done and not failed)


def _head(report: RaiseReport, failed: bool) -> Line:
    text = named(report.model)
    text += f", opset {report.source_opset}"
    if report.target_opset != report.source_opset:
        text += f" to {report.target_opset}"
    if failed:
        return Line("not raised", f"{text}; nothing was written", "bold red")
    if not report.is_changed:
        found = counted(len(report.refused), "candidate") if report.refused else "no candidate"
        return Line("nothing to raise", f"{text}; {found}, nothing was written")
    text += f", IR version {report.ir_version}; {_done(report)}"
    if report.refused:
        text += f", {counted(len(report.refused), 'candidate')} left as before"
    return Line("raised", f"{text}, {counted(report.removed, 'node')} less needed")


def _done(report: RaiseReport) -> str:
    """Return how much was raised."""
    said = [counted(len(report.raised), "update")] if report.raised else []
    if report.attention:
        said.append(f"{len(report.attention)} Attention")
    return ", ".join(said)


def _attention_rows(report: RaiseReport) -> tuple[tuple[str, ...], ...]:
    return _folded(
        [(done.location.node_label or "", done.form, done.mask) for done in report.attention]
    )


def _rows(report: RaiseReport) -> tuple[tuple[str, ...], ...]:
    return _folded(
        [
            (
                done.location.node_label or "",
                str(done.axis),
                done.mode,
                done.past,
                done.write_indices or "0",
                done.present,
            )
            for done in report.raised
        ]
    )


_MOST_ROWS = 12
"""Rows up to which each update is shown by itself."""


def _folded(rows: list[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Return rows, those that differ in numbers of names alone as one where they are many."""
    if len(rows) <= _MOST_ROWS:
        return tuple(rows)
    folded = []
    for group in groups_alike(rows, lambda row: tuple(map(_pattern, row))):
        first = group[0]
        cells = [_common(column) or column[0] for column in zip(*group, strict=True)]
        label = cells[0] if cells[0] != first[0] else and_others(first[0], len(group) - 1)
        folded.append((label, *cells[1:]))
    return tuple(folded)


def _pattern(cell: str) -> str:
    return cell if cell.isdigit() else without_numbers(cell)


def _common(cells: Sequence[str]) -> str | None:
    """Return one name for several, if it is short: `key.{0..31}`, and no list of numbers."""
    name = joined(cells)
    return None if name is None or "," in name.partition("{")[2] else name


def _proofs(raised: Iterable[Raised | RaisedAttention]) -> Iterator[Line]:
    """Yield each proof once, under the first node that has it, with the number of the others."""
    for first, *others in groups_alike(raised, lambda done: form(done.proof)):
        label = and_others(f"proof of {first.location.node_label}", len(others))
        for sentence in first.proof:
            yield Line(label, sentence)
