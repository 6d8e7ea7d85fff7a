"""Tables of HTML, whose style sets them for any width of a page."""

from __future__ import annotations

import re

import pytest

from onnx_kvtool.report.blocks import Grid
from onnx_kvtool.report.page import STYLE, table, whole_page
from tests.grids import each

COLUMNS = {
    "counts": (["4", "1,024"], True),
    "differences": (["1e-07", "inf", "-"], True),
    "sizes": (["512 B", "425.2 KiB"], True),
    "shares": (["1 of 16,384", "-"], True),
    "names": (["key_cache.0", "7"], False),
    "operators, whatever their title says": (["Add x2, Mul", "-"], False),
    "nothing that is known": (["-", ""], False),
    "no rows": ([], False),
}


@each("name", [*COLUMNS])
def test_columns_of_numbers_are_flush_right(name: str) -> None:
    cells, are_numbers = COLUMNS[name]
    shown = table(Grid(("nodes",), tuple((cell,) for cell in cells)))
    assert shown.count('<td class="number"') == (len(cells) if are_numbers else 0)
    assert ('<th class="number">' in shown) == are_numbers


def test_each_cell_knows_the_title_of_its_column() -> None:
    shown = table(Grid(("a & b", "old", "new"), (("x", "3", "5"),)))
    assert re.findall('data-title="(.*?)"', shown) == ["a &amp; b", "old", "new"]
    assert "content: attr(data-title)" in STYLE


@pytest.mark.parametrize(("columns", "kind"), [(2, "narrow"), (3, "wide"), (8, "wide")])
def test_many_columns_are_too_wide_for_a_telephone(columns: int, kind: str) -> None:
    shown = table(Grid(("title",) * columns, (("cell",) * columns,)))
    assert f'<table class="{kind}">' in shown


def test_a_name_that_stands_for_several_is_not_broken() -> None:
    shown = table(Grid(("name", "by"), (("layers.{0..29}.key, b", "float {2.0}, <{x}>"),)))
    assert '<span class="whole">layers.{0..29}.key,</span> b<' in shown
    assert ">float {2.0}, <" in shown
    assert '<span class="whole">&lt;{x}&gt;</span>' in shown


@pytest.mark.parametrize("script", ["", "run();"])
def test_a_page_runs_the_script_that_it_was_given_and_nothing_else(script: str) -> None:
    page = whole_page("a <title>", ["<p>body</p>"], script=script)
    assert "<title>a &lt;title&gt;</title>" in page
    assert ("script-src" in page, "<script>" in page) == (bool(script), bool(script))
    assert "default-src &#x27;none&#x27;" in page
