"""Write `docs/conformance.md` and `docs/reference-runtime.md`: `python -m tests.conformance`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.conformance.reference import reference_page, runs
from tests.conformance.summary import TARGETS, page, verdicts


def main() -> None:
    """Judge all cases at all targets, print what is wrong and write the pages."""
    found = {target: verdicts(target) for target in TARGETS}
    for target, by_name in found.items():
        for name, verdict in by_name.items():
            if verdict.status == "wrong":
                sys.stderr.write(f"{target}: {name}: {verdict.detail}\n")
    docs = Path(__file__).resolve().parents[2] / "docs"
    (docs / "conformance.md").write_text(page(found), encoding="utf-8")
    (docs / "reference-runtime.md").write_text(reference_page(runs()), encoding="utf-8")


if __name__ == "__main__":
    main()
