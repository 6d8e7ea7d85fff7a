"""Every rule of the table documents itself, and its examples show what it says."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from onnx_kvtool.commands.check import check
from onnx_kvtool.lint.example import example_message
from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.lint.rule import ModelRule, NodeRule, Rule, RunRule, TargetRule
from onnx_kvtool.lint.table import RULES
from tests.grids import each
from tests.lint.cases import Case, findings
from tests.lint.models import CLEAN, save

CODES = list(RULES)
HEADINGS = ["What it does", "Why is this bad?", "Fix safety", "References"]
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
    if isinstance(rule, RunRule):
        return run_example(rule, text, directory)
    targets = [rule.example_target] if rule.example_target else []
    return findings(rule.code, example_message(text), targets, str(directory))


def run_example(rule: Rule, text: str, directory: Path) -> list[Finding]:
    """Return what a run over two files says by a rule, of which one holds the example."""
    path = directory / "example.onnx"
    try:
        path.write_bytes(example_message(text).SerializeToString())
    except ValueError:
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    other = save(CLEAN, directory / "clean.onnx")
    return [finding for finding in check([path, other]) if finding.code == rule.code]


def test_the_table_has_the_order_of_the_codes() -> None:
    groups = {group: [c for c in CODES if c.startswith(group)] for group in GROUPS}
    assert [code for codes in groups.values() for code in sorted(codes)] == CODES


def test_names_are_unique() -> None:
    names = [rule.name for rule in RULES.values()]
    assert len(set(names)) == len(names)


@each_rule
def test_a_rule_lives_in_a_file_named_after_it(rule: Rule) -> None:
    module = type(rule).__module__.rpartition(".")[2]
    assert module == f"{rule.code}_{rule.name}".lower().replace("-", "_")
    assert re.fullmatch(r"[A-Z]{2}\d{3}", rule.code)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)


@each_rule
def test_the_docstring_has_its_headings_in_order(rule: Rule) -> None:
    expected = [h for h in HEADINGS if h != "Fix safety" or rule.fix is not None]
    assert re.findall(r"^## (.*)$", rule.text, re.MULTILINE) == expected
    for part in re.split(r"^## .*$", rule.text, flags=re.MULTILINE)[1:]:
        assert part.startswith("\n\n") and part.strip()
    first = inspect.getdoc(type(rule)).splitlines()  # type: ignore[union-attr]
    assert first[0].endswith(".") and len(first[0]) <= 100 and not first[1]
    assert not re.search(r"^```", rule.text, re.MULTILINE), "examples are `bad` and `good`"


@each_rule
def test_the_bad_example_triggers_the_rule(rule: Rule, tmp_path: Path) -> None:
    assert {finding.code for finding in example(rule, rule.bad, tmp_path)} == {rule.code}


@each_rule
def test_the_good_example_does_not(rule: Rule, tmp_path: Path) -> None:
    assert example(rule, rule.good, tmp_path) == []


@each_rule
def test_a_heuristic_is_never_an_error(rule: Rule) -> None:
    assert rule.basis in ("constant", "symbolic", "heuristic")
    assert rule.severity in ("error", "warning", "info")
    if rule.basis == "heuristic":
        assert rule.severity != "error"


@each_rule
def test_a_rule_is_of_one_kind(rule: Rule) -> None:
    assert isinstance(rule, NodeRule | ModelRule | RunRule | TargetRule)
    assert bool(rule.runtime) == isinstance(rule, TargetRule)
    assert rule.runtime == "any" or rule.example_target.startswith(rule.runtime)


@each_rule
def test_the_fix_is_declared(rule: Rule, tmp_path: Path) -> None:
    fixes = [f.fix for f in example(rule, rule.bad, tmp_path) if f.fix is not None]
    assert bool(fixes) == (rule.fix is not None)
    assert {fix.applicability for fix in fixes} <= {rule.fix}
    for fix in fixes:
        assert fix.title and not fix.title.endswith(".")


@each_rule
def test_the_top_of_a_module_imports_nothing_heavy(rule: Rule) -> None:
    source = Path(inspect.getfile(type(rule))).read_text(encoding="utf-8")
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Import):
            names = [alias.name for alias in statement.names]
        elif isinstance(statement, ast.ImportFrom):
            names = [statement.module or ""]
        else:
            continue
        for name in names:
            light = name.partition(".")[0] in sys.stdlib_module_names
            assert light or name.startswith("onnx_kvtool.lint."), name


def test_the_table_of_rules_imports_nothing_heavy() -> None:
    code = "import sys, onnx_kvtool.lint.table; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    heavy = {"ml_dtypes", "numpy", "onnx", "onnx_ir", "onnxruntime", "onnxscript", "rich"}
    assert not heavy & {name.partition(".")[0] for name in result.stdout.split()}


def test_the_runner_of_cases_tells_a_silent_rule_from_a_speaking_one() -> None:
    from tests.lint.cases import check_case

    bad = RULES["KV003"].bad
    check_case("KV003", Case("speaks", bad, at=["cache"]))
    with pytest.raises(AssertionError):
        check_case("KV003", Case("is silent", bad))
