"""The faults that kvtool works around are still there, and the page lists them.

A case that fails has a fault that is gone: when no supported release has it any more, its guard in
`onnx_kvtool/guard` can go.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from onnx_kvtool.guard.faults import FAULTS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "developing" / "guards.md"

_INFER = """
import json, sys, resource
import onnx, onnx.parser, onnx.shape_inference
text, strict = json.loads(sys.stdin.read())
model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 24, "my": 1]> ' + text)
pages = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (pages + (1 << 30),) * 2)
onnx.shape_inference.infer_shapes(model, strict_mode=strict, data_prop=True)
"""

_BRANCHES = (
    "g (bool c, int64[2] x) => (int64[N] y) { y = If (c) <"
    "then_branch = a () => (int64[N] t) { s = Shape (x) t = Add (s, s) },"
    "else_branch = b () => (int64[N] e) { s = Shape (x) e = Add (s, s) }> }"
)

INFERENCES = [
    pytest.param(
        "negative_sizes",
        "g (float[2, 3] x) => (float[M, N] y)"
        "<int64[4] p = {-5, 0, 0, 0}, int64[1] a = {0}, int64[1] b = {5}>"
        "{ n = Pad (x, p) y = Slice (n, a, b, a) }",
        False,
        id="a Slice of negative size",
    ),
    pytest.param(
        "untyped_inputs",
        'g (string[N] x) => (y) { t = my.Odd (x) y = RegexFullMatch <pattern = "a"> (t) }',
        False,
        id="an input without a type",
    ),
    pytest.param(
        "long_vectors",
        "g (int64[600000000] x) => (int64 y) { i = Constant <value_int = 0> () y = Gather (x, i) }",
        False,
        id="a vector that is declared long",
    ),
    pytest.param(
        "endless_equations",
        'g (float[2] x) => (float[M] y) { y = Einsum <equation = ".i"> (x) }',
        False,
        id="an equation with a stray dot",
    ),
    pytest.param(
        "untyped_inputs",
        "g (float[2, 3] x) => (float[M, N] y) { t = my.Odd (x) y = EyeLike <dtype = 1> (t) }",
        False,
        id="an EyeLike whose input has no type",
    ),
    *(
        pytest.param(
            "unchecked_numbers",
            f"g (float[6, 3] x) => (float[M, N] y) {{ {node} }}",
            False,
            id=name,
        )
        for name, node in {
            "more outputs than `num_outputs`": "y, z = Split <num_outputs = 1> (x)",
            "sizes of outputs that are not there": "y = Split <num_outputs = 2147483647> (x)",
            "negative `batch_dims`": "i = Shape (x) y = GatherND <batch_dims = -3> (x, i)",
            "an axis beyond int32": "y, m, v = LayerNormalization <axis = 2147483648> (x, x)",
        }.items()
    ),
    pytest.param("distinct_names", _BRANCHES, True, id="branches with equal names"),
    pytest.param(
        "matrix_values",
        "g (float[2, 3] x) => (int64[M, N] y) <int64[1] a = {1}, int64[3] k = {1, 2, 3}>"
        "{ s = Shape (x) u = Unsqueeze (s, a) y = Add (u, k) }",
        True,
        id="elements of a matrix",
    ),
    pytest.param(
        "names_for_zero",
        "g (string[N, 3] x) => (string[M, C] y) { y = StringNormalizer (x) }",
        True,
        id="a size without number",
    ),
]
ELSEWHERE = {
    "failed_allocation": "met in one model of 600, and no model meets it each time",
    "nested_calls": "takes days to show",
    "left_out_inputs": "onnxruntime has it: tests/guard/test_onnxruntime_faults.py",
    "past_scores": "gives a wrong size: tests/guard/test_wrong_sizes.py",
    "last_windows": "gives a wrong size: tests/guard/test_wrong_sizes.py",
    "rounded_sizes": "gives a wrong size: tests/guard/test_wrong_sizes.py",
    "known_wrong": "needs other releases: tests/compat",
    "copied_scopes": "fails nothing: tests/guard/test_scopes.py",
    "early_sympy": "fails nothing: tests/guard/test_early_sympy.py",
    "message": "tests/core holds what onnx_ir writes against what was read",
}


def test_each_fault_has_a_case_or_a_reason() -> None:
    cases = [str(case.values[0]) for case in INFERENCES]
    assert sorted({*cases, *ELSEWHERE}) == sorted(FAULTS)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux only")
@pytest.mark.parametrize(("fault", "text", "strict"), INFERENCES)
def test_the_fault_is_there(fault: str, text: str, strict: bool) -> None:
    try:
        child = subprocess.run(
            [sys.executable, "-c", _INFER],
            input=json.dumps([text, strict]),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return
    assert child.returncode != 0, f"onnx no longer has the fault {fault}"


def test_every_file_of_the_room_that_guards_is_in_the_table() -> None:
    room = ROOT / "onnx_kvtool" / "guard"
    tools = {"__init__", "fault", "faults", "weightless"}
    files = {path.stem for path in room.glob("*.py")} - tools
    assert files == {Path(path).stem for path, _ in FAULTS.values() if "/guard/" in path}


def test_the_page_lists_them() -> None:
    rows = [
        f"| `{path}` | {fault.library} {fault.seen} | {fault.what} | {fault.instead} |"
        f" {fault.issue or '-'} |"
        for path, fault in FAULTS.values()
    ]
    assert "\n".join(rows) in PAGE.read_text(encoding="utf-8")
