"""Lines and tables on a terminal, in a pipe or in a notebook; the only module that knows rich."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import textwrap
from collections.abc import Iterable, Iterator
from io import StringIO
from typing import TextIO

from rich.console import Console
from rich.text import Text

from onnx_kvtool.core.machine import Progress
from onnx_kvtool.core.words import escape
from onnx_kvtool.report.blocks import Block, Grid, Line, Marked

_READABLE = 24  # columns that text of several words gets, however narrow the terminal is
_UNLIMITED = 1 << 20  # columns: no name is ever cut or wrapped, whatever the terminal's width


def print_blocks(blocks: Iterable[Block], *, color: bool | None) -> None:
    """Print the lines and tables of a report on standard output.

    Args:
        blocks: What to print.
        color: Whether to use colour; None does so on a terminal.
    """
    _print_blocks(_console(sys.stdout, color, is_terminal=color), blocks)


def print_talk(blocks: Iterable[Block], *, color: bool | None) -> None:
    """Print lines on standard error.

    Args:
        blocks: What to print.
        color: Whether to use colour; None does so on a terminal.
    """
    _print_blocks(_console(sys.stderr, color, is_terminal=color), blocks)


@contextlib.contextmanager
def progress_line() -> Iterator[Progress]:
    """Yield a function that shows progress on standard error, with a bar and the elapsed time.

    The line disappears after the block.
    """
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    console = Console(file=sys.stderr, markup=False)
    text = TextColumn("{task.description}", markup=False)
    with Bars(
        text,
        BarColumn(20),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        redirect_stdout=False,
    ) as shown:
        task = shown.add_task("", total=None)

        def show(what: str, part: int = 0, parts: int = 0) -> None:
            counted = f"{what} {part} of {parts}" if parts else what
            done, total = (part - 1, parts) if parts else (0, None)
            shown.update(task, description=escape(counted), completed=done, total=total)

        yield show


def text_of_blocks(blocks: Iterable[Block], *, color: bool | None = False) -> str:
    """Return what `print_blocks` prints.

    Args:
        blocks: The blocks.
        color: True for a terminal with colour; None for a terminal with the colour that its user
            set; False for a pipe.
    """
    text = StringIO()
    _print_blocks(_console(text, color, is_terminal=color is not False), blocks)
    return text.getvalue()


def _print_blocks(console: Console, blocks: Iterable[Block]) -> None:
    for block in blocks:
        if isinstance(block, Line):
            _line(console, block.label, block.text, block.style)
        elif isinstance(block, Marked):
            text = Text(escape(block.text))
            for begin, end in block.spans:
                text.stylize("bold green", begin, end)
            console.print(text, soft_wrap=True)
        else:
            _table(console, block)


class _Console(Console):
    """A console that raises if its reader goes away."""

    def on_broken_pipe(self) -> None:
        """Raise the error that rich caught, instead of exit code 1, which means "no"."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def _console(file: TextIO, color: bool | None, *, is_terminal: bool | None) -> Console:
    """Return a console on a file; None asks the file whether it is a terminal."""
    return _Console(
        file=file,
        force_terminal=is_terminal,
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


def _table(console: Console, grid: Grid) -> None:
    """Print rows under a header: a table on a terminal, plain columns elsewhere.

    No name is cut or wrapped. If a terminal is too narrow, the last column wraps between words. If
    that is not enough, spare columns are omitted. As the last resort, each row is a list of cells.
    """
    cells = [grid.header, *(tuple(map(escape, row)) for row in grid.rows)]
    # Without colour rich takes a terminal for none.
    if not (console.is_terminal or console.file.isatty()):
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            pairs = zip(row, widths, strict=True)
            text = "  ".join(cell.ljust(width) for cell, width in pairs)
            console.print(Text(f"  {text}".rstrip()), soft_wrap=True)
        return
    import shutil

    room, spare = shutil.get_terminal_size().columns, [x for x in grid.spare if x in grid.header]
    for count in range(len(spare) + 1):
        left = [i for i, title in enumerate(grid.header) if title not in spare[:count]]
        if _fits(console, [tuple(row[i] for i in left) for row in cells], room):
            if count:
                names = ", ".join(title for title in grid.header if title in spare[:count])
                _line(console, "not shown", f"{names} (too wide for {room} columns)", "dim")
            return
    _records(console, grid.header, cells[1:], room)


def _fits(console: Console, cells: list[tuple[str, ...]], room: int) -> bool:
    """Print a table if it fits, with a wrapped last column if needed; return whether it does."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for title in cells[0]:
        table.add_column(title, no_wrap=True)
    for row in cells[1:]:
        table.add_row(*map(Text, row))
    natural = console.measure(table).maximum
    if natural <= room:
        console.print(table)
        return True
    *_, last = zip(*cells, strict=True)
    longest = max(len(word) for cell in last for word in cell.split(" "))
    if natural - max(map(len, last)) + max(longest, _READABLE) > room:
        return False
    table.columns[-1].no_wrap = False
    console.print(table, width=room, soft_wrap=False)
    return True


def _records(
    console: Console, header: tuple[str, ...], rows: list[tuple[str, ...]], room: int
) -> None:
    """Print each row as lines of a title and a cell; cells wrap between words."""
    indent = max(map(len, header)) + 4
    for number, row in enumerate(rows):
        if number:
            console.print()
        for title, cell in zip(header, row, strict=True):
            width = max(room - indent, _READABLE)
            first, *more = textwrap.wrap(
                cell, width, break_long_words=False, break_on_hyphens=False
            ) or [""]
            label = (f"  {title}".ljust(indent), "bold")
            console.print(Text.assemble(label, first), soft_wrap=True)
            for line in more:
                console.print(Text(" " * indent + line), soft_wrap=True)
