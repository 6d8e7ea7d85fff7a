"""The table of generated pages that need no measuring."""

from __future__ import annotations

from pathlib import Path

from benchmarks.pictures import pictures
from onnx_kvtool.core.table import Table
from tests.pages import commands, operators, rules, schemas, targets

__all__ = ["DOCS", "GENERATORS", "write"]

DOCS = Path(__file__).resolve().parents[2] / "docs"


GENERATORS = Table(
    "generator of pages",
    [
        ("commands", commands.pages),
        ("images", pictures),
        ("operators", operators.pages),
        ("rules", rules.pages),
        ("schemas", schemas.pages),
        ("targets", targets.pages),
    ],
)
"""What returns the pages of a directory of docs: the content of each, by the name of its file."""


def write() -> list[str]:
    """Write every page that is not current, remove those that are no longer made, and name them."""
    changed = []
    for name, pages in GENERATORS.items():
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
