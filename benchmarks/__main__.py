"""Measure, print, and write docs/performance.md: `python -m benchmarks`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import architectures, compatibility
from benchmarks.machine import machine, versions
from benchmarks.page import page, section_text
from benchmarks.results import Line, Section
from benchmarks.sections import SECTIONS
from benchmarks.store import STORE, Measured, load, save

_PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"

_NAMES = (*(section.name for section in SECTIONS), "compatibility", "architectures")

_ABOUT = """\
Run the benchmarks, one after the other. Without NAME all are run, which takes about half an hour,
and docs/performance.md is written; with NAME they are printed. `compatibility` is run only when it
is named: it installs every known release of the runtimes, some 3 GB, and writes
docs/compatibility.md. `architectures [ARCHITECTURE ...]` adds decoders of three exporters to that
page: those that are not there yet, or the named ones anew. The exit code is 1 when a target is
missed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit code."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    if chosen.names == ["compatibility"]:
        return compatibility.write()
    if chosen.names[:1] == ["architectures"]:
        for name in set(chosen.names[1:]) - set(architectures.ARCHITECTURES):
            parser.error(f"there is no architecture `{name}`")
        code = architectures.measure(chosen.names[1:])
        compatibility.write_page()
        return code
    _demand_sense(chosen, parser)
    sections = [s for s in SECTIONS if not chosen.names or s.name in chosen.names]
    keeps = not chosen.quick and chosen.output is None and (chosen.update or not chosen.names)
    measured = Measured(machine(), versions(), {})
    if keeps and chosen.names:
        measured = _kept(parser)
    for section in sections:
        tables = _measured(section, chosen.quick)
        measured = measured.with_section(section.name, tables, machine(), versions())
        if keeps:  # as it comes: the next one may fail
            save(measured)
            _PAGE.write_text(page(measured, SECTIONS), encoding="utf-8")
    if chosen.output is not None:
        chosen.output.write_text(page(measured, SECTIONS), encoding="utf-8")
    lines = [ls for section in sections for ts in measured.tables[section.name] for ls in ts]
    targets = [target for line in lines for cell in line.cells for target in cell.targets]
    return int(not all(target.met for target in targets))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=_ABOUT)
    parser.add_argument("names", metavar="NAME", nargs="*", help=", ".join(_NAMES))
    parser.add_argument(
        "--quick", action="store_true", help="take few rounds; nothing is kept of them"
    )
    parser.add_argument(
        "--update",
        action="store_true",
        help="put the results of the named ones into the page, with what this machine is if it is "
        "another one than that of the page",
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the page there instead")
    return parser


def _demand_sense(chosen: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """End with a usage error unless the benchmarks exist and the options go together."""
    unknown = sorted(set(chosen.names) - set(_NAMES))
    if unknown:
        parser.error(f"there is no benchmark `{unknown[0]}`")
    for alone in ("compatibility", "architectures"):
        if alone in chosen.names:
            parser.error(f"`{alone}` is run by itself")
    if chosen.quick and chosen.update:
        parser.error("what is kept is not measured with --quick")


def _kept(parser: argparse.ArgumentParser) -> Measured:
    """Return what was measured before; what is measured now stands beside it."""
    if not STORE.exists():
        parser.error("nothing was measured yet: run all")
    return load()


def _measured(section: Section, quick: bool) -> Sequence[Sequence[Line]]:
    """Measure a section and print it."""
    tables = []
    for table in section.tables:
        print(f"{section.name}: {table.title or section.title}", file=sys.stderr, flush=True)
        tables.append(list(table.measure(quick)))
    print(section_text(section, tables), flush=True)
    return tables


if __name__ == "__main__":
    sys.exit(main())
