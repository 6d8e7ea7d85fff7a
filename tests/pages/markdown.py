"""Docstrings and tables as Markdown."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

__all__ = ["DOCS", "contract", "element_type", "head", "joined", "prose", "table"]

DOCS = Path(__file__).resolve().parents[2] / "docs"

_SECTION = re.compile(r"^(?:Args|Attributes|Returns|Raises|Yields|Examples):$", re.MULTILINE)


def head(name: str) -> str:
    """Return what is written by hand of a page of docs that the site adds tables to."""
    return (DOCS / name).read_text(encoding="utf-8")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; pipes in its cells are escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        f"| {' | '.join(c.replace('|', chr(92) + '|') for c in row)} |" for row in lines
    )


def joined(items: Iterable[object]) -> str:
    """Return items with commas between them, `-` for none."""
    return ", ".join(map(str, items)) or "-"


def element_type(name: str) -> str:
    """Return an element type by the name that numpy gives it; schemas have `float` and `double`."""
    return {"float": "float32", "double": "float64"}.get(name, name)


def contract(function: Any) -> str:
    """Return what the docstring of a rule says before its arguments.

    That of a function in a package, or one that refers to its module, is the docstring of the
    module.
    """
    text = inspect.getdoc(function) or ""
    module = sys.modules[function.__module__]
    if hasattr(module, "__path__") or "the module's contract" in text:
        text = inspect.getdoc(module) or ""
    body = _SECTION.split(text)[0].strip()
    if found := re.search(r"^Returns:\n\s+None, (for the schema's body, .*)", text, re.M | re.S):
        left = " ".join(_SECTION.split(found[1])[0].split())
        body += f"\n\nLeft{left.removeprefix('for').replace(' the', ' to the', 1)}"
    return prose(body)


def prose(text: str) -> str:
    """Return plain text with formulas and drawings as Markdown.

    What is indented, and a paragraph that does not end as a sentence does, stands as it is.
    """
    return "\n\n".join(
        part for paragraph in re.split(r"\n\n+", text) for part in _paragraph(paragraph)
    )


def _paragraph(text: str) -> Iterator[str]:
    lines = text.splitlines()
    for indented, group in groupby(lines, key=lambda line: line.startswith(" ")):
        part = list(group)
        if indented or not (part[-1][-1] in ".:;" or re.fullmatch(r"[A-Za-z ]+", part[0])):
            width = min(len(line) - len(line.lstrip()) for line in part)
            yield "\n".join(("```text", *(line[width:].rstrip() for line in part), "```"))
        else:
            yield _escaped("\n".join(part))


def _escaped(text: str) -> str:
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(p if p.startswith("`") else re.sub(r"([*_<\[])", r"\\\1", p) for p in parts)
