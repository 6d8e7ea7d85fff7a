"""The command line does not import sympy, which onnx_ir does; who asks for it gets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "fixtures" / "models" / "native" / "llama_static.onnx"

ASK = """
import json, sys
import onnx_ir as ir
before = "sympy.core" in sys.modules
size = ir.SymbolicDim("N") * 2 + ir.SymbolicDim("max(N, 1)")
import sympy
same = sympy.simplify(size._expr - sympy.Symbol("N", integer=True, positive=True) * 3) == 0
print(json.dumps([before, same, "sympy.core" in sys.modules]))
"""
COMMANDS = """
import contextlib, io, json, sys
from onnx_kvtool.cli import main
codes, after = [], []
for line in sys.argv[1:]:
    sys.argv = ["kvtool", *line.split()]
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as end:
            codes.append(end.code)
    after.append("sympy.core" in sys.modules)
print(json.dumps([codes, after, "onnx_ir" in sys.modules]))
"""


def run(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout.splitlines()[-1]


@pytest.mark.exhaustive
def test_onnx_ir_still_imports_it_at_once() -> None:
    assert json.loads(run(ASK)) == [True, True, True]


@pytest.mark.exhaustive
def test_it_is_there_for_what_computes_with_sizes() -> None:
    late = "from onnx_kvtool.guard.early_sympy import put_off; put_off(); put_off()"
    assert json.loads(run(late + ASK)) == [False, True, True]


@pytest.mark.long
def test_no_command_needs_it() -> None:
    commands = [
        "ops Slice",
        f"check {MODEL} --exit-zero",
        f"inspect {MODEL}",
        f"diff {MODEL} {MODEL}",
        "eval --op Relu --input X=float32:[1,-2]",
        f"raise {MODEL} --dry-run",
        f"lower {MODEL} --opset 18 --dry-run",  # with its proof
    ]
    codes, after, was_needed = json.loads(run(COMMANDS, *commands))
    assert codes == [0] * len(commands)
    assert after == [False] * len(commands)
    assert was_needed
