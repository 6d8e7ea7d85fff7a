"""The fix of a rule, or the command of its help, turns its bad example into a good one."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.commands.check import run
from onnx_kvtool.commands.requests import CheckRequest
from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.lint.rule import RULES, Rule
from tests.lint.example import example_message

TARGETED = [rule for rule in RULES.values() if rule.example_target]
NOT_BY_LOWERING = {
    "KV205": "the fix drops an attribute, which needs no new model",
    "KV301": "what is asked for is a way to run the model",
    "KV305": "a rewrite keeps the sizes of the caches",
    "KV311": "each size has a flag of its own",
}
FIXABLE = [rule for rule in RULES.values() if rule.fix is not None]


def request(path: Path, rule: Rule, *, show: bool) -> CheckRequest:
    return CheckRequest(
        paths=(str(path),),
        isolated=True,
        # An unused suppression shows when the rules it names have looked.
        select=None if rule.code == "MD410" else (rule.code,),
        targets=(rule.example_target,) if rule.example_target else (),
        fix=not show,
        diff=show,
        unsafe_fixes=rule.fix == "unsafe",
    )


@pytest.mark.long
@pytest.mark.parametrize("rule", FIXABLE, ids=[rule.code for rule in FIXABLE])
def test_fixed_examples(rule: Rule, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(example_message(rule.bad).SerializeToString())
    for name, size in rule.example_files.items():
        (tmp_path / name).write_bytes(bytes(size))
    (shown,) = run(request(path, rule, show=True)).files
    assert shown.diff and not shown.written

    (file,) = run(request(path, rule, show=False)).files

    assert file.written and rule.code in {applied.code for applied in file.fixed}
    assert rule.code not in {finding.code for finding in file.findings}
    (again,) = run(request(path, rule, show=False)).files
    assert not again.written and again.findings == file.findings
    onnx.load(path, load_external_data=False)


@pytest.mark.parametrize("rule", TARGETED, ids=[rule.code for rule in TARGETED])
def test_the_command_of_the_help_removes_the_finding(rule: Rule) -> None:
    """What a rule about a runtime suggests is one command that lowers all for this release."""
    model = ir.from_proto(example_message(rule.bad))

    def found(of: ir.Model) -> list[Finding]:
        return list(kv.check(of, select=[rule.code], targets=[rule.example_target]))

    commands = [(*re.findall(r"`(kvtool [^`]*)`", f.help or ""),) for f in found(model)]
    if rule.code in NOT_BY_LOWERING:
        assert not any(commands)
        return
    assert commands and {*commands} == {(f"kvtool lower MODEL --target {rule.example_target}",)}
    lowered, _ = kv.lower(model, target=rule.example_target, verify=False)
    assert found(lowered) == []


INNER = """
    <ir_version: 10, opset_import: ["": 24]>
    decoder (float[2, 3, 7, 5] past, float[2, 3, 1, 5] update)
        => (float[2, 3, 7, 5] y) <PRESENT present> {
        [cache] present = TensorScatter (past, update)
        y = Neg (present)
    }
"""
OUTER = RULES["KV013"].bad.replace("float[2, 3, 8, 5] present", "PRESENT present")


@pytest.mark.parametrize(
    ("text", "present", "applicability"),
    [
        pytest.param(INNER, "float[2, 3, 8, 5]", "safe", id="a shape inside"),
        pytest.param(INNER, "float16[2, 3, 7, 5]", "safe", id="a type inside"),
        pytest.param(OUTER, "float[2, 3, 8, 5]", "safe", id="a shape of an output"),
        pytest.param(OUTER, "float16[2, 3, 7, 5]", "unsafe", id="a type of an output"),
    ],
)
def test_what_is_offered_for_a_wrong_declaration_is_applied(
    text: str, present: str, applicability: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(example_message(text.replace("PRESENT", present)).SerializeToString())
    asked = request(path, RULES["KV013"], show=False)
    (seen,) = run(asked.replace(fix=False)).files
    assert [f.fix.applicability for f in seen.findings if f.fix] == [applicability]
    (file,) = run(asked.replace(unsafe_fixes=applicability == "unsafe")).files
    assert file.written and [applied.code for applied in file.fixed] == ["KV013"]
