"""The fix of a rule, or the command of its help, turns its bad example into a good one."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.commands.check import CheckRequest, run
from onnx_kvtool.lint.example import example_message
from onnx_kvtool.lint.finding import Finding
from onnx_kvtool.lint.rule import Rule
from onnx_kvtool.lint.table import RULES

TARGETED = [rule for rule in RULES.values() if rule.example_target]
NOT_BY_LOWERING = {
    "KV205": "the fix drops an attribute, which needs no new model",
    "KV301": "what is asked for is a way to run the model",
    "KV305": "a rewrite keeps the sizes of the caches",
}
FIXABLE = [rule for rule in RULES.values() if rule.fix is not None]


@pytest.mark.parametrize("rule", FIXABLE, ids=[rule.code for rule in FIXABLE])
def test_fixed_examples(rule: Rule, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(example_message(rule.bad).SerializeToString())
    for name, size in rule.example_files.items():
        (tmp_path / name).write_bytes(bytes(size))
    request = CheckRequest(
        (str(path),),
        isolated=True,
        # An unused suppression shows when the rules it names have looked.
        select=None if rule.code == "MD410" else (rule.code,),
        targets=(rule.example_target,) if rule.example_target else (),
        fix=True,
        unsafe_fixes=rule.fix == "unsafe",
    )

    (file,) = run(request).files

    assert file.written and rule.code in {applied.code for applied in file.fixed}
    assert rule.code not in {finding.code for finding in file.findings}
    (again,) = run(request).files
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
