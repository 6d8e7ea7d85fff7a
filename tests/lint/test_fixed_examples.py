"""The fix of a rule turns its bad example into one of which it finds nothing, in the file."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from onnx_kvtool.commands.check import CheckRequest, run
from onnx_kvtool.lint.example import example_message
from onnx_kvtool.lint.rule import Rule
from onnx_kvtool.lint.table import RULES

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
