"""Findings for people: grouped by file, each with its remedy below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from onnx_kvtool.core.diagnostic import Severity
from onnx_kvtool.core.words import counted
from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.lint.report import CheckReport, FileReport, Tally
from onnx_kvtool.report.blocks import Block, Grid, Line
from onnx_kvtool.report.findings.writer import Writer, folded, others_in_words
from onnx_kvtool.report.text import text_of_blocks

_STYLES: dict[Severity, str] = {"error": "bold red", "warning": "yellow", "info": "cyan"}
_SAFE, _UNSAFE = "`--fix`", "`--fix --unsafe-fixes`"


def counts(report: CheckReport | Tally) -> Iterator[Block]:
    """Yield what each rule found, in numbers."""
    header = ("code", "name", "severity", "findings", "with a fix")
    rows = [
        (rule.code, rule.name, rule.severity, str(rule.count), str(rule.fixable))
        for rule in _tally(report).counts()
    ]
    if rows:
        yield Grid(header, tuple(rows))


def blocks(report: CheckReport, *, verbose: bool = False) -> Iterator[Block]:
    """Yield the findings file by file.

    Those of one file that differ by the numbers in names alone, as the layers of a decoder do, are
    told once, with the places of the others; all are told if `verbose`.
    """
    for file in report.files:
        yield from blocks_of(file, verbose=verbose)


class TextWriter(Writer):
    """The findings file by file; with `statistics` counts alone; with `diff` how models change.

    Args:
        tally: As for every writer.
        statistics: As for every writer.
        diff: Whether to show diffs in place of findings.
        color: Whether to use colour; None does so if the process has a terminal.
        verbose: Whether findings that are alike are told one by one.
    """

    in_lines = True

    def __init__(
        self,
        tally: Tally,
        *,
        statistics: bool = False,
        diff: bool = False,
        color: bool | None = False,
        verbose: bool = False,
    ) -> None:
        super().__init__(tally, statistics=statistics)
        self._diff = diff
        self._color = color
        self._verbose = verbose

    def file(self, file: FileReport) -> str:
        """Return the findings of one file, or its diff."""
        if self._diff:
            return file.diff
        if self.statistics or not file.findings:
            return ""
        return text_of_blocks(blocks_of(file, verbose=self._verbose), color=self._color)

    def end(self) -> Iterator[str]:
        """Yield the counts."""
        if self.statistics and not self._diff:
            yield text_of_blocks(counts(self.tally), color=self._color)


def blocks_of(file: FileReport, *, verbose: bool = False) -> Iterator[Block]:
    """Yield the findings of one file; see `blocks`."""
    if file.findings:
        yield Line(_name(file.path), counted(len(file.findings), "finding"))
        each = ((f, []) for f in file.findings) if verbose else folded(file.findings)
        for finding, others in each:
            yield from _finding(finding, others)


def _finding(finding: Finding, others: Sequence[Finding]) -> Iterator[Block]:
    label = f"  {finding.severity} {finding.code} {finding.name}"
    yield Line(label, f"{finding.location}: {finding.message}", _STYLES[finding.severity])
    if finding.help is not None:
        yield Line("    help", finding.help)
    if finding.fix is not None:
        how = _SAFE if finding.fix.applicability == "safe" else _UNSAFE
        yield Line("    fix", f"{finding.fix.title}, with {how}")
    if others:
        yield Line("    alike", others_in_words(others))


def remarks(report: CheckReport, *, verbose: bool = False) -> Iterator[Block]:
    """Yield what there is to say of files beside their findings; of all of them if `verbose`."""
    for file in report.files:
        yield from remarks_of(file, verbose=verbose)


def remarks_of(file: FileReport, *, verbose: bool = False) -> Iterator[Block]:
    """Yield what there is to say of one file; see `remarks`."""
    label = "fixed" if file.written else "would fix"
    for text, count in Counter(f"{fix.code} {fix.title}" for fix in file.fixed).items():
        more = f" ({count:,} findings)" if count > 1 else ""
        yield Line(label, f"{_name(file.path)}: {text}{more}", "green")
    for note in file.notes:
        yield Line("note", f"{_name(file.path)}: {note}")
    for stale in file.stale if verbose else ():
        yield Line("no longer found", f"{_name(file.path)}: {stale.code}, {stale.place}")
    if verbose and file.failure is None:
        yield Line("checked", f"{_name(file.path)}: {_counts(file)}")


def _counts(file: FileReport) -> str:
    parts = [counted(len(file.findings), "finding")]
    if file.suppressed:
        parts.append(f"{file.suppressed} suppressed in the model")
    if file.baselined:
        parts.append(f"{file.baselined} in the baseline")
    return f"{', '.join(parts)}; {file.seconds:.2f} s"


def closing(
    report: CheckReport | Tally, *, fails: bool | None = None, offers_fixes: bool = True
) -> Iterator[Block]:
    """Yield the last lines: notes on the run, and what was found in all.

    Args:
        report: What was found.
        fails: Whether the exit code says no; None where that of the report does.
        offers_fixes: Whether to say which flag would fix something.
    """
    tally = _tally(report)
    for note in tally.notes:
        yield Line("note", note)
    summary = tally.summary
    if not summary.files:
        return
    in_files = f"in {counted(summary.files, 'file')}"
    total = summary.error + summary.warning + summary.info
    hidden = _hidden(summary.suppressed, summary.baselined, tally.kept)
    if not total:
        yield Line("checked", f"no findings {in_files}{hidden}", "green")
    else:
        parts = [
            counted(summary.error, "error"),
            counted(summary.warning, "warning"),
            counted(summary.info, "remark"),
        ]
        fails = tally.exit_code > 0 if fails is None else fails
        style = "bold red" if fails else "bold"
        yield Line("found", f"{', '.join(parts)} {in_files}{hidden}", style)
    if summary.fixable and offers_fixes:
        yield Line("fixable", f"{summary.fixable} with {_SAFE}")
    if summary.unsafe_fixable and offers_fixes:
        yield Line("fixable", f"{summary.unsafe_fixable} with {_UNSAFE}")


def _tally(report: CheckReport | Tally) -> Tally:
    return report if isinstance(report, Tally) else report.tally


def _hidden(suppressed: int, baselined: int, kept: int) -> str:
    parts = []
    if suppressed:
        parts.append(f"{suppressed} suppressed")
    if baselined:
        parts.append(f"{baselined} in the baseline")
    if kept:
        parts.append(f"{counted(kept, 'file')} unchanged since an earlier run")
    return f" ({', '.join(parts)})" if parts else ""


def _name(path: str) -> str:
    return "standard input" if path == "-" else path or "the model"
