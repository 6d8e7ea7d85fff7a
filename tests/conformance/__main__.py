"""Write `docs/conformance.md`: `python -m tests.conformance`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.conformance.summary import TARGETS, page, verdicts


def main() -> None:
    """Judge all cases at all targets, print what is wrong and write the page."""
    found = {target: verdicts(target) for target in TARGETS}
    for target, by_name in found.items():
        for name, verdict in by_name.items():
            if verdict.status == "wrong":
                sys.stderr.write(f"{target}: {name}: {verdict.detail}\n")
    path = Path(__file__).resolve().parents[2] / "docs" / "conformance.md"
    path.write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
