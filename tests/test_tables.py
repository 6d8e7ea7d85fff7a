"""Tables refuse duplicates and keep their order, and every table of the package holds something."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import onnx_kvtool
from onnx_kvtool.core.tables import Table
from onnx_kvtool.rewrite.lowering.table import LOWERINGS


def tables() -> dict[str, Table]:
    """Return every table that a module of the package names, by module and name."""
    found = {}
    for info in pkgutil.walk_packages(onnx_kvtool.__path__, "onnx_kvtool."):
        if info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            if isinstance(value, Table):
                found[f"{info.name}.{name}"] = value
    return found


@pytest.mark.long
def test_every_table_says_what_it_holds() -> None:
    found = tables()
    assert "onnx_kvtool.cli.app.COMMANDS" in found
    assert "onnx_kvtool.rewrite.lowering.table.LOWERINGS" in found
    for name, table in found.items():
        assert table.kind, name
        assert len(table) > 0, name


def test_a_second_line_for_one_key_is_refused() -> None:
    with pytest.raises(ValueError, match="two entries for 'a' in the table of rules"):
        Table("rule", [("a", 1), ("b", 2), ("a", 1)])


def test_a_table_keeps_the_order_of_its_lines() -> None:
    assert list(Table("rule", [("b", 1), ("a", 2), ("c", 3)])) == ["b", "a", "c"]


@pytest.mark.long
def test_every_lowering_has_its_cases_where_the_page_says(root: Path) -> None:
    folder = root / "tests/rewrite/lowering"
    cases = "".join(path.read_text("utf-8") for path in folder.rglob("test_*.py"))
    missing = [name for name in LOWERINGS if re.search(rf"\b{name}\b", cases) is None]
    assert not missing
