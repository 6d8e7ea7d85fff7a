"""The house stays as small as its page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.house import COMMANDS, entered, measures


def limits(root: Path) -> dict[str, float]:
    """Return what stands in the last column of the table of limits, by the first."""
    page = (root / "docs" / "developing" / "house.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\S.*?) \|(?: [\d,.]+ \|){3} ([\d,.]+) \|$", page, re.MULTILINE)
    return {title: float(limit.replace(",", "")) for title, limit in rows}


@pytest.mark.slow
def test_no_measure_is_above_its_limit(root: Path, tmp_path: Path) -> None:
    files = entered(root, tmp_path)
    found = measures(root) | {f"files that {title} enters": files[title] for title in COMMANDS}
    most = limits(root)
    assert found.keys() == most.keys()
    above = {title: (found[title], most[title]) for title in most if found[title] > most[title]}
    assert not above, (
        "above the limit of docs/developing/house.md; `python -m tests.house` measures"
    )
