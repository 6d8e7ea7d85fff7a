"""The tables of generated pages that need no measuring."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

from benchmarks.pictures import pictures
from onnx_kvtool.core.tables import Table
from tests.pages import commands, operators, rules, schemas, targets
from tests.pages.markdown import DOCS

__all__ = ["COMMITTED", "MADE", "documents", "made", "write"]

Generators = Table[str, Callable[[], Mapping[str, str]]]

COMMITTED: Generators = Table(
    "generator of pages",
    [
        ("images", pictures),
        ("schemas", schemas.pages),
    ],
)
"""What returns the files of a directory of docs, by name; `write` writes them."""

MADE: Generators = Table(
    "generator of pages",
    [
        ("commands", commands.pages),
        ("operators", operators.pages),
        ("rules", rules.pages),
        ("targets", targets.pages),
    ],
)
"""What returns the pages that the site alone has as a whole; docs has what is written by hand."""


@functools.cache
def made() -> dict[str, str]:
    """Return the pages that are made when the site is built, by their path in docs."""
    return {
        f"{name}/{file}": text for name, pages in MADE.items() for file, text in pages().items()
    }


def documents() -> dict[str, str]:
    """Return each page for people as it is read, by its path from the root of the project."""
    files = [*DOCS.parent.glob("*.md"), *DOCS.glob("**/*.md")]
    written = {
        path.relative_to(DOCS.parent).as_posix(): path.read_text(encoding="utf-8") for path in files
    }
    return dict(sorted((written | {f"docs/{name}": text for name, text in made().items()}).items()))


def write() -> list[str]:
    """Write every committed page that is not current, remove those that nobody makes, name them."""
    changed = []
    for name, pages in COMMITTED.items():
        directory, wanted = DOCS / name, pages()
        directory.mkdir(exist_ok=True)
        for path in directory.iterdir():
            if path.suffix in (".md", ".json", ".svg") and path.name not in wanted:
                path.unlink()
                changed.append(f"{name}/{path.name}")
        for file, text in wanted.items():
            path = directory / file
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")
                changed.append(f"{name}/{file}")
    return changed
