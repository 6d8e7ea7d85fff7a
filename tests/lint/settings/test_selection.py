"""Codes are chosen by prefix; the longer one wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.lint.rule import RULES
from onnx_kvtool.lint.settings.config import PerFileIgnore, Selection, check_codes, find_rule
from tests.grids import each


def codes(selection: Selection, path: str = "") -> set[str]:
    return {rule.code for rule in selection.rules(path)}


@each(
    ("selection", "on", "off"),
    [
        pytest.param(Selection(), {"KV001", "MD400"}, set(), id="all rules are on by default"),
        pytest.param(Selection(("KV0",)), {"KV001", "KV003"}, {"MD400"}, id="a prefix selects"),
        pytest.param(Selection(("KV003",)), {"KV003"}, {"KV001"}, id="a code selects itself"),
        pytest.param(Selection(ignore=("KV0",)), {"MD400"}, {"KV001"}, id="a prefix ignores"),
        pytest.param(
            Selection(("KV003",), ignore=("KV0",)),
            {"KV003"},
            {"KV001"},
            id="a longer select wins over an ignore",
        ),
        pytest.param(
            Selection(("KV0",), ignore=("KV003",)),
            {"KV001"},
            {"KV003"},
            id="a longer ignore wins over a select",
        ),
        pytest.param(
            Selection(("KV003",), ignore=("KV003",)), set(), {"KV003"}, id="of equals, ignore wins"
        ),
        pytest.param(
            Selection(("KV003",), extend_select=("MD4",)),
            {"KV003", "MD400"},
            {"KV001"},
            id="extend-select adds",
        ),
        pytest.param(Selection(ignore=("ALL",)), set(), {"KV001"}, id="ALL ignores everything"),
        pytest.param(Selection(()), set(), {"KV001"}, id="an empty select is nothing"),
    ],
)
def test_selection(selection: Selection, on: set[str], off: set[str]) -> None:
    assert on <= codes(selection)
    assert not off & codes(selection)


def test_rules_come_in_the_order_of_the_table() -> None:
    chosen = [rule.code for rule in Selection(("MD4", "KV0")).rules()]
    assert chosen == [code for code in RULES if code.startswith(("MD4", "KV0"))]


@pytest.mark.parametrize(
    ("pattern", "path", "is_off"),
    [
        pytest.param("*.quant.onnx", "deep/a.quant.onnx", True, id="a name anywhere below"),
        pytest.param("*.quant.onnx", "deep/a.onnx", False, id="another name"),
        pytest.param("legacy/", "legacy/deep/a.onnx", True, id="a directory and all below"),
        pytest.param("/a.onnx", "deep/a.onnx", False, id="a slash in front stays at the top"),
        pytest.param("**/old/*.onnx", "x/y/old/a.onnx", True, id="any depth"),
        pytest.param("*", "../a.onnx", False, id="nothing above the configuration"),
        pytest.param("*", "-", False, id="standard input is no file"),
    ],
)
def test_per_file_ignores(
    pattern: str, path: str, is_off: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    selection = Selection(per_file=(PerFileIgnore(pattern, ("KV0",), str(tmp_path)),))
    assert ("KV003" not in codes(selection, path)) == is_off
    assert "MD400" in codes(selection, path)


@each(
    ("code", "near"),
    [
        pytest.param("KV01", None, id="a prefix of a code"),
        pytest.param("KV0003", "KV003", id="one digit too many"),
        pytest.param("kv003", "KV003", id="lower case"),
        pytest.param("MD4OO", "MD400", id="letters for digits"),
    ],
)
def test_an_unknown_code_names_the_nearest(code: str, near: str | None) -> None:
    if near is None:
        assert check_codes([code], "`--select`") == (code,)
        return
    with pytest.raises(UsageError, match=f"`--select`: no rule has the code `{code}`") as caught:
        check_codes([code], "`--select`")
    assert caught.value.help == f"did you mean `{near}`?"


def test_what_resembles_nothing_gets_the_list() -> None:
    with pytest.raises(UsageError) as caught:
        check_codes(["nonsense"], "`--ignore`")
    assert caught.value.help == "`kvtool rule --all` lists the rules"


def test_a_rule_is_found_by_code_in_any_case_and_by_name() -> None:
    assert find_rule("KV003") is find_rule("kv003") is find_rule("bad-mode") is RULES["KV003"]


@each(
    ("code", "near"),
    [("KV00", "KV001"), ("KV0O3", "KV003"), ("bad-moode", "bad-mode"), ("nonsense", None)],
)
def test_an_unknown_rule_names_the_nearest(code: str, near: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        find_rule(code)
    assert (near or "kvtool rule --all") in (caught.value.help or "")
