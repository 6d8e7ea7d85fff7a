"""The house stays as small as its page says."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.house import COMMANDS, entered, measures


def limits(root: Path) -> dict[str, float]:
    """Return what stands in the last column of the table of limits, by the first."""
    page = (root / "docs" / "developing" / "house.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\S.*?) \|(?: [\d,.]+ \|){3} ([\d,.]+) \|$", page, re.MULTILINE)
    return {title: float(limit.replace(",", "")) for title, limit in rows}


_COMMANDS = {"cli", "commands", "rewrite"}
_OPERATORS = ("contrib", "rewrite/lowering", "runtime/kernels", "symbolic/rules")
_ROLES = {"contrib", "engine", "errors", "report", "rule", "stage"}


def test_a_name_of_a_file_stands_once_or_is_a_role(root: Path) -> None:
    folders = defaultdict(list)
    for path in (root / "onnx_kvtool").rglob("*.py"):
        folders[path.stem].append(path.parent.relative_to(root / "onnx_kvtool").as_posix())
    assert len(folders.pop("table")) <= 4
    several = {
        name: sorted(found)
        for name, found in folders.items()
        if len(found) > 1 and name not in _ROLES | {"__init__"} and not _COMMANDS.issuperset(found)
    }
    assert [
        f"{name}: {', '.join(found)}"
        for name, found in several.items()
        if not all(folder.startswith(_OPERATORS) for folder in found)
    ] == []


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
