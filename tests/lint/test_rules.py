"""Every rule has a page and a check, and its examples show what it says."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from onnx_kvtool.commands.check import check
from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.lint.rule import RULES, Rule, checks_in
from tests.grids import each
from tests.lint.cases import Case, findings
from tests.lint.example import example_message
from tests.lint.models import CLEAN, save

CODES = list(RULES)
HEADINGS = ["What it does", "Why is this bad?", "Fix safety", "Example", "References"]
FAMILIES = {rule.family for rule in RULES.values() if rule.family}
PAGES = Path(inspect.getfile(Rule)).parent / "rules" / "pages"
GROUPS = ("KV0", "KV1", "KV2", "KV3", "MD4", "XD5", "ON6")

each_rule = each("rule", RULES)


def example(rule: Rule, text: str, directory: Path) -> list[Finding]:
    """Return what a rule finds in an example, with the files of the rule beside it.

    Args:
        rule: The rule.
        text: The example.
        directory: Where a folder for the example is made.
    """
    directory /= rule.code
    directory.mkdir()
    for name, size in rule.example_files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(bytes(size))
    for name, target in rule.example_links.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).symlink_to(target)
    if not rule.family:
        return run_example(rule, text, directory)
    targets = [rule.example_target] if rule.example_target else []
    return findings(rule.code, example_message(text), targets, str(directory))


def run_example(rule: Rule, text: str, directory: Path) -> list[Finding]:
    """Return what a run over two files says by a rule, of which one holds the example."""
    path = directory / "example.onnx"
    try:
        path.write_bytes(example_message(text).SerializeToString())
    except ValueError:
        path.write_text(text, encoding="utf-8")
    other = save(CLEAN, directory / "clean.onnx")
    return [finding for finding in check([path, other]) if finding.code == rule.code]


def test_the_table_has_the_order_of_the_codes() -> None:
    groups = {group: [c for c in CODES if c.startswith(group)] for group in GROUPS}
    assert [code for codes in groups.values() for code in sorted(codes)] == CODES


def test_names_are_unique() -> None:
    names = [rule.name for rule in RULES.values()]
    assert len(set(names)) == len(names)


@each_rule
def test_a_page_has_its_name_and_its_headings_in_order(rule: Rule) -> None:
    assert re.fullmatch(r"[A-Z]{2}\d{3}", rule.code) and (PAGES / f"{rule.code}.md").is_file()
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
    expected = [h for h in HEADINGS if h != "Fix safety" or rule.fix is not None]
    assert re.findall(r"^## (.*)$", rule.page, re.MULTILINE) == expected
    assert all(map(rule.section, expected))
    assert re.match(r"# .{10,98}[^.]\n\n## ", rule.page), "the summary is the first heading"
    assert rule.page.count("```diff\n") == 1 == rule.page.count("\n```\n")


@each_rule
def test_links_of_a_page_lead_somewhere(rule: Rule) -> None:
    for link in re.findall(r"\]\(([^)#\s]+)", rule.page):
        assert "://" in link or (PAGES / link).is_file(), link


def test_a_page_has_a_rule() -> None:
    assert {path.stem for path in PAGES.iterdir()} == set(CODES)


KINDS = {
    "node": ["site", "context"],
    "target": ["context", "target"],
    "model": ["context"],
}


@each_rule
def test_a_check_is_given_what_the_page_says(rule: Rule) -> None:
    if not rule.family:  # found where a file is read, or a suppression is looked up
        assert rule.code in ("MD400", "MD410") and not (rule.operators or rule.runtime)
        return
    assert not (rule.operators and rule.runtime)
    kind = "node" if rule.operators else "target" if rule.runtime else "model"
    assert list(inspect.signature(rule.check()).parameters) == KINDS[kind]
    assert rule.runtime == "any" or rule.example_target.startswith(rule.runtime)


@each("family", sorted(FAMILIES))
def test_the_pages_name_each_check_of_a_family(family: str) -> None:
    named = {rule.code for rule in RULES.values() if rule.family == family}
    assert set(checks_in(family)) == named


def test_every_module_of_rules_is_a_family() -> None:
    assert {path.stem for path in PAGES.parent.glob("*.py")} - {"__init__"} == FAMILIES


@pytest.mark.long
@each_rule
def test_the_bad_example_triggers_the_rule(rule: Rule, tmp_path: Path) -> None:
    assert {finding.code for finding in example(rule, rule.bad, tmp_path)} == {rule.code}


@pytest.mark.long
@each_rule
def test_the_good_example_does_not(rule: Rule, tmp_path: Path) -> None:
    assert example(rule, rule.good, tmp_path) == []


@each_rule
def test_a_heuristic_is_never_an_error(rule: Rule) -> None:
    assert rule.basis in ("constant", "symbolic", "heuristic")
    assert rule.severity in ("error", "warning", "info")
    if rule.basis == "heuristic":
        assert rule.severity != "error"


@pytest.mark.long
@each_rule
def test_the_fix_is_declared(rule: Rule, tmp_path: Path) -> None:
    fixes = [f.fix for f in example(rule, rule.bad, tmp_path) if f.fix is not None]
    assert bool(fixes) == (rule.fix is not None)
    assert {fix.applicability for fix in fixes} <= {rule.fix}
    for fix in fixes:
        assert fix.title and not fix.title.endswith(".")


@pytest.mark.long
def test_the_table_of_rules_imports_nothing_heavy() -> None:
    code = "import sys, onnx_kvtool.lint.rule; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    heavy = {"ml_dtypes", "numpy", "onnx", "onnx_ir", "onnxruntime", "onnxscript", "rich"}
    names = result.stdout.split()
    assert not heavy & {name.partition(".")[0] for name in names}
    assert not [name for name in names if name.startswith("onnx_kvtool.lint.rules")]


def test_the_runner_of_cases_tells_a_silent_rule_from_a_speaking_one() -> None:
    from tests.lint.cases import check_case

    bad = RULES["KV003"].bad
    check_case("KV003", Case("speaks", bad, at=["cache"]))
    with pytest.raises(AssertionError):
        check_case("KV003", Case("is silent", bad))
