"""Runs the notebooks of docs; `python -m tests.notebooks` writes what their cells print."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["NOTEBOOKS", "outputs", "printed", "read"]

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def read(path: Path) -> dict[str, Any]:
    """Return a notebook."""
    book: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return book


def outputs(book: dict[str, Any]) -> list[str]:
    """Return what the notebook says that its cells print, one text for each cell of code."""
    return [
        "".join(line for output in cell["outputs"] for line in output["text"])
        for cell in book["cells"]
        if cell["cell_type"] == "code"
    ]


def printed(book: dict[str, Any]) -> list[str]:
    """Run the cells one after the other, as a kernel does, and return what each prints."""
    names: dict[str, Any] = {"__name__": "__main__"}
    found = []
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
            found.append(said.getvalue())
    return found


def _write() -> None:
    for path in NOTEBOOKS:
        book = read(path)
        cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
        for number, (cell, text) in enumerate(zip(cells, printed(book), strict=True), 1):
            lines = text.splitlines(keepends=True)
            cell["execution_count"] = number
            cell["outputs"] = (
                [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
            )
        text = json.dumps(book, indent=1, ensure_ascii=False)
        path.write_text(f"{text}\n", encoding="utf-8")
        sys.stdout.write(f"written: {path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        os.symlink(ROOT / "fixtures", "fixtures")
        _write()
