"""What `--strict` lets pass and what not, on every command that proves something."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser
import pytest

import onnx_kvtool as kv

HEAD = """
<ir_version: 10, opset_import: ["": 20]>
g (float[N, 5] x) => (float[N, 5] y) <float[1] zero = {0}>
"""

COVERED = "g = Gelu (x) y = Abs (g)"

GAPS = [
    pytest.param(
        "g = Gelu (x) a = Abs (g) n = Neg (a) y = Log (n)", "finite value of `y`", id="NaN"
    ),
    pytest.param("g = Gelu (x) y = Mul (g, zero)", "one value of `y`", id="a constant output"),
    pytest.param(
        "g = Gelu (x) r = RandomNormalLike (g) y = Add (g, r)", "go into `y`", id="random numbers"
    ),
]
"""Models of which something is not covered once Gelu is lowered, and what is said of them."""


def saved(nodes: str, path: Path) -> str:
    onnx.save(onnx.parser.parse_model(f"{HEAD} {{ {nodes} }}"), path)
    return str(path)


@pytest.mark.long
@pytest.mark.parametrize("flags", [[], ["--strict"], ["--strict", "--thorough"]])
def test_a_result_that_is_covered_is_written(kvtool, tmp_path: Path, flags: list[str]) -> None:
    source, out = saved(COVERED, tmp_path / "m.onnx"), tmp_path / "out.onnx"
    result = kvtool("lower", source, "--opset", "18", "-o", str(out), *flags)
    assert result.exit_code == 0, result.stderr
    assert out.exists()
    assert "covered: 1 of 1 rewritten place; values finite\n" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("written: ")


@pytest.mark.long
@pytest.mark.parametrize(("nodes", "gap"), GAPS)
def test_a_result_that_is_not_covered_is_written_unless_strict(
    kvtool, tmp_path: Path, nodes: str, gap: str
) -> None:
    source, out = saved(nodes, tmp_path / "m.onnx"), tmp_path / "out.onnx"
    arguments = ("lower", source, "--opset", "18", "-o", str(out))
    strict = kvtool(*arguments, "--strict")
    assert (strict.exit_code, out.exists()) == (1, False)
    assert strict.stderr.startswith("not lowered: ")
    lax = kvtool(*arguments)
    assert (lax.exit_code, out.exists()) == (0, True)
    for result in (strict, lax):
        last = result.stderr.splitlines()[-1]
        assert last.startswith("not covered: ") and gap in last


@pytest.mark.long
@pytest.mark.parametrize(("nodes", "gap"), GAPS)
def test_verify_says_no_where_something_is_not_covered(
    kvtool, tmp_path: Path, nodes: str, gap: str
) -> None:
    source, other = saved(nodes, tmp_path / "m.onnx"), tmp_path / "other.onnx"
    assert kvtool("lower", source, "--opset", "18", "-o", str(other)).exit_code == 0
    assert kvtool("verify", source, str(other)).exit_code == 0
    strict = kvtool("verify", source, str(other), "--strict")
    assert strict.exit_code == 1
    assert strict.stdout.startswith("equal: ")
    assert gap in strict.stderr.splitlines()[-1]
    assert gap in (kv.verify(source, str(other), strict=True).insufficient or "")


@pytest.mark.long
def test_the_library_raises_what_the_command_refuses(tmp_path: Path) -> None:
    source = saved("g = Gelu (x) y = Mul (g, zero)", tmp_path / "m.onnx")
    with pytest.raises(kv.Refused, match="was not proven: all runs gave one value of `y`") as found:
        kv.lower(source, opset=18, strict=True)
    assert found.value.report.verification.status == "equal"
    assert not found.value.report.verification.covered.unnoticed
