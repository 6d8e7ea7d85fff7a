"""Write `docs/inference.md`: `python -m tests.shapes [FOLDER]`; by default for the fixtures."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.shapes.page import MODELS, page


def main() -> None:
    """Count for all models and write the page."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else MODELS
    docs = Path(__file__).resolve().parents[2] / "docs"
    (docs / "inference.md").write_text(page(folder), encoding="utf-8")


if __name__ == "__main__":
    main()
