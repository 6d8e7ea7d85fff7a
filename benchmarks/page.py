"""docs/performance.md, made of the stored measurements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from benchmarks.results import Cell, Line, Section, Table, Target
from benchmarks.store import Measured

__all__ = ["page", "section_text"]

_HEAD = """\
# Performance

What kvtool's rewrites are worth in onnxruntime, and what kvtool itself costs: beside reading and
writing the model, and beside other tools. `python -m benchmarks` writes this page. Numbers without
a unit are ratios. The forms that are compared take turns, so other work on the machine, of which
there was some, slows all of them. Differences below a tenth are noise, and other machines give
other numbers.
"""

_MISSES = """\
## Misses

The targets that were not reached.
"""

_TARGETS = """\
## All targets

Goals that were set before anything was measured, bounds that keep what was reached, and what they
were held against.
"""

_COLUMNS = ("what", "target", "reached", "met")


def page(measured: Measured, sections: Sequence[Section]) -> str:
    """Return the page of all sections that have been measured.

    Raises:
        ValueError: If the lines of a table are not those that it declares.
    """
    shown = [section for section in sections if section.name in measured.tables]
    texts = [
        section_text(section, measured.tables[section.name], measured.elsewhere.get(section.name))
        for section in shown
    ]
    targets = list(_target_rows(measured, shown))
    missed = [row for row in targets if row[-1] != "yes"]
    met = [
        (
            f"[{section.title}](#{_anchor(section.title)})",
            *_count(_target_rows(measured, [section])),
        )
        for section in shown
    ]
    return "\n".join(
        [
            _HEAD,
            (
                f"{len(targets) - len(missed)} of {len(targets)} [targets](#all-targets) are met"
                f"{', the others stand under [Misses](#misses)' if missed else ''}.\n"
            ),
            *_table(
                ("what was measured", "targets met", "of"), (row for row in met if row[2] != "0")
            ),
            *_facts(measured),
            *texts,
            *([_MISSES, *_table(_COLUMNS[:-1], (m[:-1] for m in missed))] if missed else []),
            _TARGETS,
            *_table(_COLUMNS, targets),
        ]
    )


def _count(rows: Iterable[Sequence[str]]) -> tuple[str, str]:
    answers = [row[-1] for row in rows]
    return str(answers.count("yes")), str(len(answers))


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def section_text(
    section: Section,
    tables: Sequence[Sequence[Line]],
    elsewhere: Mapping[str, str] | None = None,
) -> str:
    """Return a section as Markdown, a heading of the second level first.

    Args:
        section: What was measured.
        tables: The lines of its tables.
        elsewhere: What is different where it was measured from what the page says.

    Raises:
        ValueError: If the lines of a table are not those that it declares.
    """
    text = [f"## {section.title}\n", f"{section.about.strip()}\n"]
    if elsewhere:
        facts = ", ".join(f"{name} {value}" for name, value in elsewhere.items())
        text.append(f"This section was measured elsewhere: {facts}.\n")
    for table, lines in zip(section.tables, tables, strict=True):
        if [line.case for line in lines] != list(table.cases):
            raise ValueError(f"`{section.name}` has not measured what it declares")
        text += [f"### {table.title}\n"] if table.title else []
        text += [f"{table.about}\n"] if table.about else []
        text += _table(
            table.columns, ((line.case, *(_shown(cell) for cell in line.cells)) for line in lines)
        )
    return "\n".join(text)


def _shown(cell: Cell) -> str:
    """Return the text of a cell, bold and with its goals where it misses one."""
    missed = [target for target in cell.targets if not target.met]
    if not missed:
        return cell.text
    return f"**{cell.text}** (target: {'; '.join(_goal(target) for target in missed)})"


def _goal(target: Target) -> str:
    return f"{target.what} {'at least' if target.at_least else 'at most'} {target.limit:g}"


def _target_rows(measured: Measured, sections: Sequence[Section]) -> Iterator[tuple[str, ...]]:
    for section in sections:
        for table, lines in zip(section.tables, measured.tables[section.name], strict=True):
            for line, head, cell in _cells(table, lines):
                for target in cell.targets:
                    yield (
                        f"{line.case}, {head}" if len(table.columns) > 2 else line.case,
                        _goal(target),
                        f"{target.measured:.2f}",
                        "yes" if target.met else "**no**",
                    )


def _cells(table: Table, lines: Sequence[Line]) -> Iterator[tuple[Line, str, Cell]]:
    for line in lines:
        for head, cell in zip(table.columns[1:], line.cells, strict=True):
            yield line, head, cell


def _facts(measured: Measured) -> Iterator[str]:
    yield from _table(("measured on", ""), measured.machine.items())
    packages = ", ".join(f"{name} {version}" for name, version in measured.versions.items())
    yield f"With {packages}.\n"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [columns, ["---"] * len(columns), *rows]
    return [*("| " + " | ".join(line) + " |" for line in lines), ""]
