"""The pages of the rules, as files.

Run it from the checkout to write them anew:  python -m tests.lint.pages
"""

from __future__ import annotations

from pathlib import Path

from onnx_kvtool.lint.page import index, markdown
from onnx_kvtool.lint.table import RULES

__all__ = ["DIRECTORY", "pages"]

DIRECTORY = Path(__file__).resolve().parents[2] / "docs" / "rules"


def pages() -> dict[str, str]:
    """Return the content of each page, by the name of its file."""
    files = {f"{rule.code}.md": f"{markdown(rule)}\n" for rule in RULES.values()}
    return {"index.md": f"{index(RULES.values())}\n", **files}


def main() -> None:
    DIRECTORY.mkdir(exist_ok=True)
    wanted = pages()
    for path in DIRECTORY.glob("*.md"):
        if path.name not in wanted:
            path.unlink()
    for name, text in wanted.items():
        (DIRECTORY / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
