"""Writing findings file by file: what writers share, and text for people."""

from __future__ import annotations

import json
import os
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from onnx_kvtool.core.diagnostic import Location, Severity
from onnx_kvtool.core.words import counted
from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.lint.report import CheckReport, FileReport, Summary, Tally
from onnx_kvtool.lint.settings.config import relative_path
from onnx_kvtool.model_io.remote import is_remote
from onnx_kvtool.report.blocks import Block, Grid, Line, groups_alike, joined
from onnx_kvtool.report.text import text_of_blocks

# Places in a model in one word, for formats of text lines.


def qualified_name(place: Location) -> str:
    """Return `graph:node`, `graph:value` or `graph`; "" for the whole model."""
    parts = (place.graph, place.node_label or place.value)
    return ":".join(part for part in parts if part)


def placed_message(finding: Finding) -> str:
    """Return the message of a finding, with its place in front."""
    place = qualified_name(finding.location)
    return f"{place}: {finding.message}" if place else finding.message


# Paths of models as other tools want them.


_STANDARD_INPUT = "stdin"


def shown_path(path: str) -> str:
    """Return a path relative to the current directory, with `/` between its parts.

    A path outside of the current directory is absolute. Standard input and a model in memory are
    `stdin`.
    """
    if path in ("", "-"):
        return _STANDARD_INPUT
    if is_remote(path):
        return path
    relative = relative_path(path)
    if relative is None or relative.split("/")[0] == os.pardir:
        return Path(os.path.abspath(path)).as_posix()
    return relative


def uri(path: str) -> tuple[str, bool]:
    """Return a path as a URI reference, and whether that is relative to the current directory."""
    shown = shown_path(path)
    if is_remote(shown):
        return shown, False
    if os.path.isabs(shown):
        return Path(shown).as_uri(), False
    return quote(shown.encode("utf-8", "surrogateescape")), True


# Groups of findings that differ only in the numbers of names.


_RANGES = 30  # characters that numbers may take: `{1..29}`, `{1,3,5,7,9..29}`


def folded(findings: Iterable[Finding]) -> Iterator[tuple[Finding, list[Finding]]]:
    """Yield the first finding of each group with the others, in the order of the first ones."""
    for first, *others in groups_alike(findings, lambda finding: finding.group):
        yield first, others


def others_in_words(others: Sequence[Finding]) -> str:
    """Return the number and places of the other findings of a group: `29 more, layer.{1..29}`."""
    names = list(dict.fromkeys(qualified_name(finding.location) for finding in others))
    if not names[-1]:
        return f"{len(others)} more"
    name = joined(names)
    if name is None or len(name) > len(names[0]) + _RANGES:  # numbers without a pattern
        name = f"the last at {names[-1]}"
    return f"{len(others)} more, {name}"


def found_in_words(summary: Summary) -> str:
    """Return the numbers of findings: `1 error, 2 warnings, 0 remarks`."""
    pairs = (summary.error, "error"), (summary.warning, "warning"), (summary.info, "remark")
    return ", ".join(counted(number, noun) for number, noun in pairs)


# Writing findings file by file, so that no report is in memory as a whole.


_IN_MEMORY = 1 << 20  # bytes
_PIECE = 1 << 16  # characters


class Writer:
    """Makes the text of a report in one format, file by file.

    A writer is used once: `begin`, `file` for each file in order, `end`. The text is what they
    return, joined. It ends with a line end; a text without lines is "".

    Args:
        tally: The counts of all files, which grow as files are added; the severity that fails a
            check is known from the start.
        statistics: Whether to count the findings of each rule, if the format has a place for it.
    """

    in_lines: ClassVar[bool] = False
    """Whether the text of each file is useful without the rest."""

    depth: ClassVar[int] = 0
    """How many brackets of a document in JSON are open around its list, which is indented so."""

    def __init__(self, tally: Tally, *, statistics: bool = False) -> None:
        self.tally = tally
        self.statistics = statistics
        self._is_empty = True

    def begin(self) -> str:
        """Return the text before the first file."""
        return ""

    def file(self, file: FileReport) -> str:
        """Return the text of one file; "" if there is none, or if it comes at the end."""
        raise NotImplementedError

    def end(self) -> Iterator[str]:
        """Yield the text after the last file, when the tally is complete."""
        yield from ()

    def items(self, items: Sequence[Any]) -> str:
        """Return the text of some more items of the list of a document in JSON."""
        text = ""
        for item in items:
            text += "[\n" if self._is_empty else ",\n"
            self._is_empty = False
            text += textwrap.indent(json.dumps(item, indent=2), "  " * (self.depth + 1))
        return text

    def end_of_list(self) -> str:
        """Return the end of this list, which may be empty."""
        return "[]" if self._is_empty else f"\n{'  ' * self.depth}]"


class Spool:
    """Text that is kept for later: the first MiB in memory, more than that on disk."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(  # noqa: SIM115
            _IN_MEMORY, "w+", encoding="utf-8", errors="surrogatepass", newline=""
        )

    def add(self, text: str) -> None:
        """Keep some more."""
        self._file.write(text)

    def pieces(self) -> Iterator[str]:
        """Yield all that was kept, in order, and forget it."""
        with self._file as file:
            file.seek(0)
            while piece := file.read(_PIECE):
                yield piece


_STYLES: dict[Severity, str] = {"error": "bold red", "warning": "yellow", "info": "cyan"}
_SAFE, _UNSAFE = "`--fix`", "`--fix --unsafe-fixes`"


def counts(tally: Tally) -> Iterator[Block]:
    """Yield the number of findings of each rule."""
    rows = [
        (rule.code, rule.name, rule.severity, str(rule.count), str(rule.fixable))
        for rule in tally.counts()
    ]
    if rows:
        yield Grid("code, name, severity, findings, with a fix", rows)


def blocks(report: CheckReport) -> Iterator[Block]:
    """Yield the findings file by file."""
    for file in report.files:
        yield from blocks_of(file)


class TextWriter(Writer):
    """The findings file by file; with `statistics` counts alone; with `diff` how models change.

    Args:
        tally: As for every writer.
        statistics: As for every writer.
        diff: Whether to show diffs in place of findings.
        color: Whether to use colour; None does so if the process has a terminal.
        verbose: Whether to show every finding of a group.
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
    """Yield the findings of one file.

    Those that differ only in the numbers of names, as in the layers of a decoder, are shown once,
    with the places of the others; with `verbose`, all are shown.
    """
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


def remarks(report: CheckReport) -> Iterator[Block]:
    """Yield the remarks on files beside their findings."""
    for file in report.files:
        yield from remarks_of(file)


def remarks_of(file: FileReport, *, verbose: bool = False) -> Iterator[Block]:
    """Yield the remarks on one file; with `verbose`, its status as well."""
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
    text = counted(len(file.findings), "finding")
    if file.suppressed:
        text += f", {file.suppressed} suppressed in the model"
    if file.baselined:
        text += f", {file.baselined} in the baseline"
    return f"{text}; {file.seconds:.2f} s"


def closing(
    report: CheckReport | Tally, *, fails: bool | None = None, offers_fixes: bool = True
) -> Iterator[Block]:
    """Yield the last lines: notes on the run, and the total of findings.

    Args:
        report: The findings.
        fails: Whether the check failed; None for the answer of the report.
        offers_fixes: Whether to name the flags that fix findings.
    """
    tally = report if isinstance(report, Tally) else report.tally
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
        fails = tally.exit_code > 0 if fails is None else fails
        style = "bold red" if fails else "bold"
        yield Line("found", f"{found_in_words(summary)} {in_files}{hidden}", style)
    if summary.fixable and offers_fixes:
        yield Line("fixable", f"{summary.fixable} with {_SAFE}")
    if summary.unsafe_fixable and offers_fixes:
        yield Line("fixable", f"{summary.unsafe_fixable} with {_UNSAFE}")


def _hidden(suppressed: int, baselined: int, kept: int) -> str:
    files = f"{counted(kept, 'file')} unchanged since an earlier run"
    parts = (f"{suppressed} suppressed", f"{baselined} in the baseline", files)
    told = [text for text in parts if not text.startswith("0 ")]
    return f" ({', '.join(told)})" if told else ""


def _name(path: str) -> str:
    return "standard input" if path == "-" else path or "the model"
