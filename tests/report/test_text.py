"""What people read after `kvtool lower`, whole."""

from __future__ import annotations

import io
import re
import sys
from textwrap import dedent

import pytest

from onnx_kvtool.commands.targets import TargetsReport
from onnx_kvtool.core.diagnostic import Diagnostic, Location
from onnx_kvtool.report.blocks import Grid
from onnx_kvtool.report.facts_text import targets_blocks
from onnx_kvtool.report.proof_text import lower_blocks
from onnx_kvtool.report.text import print_blocks, print_talk
from onnx_kvtool.rewrite.report import Lowered, LowerReport, Verification
from onnx_kvtool.targets.target import named_releases

LONG = "com.example::" + "An_operator_with_a_very_long_name_" * 5
EQUAL = Verification("equal", "onnxruntime 1.31.1", 3, 12, 1.3e-6, ("present.0", "present.1"))
SKIPPED = Verification("skipped", detail="the weights take 3.0 GB")


def lowered(op: str, rule: str, via: str | None = None) -> Lowered:
    return Lowered(Location("main", None, 0, op), rule, via)


def refusal(node: str, code: str, message: str, **more: object) -> Diagnostic:
    return Diagnostic(code, "error", Location("main", node, 0, "Op"), message, **more)


def report(**facts: object) -> LowerReport:
    return LowerReport(
        **{
            "model": "in.onnx",
            "output": None,
            "source_opset": 24,
            "target_opset": 18,
            "ir_version": 8,
            "verification": EQUAL,
            **facts,
        }
    )


CASES = [
    pytest.param(
        report(
            output="in.opset18.onnx",
            lowered=[
                lowered("TensorScatter", "tensor_scatter", "scatternd"),
                lowered("Attention", "function_body"),
                lowered("TensorScatter", "tensor_scatter", "scatternd"),
                lowered("TensorScatter", "tensor_scatter", "scatterelements"),
            ],
            notes=["domain `com.example` was left alone"],
        ),
        """\
        lowered: in.onnx, opset 24 to 18, IR version 8
          operator       nodes  rule            form
          TensorScatter  2      tensor_scatter  scatternd
          Attention      1      function_body
          TensorScatter  1      tensor_scatter  scatterelements
        note: domain `com.example` was left alone
        verification: equal in onnxruntime 1.31.1 (3 cases, 12 runs); \
2 outputs equal bit for bit, largest difference 1.3e-06 in the others
        written: in.opset18.onnx
        """,
        id="a lowering groups its nodes by operator, rule and form",
    ),
    pytest.param(
        report(output="out.onnx", verification=Verification("equal", "r", 1, 1, 0.0, ("y",))),
        """\
        lowered: in.onnx, opset 24 to 18, IR version 8
        verification: equal in r (1 case, 1 run); 1 output equal bit for bit
        written: out.onnx
        """,
        id="nodes that only took another version, and no difference at all",
    ),
    pytest.param(
        report(verification=Verification("equal", "r", 2, 4, 2.5e-7)),
        """\
        lowered: in.onnx, opset 24 to 18, IR version 8
        verification: equal in r (2 cases, 4 runs); largest difference 2.5e-07
        """,
        id="no output is equal bit for bit",
    ),
    pytest.param(
        report(target_opset=24, ir_version=12, verification=SKIPPED),
        """\
        nothing to lower: in.onnx, opset 24, IR version 12
        warning: nothing was proven: the weights take 3.0 GB
        """,
        id="nothing to lower is not called lowered",
    ),
    pytest.param(
        report(
            target_opset=24, ir_version=12, verification=SKIPPED, lowered=[lowered("Gelu", "gelu")]
        ),
        """\
        lowered: in.onnx, opset 24, IR version 12
          operator  nodes  rule  form
          Gelu      1      gelu
        warning: nothing was proven: the weights take 3.0 GB
        """,
        id="an opset that was kept",
    ),
    pytest.param(
        report(model="-", output="-", verification=SKIPPED),
        """\
        lowered: standard input, opset 24 to 18, IR version 8
        written: standard output
        warning: nothing was proven: the weights take 3.0 GB
        """,
        id="standard input and output are named",
    ),
    pytest.param(
        report(output="out.onnx", verification=SKIPPED),
        """\
        lowered: in.onnx, opset 24 to 18, IR version 8
        written: out.onnx
        warning: nothing was proven: the weights take 3.0 GB
        """,
        id="skipped verification says why",
    ),
    pytest.param(
        report(
            lowered=[lowered("Gelu", "function_body")],
            refused=[
                refusal("a", "unknown-rank", "no rank", help="infer shapes", lowest_opset=24),
                refusal("c", "no-dtype", "no such type at opset 18"),
                refusal("b", "unknown-rank", "no rank", help="infer shapes", lowest_opset=24),
                refusal("d", "unknown-rank", "no rank", help="give `--dim`"),
            ],
            notes=["domain `com.example` was left alone"],
            verification=Verification("skipped", detail="refused"),
        ),
        """\
        not lowered: in.onnx, opset 24 to 18; nothing was written
        unknown-rank: main, node `a` (Op) and 1 other alike: no rank
          lowest opset: 24
          help: infer shapes
        no-dtype: main, node `c` (Op): no such type at opset 18
        unknown-rank: main, node `d` (Op): no rank
          help: give `--dim`
        note: domain `com.example` was left alone
        """,
        id="refusals of one reason and remedy stand together",
    ),
    pytest.param(
        report(
            lowered=[lowered("Gelu", "function_body")],
            verification=Verification(
                "different", "r", 1, 2, float("inf"), (), "`y` differs at [0]: 3.0, expected 2.0"
            ),
        ),
        """\
        not lowered: in.onnx, opset 24 to 18; nothing was written
        verification: different in r (1 case, 2 runs); `y` differs at [0]: 3.0, expected 2.0
        """,
        id="a result that differs is not written",
    ),
    pytest.param(
        report(
            model="dir/[bold]in\n:smile:\x1b[31m.onnx",
            output="out.onnx",
            lowered=[lowered(LONG, "inline"), lowered("[red]Op[/red]", "inline")],
            verification=SKIPPED,
        ),
        f"""\
        lowered: dir/[bold]in\\n:smile:\\x1b[31m.onnx, opset 24 to 18, IR version 8
          operator{" " * (len(LONG) - 8)}  nodes  rule    form
          {LONG}  1      inline
          [red]Op[/red]{" " * (len(LONG) - 13)}  1      inline
        written: out.onnx
        warning: nothing was proven: the weights take 3.0 GB
        """,
        id="names are printed literally and never broken",
    ),
]


@pytest.mark.usefixtures("plain_environment")
@pytest.mark.parametrize(("given", "expected"), CASES)
def test_text_in_a_pipe(given, expected, capsys) -> None:
    print_talk(lower_blocks(given), color=None)
    captured = capsys.readouterr()
    assert captured.err == dedent(expected)
    assert captured.out == ""


@pytest.mark.usefixtures("plain_environment")
def test_dry_run_says_that_nothing_was_written(capsys) -> None:
    print_talk(lower_blocks(report(verification=SKIPPED), dry_run=True), color=None)
    *_, said, last = capsys.readouterr().err.splitlines()
    assert said == "dry run: nothing was written"
    assert last == "warning: nothing was proven: the weights take 3.0 GB"


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.usefixtures("plain_environment")
@pytest.mark.parametrize("color", [None, False])
def test_on_a_terminal_names_are_whole_too(color, monkeypatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    given = report(lowered=[lowered(LONG, "inline")], output="x" * 200)
    print_talk(lower_blocks(given), color=color)
    text = sys.stderr.getvalue()
    assert LONG in text
    assert "x" * 200 in text
    assert ("\x1b[" in text) is (color is None)


@pytest.mark.usefixtures("plain_environment")
def test_a_stream_without_the_characters_gets_escapes(monkeypatch) -> None:
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, "ascii", errors="backslashreplace")
    monkeypatch.setattr(sys, "stderr", stream)
    print_talk(lower_blocks(report(model="長さ.onnx")), color=True)
    stream.flush()
    assert b"\\u9577\\u3055.onnx" in buffer.getvalue()


@pytest.mark.long
@pytest.mark.parametrize("columns", [20, 72, 100, 1000])
def test_on_a_narrow_terminal_words_of_the_last_column_take_several_lines(
    monkeypatch, columns
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    shown = named_releases("onnxruntime")
    print_blocks(targets_blocks(TargetsReport(shown), in_full=True), color=True)
    text = re.sub(r"\x1b\[[\d;]*m", "", sys.stdout.getvalue())
    lines = [line.rstrip() for line in text.splitlines()]
    words = {word.strip(",") for line in lines for word in line.split()}
    limits = {limit for release in shown for limit in release.limits}
    assert {limit.name for limit in limits} <= words
    assert {word.strip(",") for limit in limits for word in limit.reason.split()} <= words
    assert {release.version for release in shown} <= words
    if columns in (72, 100):
        assert max(map(len, lines)) <= max(columns, 150)
    if columns == 1000:
        assert len(lines) == len(shown) + 4 + 1 + len(limits) + 4


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
@pytest.mark.parametrize("color", [True, False])
def test_tables_keep_to_the_width_of_the_terminal(monkeypatch, columns, color) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stdout", Terminal())
    long = "past_key_values.{0..29}.key"
    rows = tuple((f"{long}.{i}", "float32", f"(batch, 3, rows + {i}, 7)", "no") for i in range(3))
    header = ("cache", "type", "shape", "written in place")
    print_blocks([Grid(header, rows)], color=color)
    text = re.sub(r"\x1b\[[\d;]*m", "", sys.stdout.getvalue())
    lines = [line.rstrip() for line in text.splitlines()]
    widest = len("  written in place") + 2 + len(f"{long}.0")  # a name is whole
    assert max(map(len, lines)) <= max(columns, widest)
    words = text.split()
    assert all(f"{long}.{i}" in words and f"{i}," in words for i in range(3))
    assert all(words.count(title) >= 1 for title in ("cache", "type", "shape"))
    assert text.isascii() == (columns < 100)  # no table, no rules


@pytest.mark.parametrize(
    ("columns", "missing"),
    [
        pytest.param(80, "", id="room for all"),
        pytest.param(38, "not shown: axis (too wide for 38 columns)", id="the least important"),
        pytest.param(30, "not shown: axis, mode (too wide for 30 columns)", id="two of them"),
        pytest.param(20, "  cache  ", id="too narrow for any: a list of all cells"),
    ],
)
def test_a_narrow_terminal_leaves_out_columns_never_rows(
    monkeypatch, columns: int, missing: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = tuple((f"cache.{i}", "1", "linear", "(2, 3, 5)") for i in range(3))
    grid = Grid(("cache", "axis", "mode", "shape"), rows, "axis, mode")
    monkeypatch.setattr(sys, "stdout", Terminal())
    print_blocks([grid], color=True)
    text = re.sub(r"\x1b\[[\d;]*m", "", sys.stdout.getvalue())
    assert missing in text
    assert all(f"cache.{i}" in text for i in range(3))
    assert ("not shown" in text) == missing.startswith("not shown")


@pytest.mark.parametrize("columns", [40, 80])
def test_in_a_pipe_columns_are_whole(monkeypatch, columns) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    print_blocks([Grid(("cache", "shape"), (("k" * 50, "(2, 3)"), ("v", "(2, 5)")))], color=None)
    assert sys.stdout.getvalue() == (
        f"  {'cache':50}  shape\n  {'k' * 50}  (2, 3)\n  {'v':50}  (2, 5)\n"
    )
