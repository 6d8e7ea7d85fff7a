"""Reports as text for people, on standard error; the only module that knows rich."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.text import Text

from onnx_kvtool.core.progress import Progress
from onnx_kvtool.core.quantity import counted
from onnx_kvtool.report.alike import and_others, form, groups_alike
from onnx_kvtool.report.blocks import Block, Line, Marked
from onnx_kvtool.report.escape import escape

if TYPE_CHECKING:  # each command needs one of these, and has it
    from onnx_kvtool.commands.targets import TargetsReport
    from onnx_kvtool.core.diagnostic import Diagnostic
    from onnx_kvtool.rewrite.raise_report import RaiseReport
    from onnx_kvtool.rewrite.report import Lowered, LowerReport, Verification
    from onnx_kvtool.runtime.evaluation.report import EvalReport
    from onnx_kvtool.runtime.verification.report import VerifyReport
    from onnx_kvtool.targets.target import Release

__all__ = [
    "print_blocks",
    "print_eval",
    "print_lower",
    "print_raise",
    "print_talk",
    "print_targets",
    "print_verify",
    "progress_line",
    "text_of_blocks",
]

_READABLE = 24  # columns that text of several words gets, however narrow the terminal is
_UNLIMITED = 1 << 20  # columns: no name is ever cut or wrapped, whatever the terminal's width
_VERDICT_STYLE = {
    "equal": "green",
    "different": "bold red",
    "skipped": "yellow",
    "unrunnable": "yellow",
}


def print_lower(report: LowerReport, *, color: bool | None, dry_run: bool) -> None:
    """Print what `lower` did, or every reason why it did nothing.

    Args:
        report: What to print.
        color: Whether to use colour; None does so on a terminal.
        dry_run: Whether nothing was to be written, so that its absence is no news.
    """
    console = _console(color)
    failed = bool(report.refused) or report.verification.status == "different"
    _print_head(console, report, failed)
    for refusals in groups_alike(report.refused, lambda r: (r.code, r.help, r.lowest_opset)):
        _print_refusals(console, refusals)
    if report.lowered and not failed:
        _table(console, ("operator", "nodes", "rule", "form"), _counts(report.lowered))
    for note in report.notes:
        _line(console, "note", note)
    _print_end(console, report, verified=not report.refused, dry_run=dry_run and not failed)


def print_raise(report: RaiseReport, *, color: bool | None, failed: bool, dry_run: bool) -> None:
    """Print what `raise` did, with the proofs, and what it lacked for what it did not do.

    Args:
        report: What to print.
        color: Whether to use colour; None does so on a terminal.
        failed: Whether the raise ended in a failure.
        dry_run: Whether nothing was to be written, so that its absence is no news.
    """
    from onnx_kvtool.report import raise_text

    console = _console(color)
    _print_blocks(console, raise_text.blocks(report, failed=failed))
    done = report.is_changed
    _print_end(console, report, verified=done, dry_run=dry_run and done and not failed)


def _print_end(
    console: Console, report: LowerReport | RaiseReport, *, verified: bool, dry_run: bool
) -> None:
    """Print how a result compared with its source and where it was written."""
    is_unproven = report.verification.is_unproven
    if verified and not is_unproven:
        style = _VERDICT_STYLE[report.verification.status]
        _line(console, "verification", _verdict(report.verification), style)
    if report.output is not None:
        _line(console, "written", "standard output" if report.output == "-" else report.output)
    elif dry_run:
        _line(console, "dry run", "nothing was written")
    if verified and is_unproven:
        text = f"nothing was proven: {report.verification.detail}"
        _line(console, "warning", text, _VERDICT_STYLE["skipped"])


def print_targets(report: TargetsReport, *, color: bool | None) -> None:
    """Print the releases of runtimes on standard output, one line each.

    Args:
        report: What to print.
        color: Whether to use colour; None does so on a terminal.
    """
    header = ("runtime", "version", "opset", "IR version", "evidence", "limits")
    _table(_console(color, data=True), header, [_target_row(r) for r in report.targets])


def print_verify(report: VerifyReport, *, color: bool | None) -> None:
    """Print how two models compare on standard output, and remarks on standard error.

    Args:
        report: What to print.
        color: Whether to use colour; None does so on a terminal.
    """
    from onnx_kvtool.report import comparison

    console = _console(color, data=True)
    _line(console, report.status, comparison.headline(report), _VERDICT_STYLE[report.status])
    if rows := comparison.rows(report):
        _table(console, comparison.HEADER, rows)
    for label, text in comparison.places(report):
        _line(console, label, text)
    for note in report.notes:
        _line(_console(color), "note", note)


def print_eval(report: EvalReport, *, color: bool | None) -> None:
    """Print what an evaluation gave on standard output, and remarks on standard error.

    Args:
        report: What to print.
        color: Whether to use colour; None does so on a terminal.
    """
    from onnx_kvtool.report import eval_text

    print_blocks(eval_text.blocks(report), color=color)
    _print_blocks(_console(color), eval_text.remarks(report))


def print_blocks(blocks: Iterable[Block], *, color: bool | None) -> None:
    """Print the lines and tables of a report on standard output.

    Args:
        blocks: What to print.
        color: Whether to use colour; None does so on a terminal.
    """
    _print_blocks(_console(color, data=True), blocks)


def print_talk(blocks: Iterable[Block], *, color: bool | None) -> None:
    """Print lines on standard error.

    Args:
        blocks: What to print.
        color: Whether to use colour; None does so on a terminal.
    """
    _print_blocks(_console(color), blocks)


@contextlib.contextmanager
def progress_line() -> Iterator[Progress]:
    """Yield what shows on standard error what is under way, with a bar and the time it takes.

    The line is gone after the block.
    """
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    console = Console(file=sys.stderr, markup=False)
    text = TextColumn("{task.description}", markup=False)
    with Bars(text, BarColumn(20), TimeElapsedColumn(), console=console, transient=True) as shown:
        task = shown.add_task("", total=None)

        def show(what: str, part: int = 0, parts: int = 0) -> None:
            counted = f"{what} {part} of {parts}" if parts else what
            done, total = (part - 1, parts) if parts else (0, None)
            shown.update(task, description=counted, completed=done, total=total)

        yield show


def text_of_blocks(blocks: Iterable[Block]) -> str:
    """Return what `print_blocks` prints where there is neither colour nor a terminal."""
    text = StringIO()
    _print_blocks(_console(False, file=text), blocks)
    return text.getvalue()


def _print_blocks(console: Console, blocks: Iterable[Block]) -> None:
    for block in blocks:
        if isinstance(block, Line):
            _line(console, block.label, block.text, block.style)
        elif isinstance(block, Marked):
            text = Text(block.text)
            for begin, end in block.spans:
                text.stylize("bold green", begin, end)
            console.print(text, soft_wrap=True)
        else:
            _table(console, block.header, list(block.rows))


def _target_row(release: Release) -> tuple[str, ...]:
    return (
        release.runtime,
        release.version,
        _known(release.max_opset),
        _known(release.max_ir_version),
        release.evidence,
        ", ".join(limit.name for limit in release.limits),
    )


def _known(version: int | None) -> str:
    return "-" if version is None else str(version)


def _print_head(console: Console, report: LowerReport, failed: bool) -> None:
    """Print which model it was, and between which versions."""
    text = "standard input" if report.model == "-" else report.model
    if report.target is not None:
        text += f" for {report.target}"
    text += f", opset {report.source_opset}"
    if report.target_opset != report.source_opset:
        text += f" to {report.target_opset}"
    if failed:
        _line(console, "not lowered", f"{text}; nothing was written", "bold red")
    else:
        _line(console, "lowered", f"{text}, IR version {report.ir_version}")


class _Console(Console):
    """A console whose reader may go away, as for any other output of the process."""

    def on_broken_pipe(self) -> None:
        """Raise what rich caught, in place of an exit with 1, which is the answer no."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def _console(color: bool | None, *, data: bool = False, file: TextIO | None = None) -> Console:
    """Return what prints talk to standard error, data to standard output, or either to `file`."""
    return _Console(
        file=file or (sys.stdout if data else sys.stderr),
        force_terminal=color,
        no_color=None if color is None else not color,
        color_system="standard" if color else "auto",
        width=_UNLIMITED,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,
    )


def _line(console: Console, label: str, text: str, style: str = "bold") -> None:
    """Print `label: text` on one line, however long it is."""
    console.print(Text.assemble((f"{escape(label)}:", style), " ", escape(text)), soft_wrap=True)


def _counts(lowered: Sequence[Lowered]) -> list[tuple[str, ...]]:
    """Return one row per operator, rule and form, in the order of their first nodes."""
    counts = Counter((done.location.op or "", done.rule, done.via or "") for done in lowered)
    return [(op, str(count), rule, via) for (op, rule, via), count in counts.items()]


def _print_refusals(console: Console, refusals: Sequence[Diagnostic]) -> None:
    """Print refusals of one remedy, those that differ in names only on one line."""
    first = refusals[0]
    for one, *others in groups_alike(refusals, lambda r: (r.location.op, form([r.message]))):
        place = and_others(str(one.location), len(others))
        _line(console, first.code, f"{place}: {one.message}", "red")
    if first.lowest_opset is not None:
        _line(console, "  lowest opset", str(first.lowest_opset))
    if first.help is not None:
        _line(console, "  help", first.help)


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
    return f"{text}; {verification.detail}" if verification.detail else text


def _agreement(bit_equal: int, max_abs_diff: float | None) -> str:
    exact = f"{counted(bit_equal, 'output')} equal bit for bit"
    if not max_abs_diff:
        return exact
    close = f"largest difference {max_abs_diff:.1e}"
    return f"{exact}, {close} in the others" if bit_equal else close


def _table(console: Console, header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print rows under a header: a table on a terminal, plain columns elsewhere.

    No name is cut or wrapped. On a terminal that is too narrow the words of the last column take
    several lines; whatever is longer still is left to the terminal.
    """
    cells = [header, *(tuple(map(escape, row)) for row in rows)]
    if not console.is_terminal:
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            pairs = zip(row, widths, strict=True)
            text = "  ".join(cell.ljust(width) for cell, width in pairs)
            console.print(Text(f"  {text}".rstrip()), soft_wrap=True)
        return
    import shutil

    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for title in header:
        table.add_column(title, no_wrap=True)
    for row in cells[1:]:
        table.add_row(*map(Text, row))
    natural, room = console.measure(table).maximum, shutil.get_terminal_size().columns
    if natural <= room:
        console.print(table)
        return
    *_, last = zip(*cells, strict=True)
    longest = max(len(word) for cell in last for word in cell.split(" "))
    least = natural - max(map(len, last)) + max(longest, _READABLE)
    table.columns[-1].no_wrap = False
    console.print(table, width=min(natural, max(room, least)), soft_wrap=False)
