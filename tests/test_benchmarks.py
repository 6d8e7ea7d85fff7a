"""The page of measurements is what was measured, and has what the benchmarks declare.

Nothing here looks at how long anything takes.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import onnx_kvtool as kv
from benchmarks import architectures, compatibility, growing_caches, page, pictures, sections, store
from benchmarks.__main__ import main
from benchmarks.processes.run import reason, run
from benchmarks.results import Cell, Line, Section, Table, Target, ratio_cell
from onnx_kvtool.model_io.model import serialize
from tests.grids import each, rest


def never(_: bool) -> Iterator[Line]:
    raise AssertionError("measured")


TABLE = Table("small", "", ("case", "ratio", "memory"), ("first", "second"), never)
SECTION = Section("own", "Own", "About it.", (TABLE,))
SLOW = Line("first", (ratio_cell(2.345, 1.5, what="time"), Cell("7 MB")))
FAST = Line("second", (ratio_cell(12.6), Cell("5 MB", (Target("memory", 3, 5, at_least=True),))))


def shown(*lines: Line) -> str:
    return page.page(store.Measured({"cores": "2"}, {"onnx": "1"}, {"own": [lines]}), [SECTION])


def test_the_page_is_made_of_what_was_measured(root: Path) -> None:
    """`python -m benchmarks` writes both."""
    written = (root / "docs" / "performance.md").read_text(encoding="utf-8")
    assert written == page.page(store.load(), sections.SECTIONS)


def test_every_benchmark_was_measured() -> None:
    """That its lines are those that it declares, the page demands."""
    names = [section.name for section in sections.SECTIONS]
    assert len(set(names)) == len(names)
    assert sorted(store.load().tables) == sorted(names)


def test_what_describes_the_machine_is_not_its_name(root: Path) -> None:
    text = (root / "benchmarks" / "measured.json").read_text(encoding="utf-8")
    assert platform.node() not in text
    assert str(Path.home()) not in text
    assert "/tmp/" not in text


def test_a_missed_target_is_bold_with_its_limit() -> None:
    assert "| first | **2.35** (target: time at most 1.5) | 7 MB |" in shown(SLOW, FAST)


def test_targets_are_listed_with_what_was_reached() -> None:
    rows = [
        row for row in shown(SLOW, FAST).splitlines() if row.endswith(("| yes |", "| **no** |"))
    ]
    assert rows == [
        "| first, ratio | time at most 1.5 | 2.35 | **no** |",
        "| second, memory | memory at least 3 | 5.00 | yes |",
    ]


@each(
    "lines",
    [
        pytest.param((SLOW,), id="a case is missing"),
        pytest.param((FAST, SLOW), id="the order is another one"),
        pytest.param((SLOW, FAST, FAST), id="a case is there twice"),
        pytest.param((SLOW, replace(FAST, case="third")), id="a case has another name"),
    ],
)
def test_lines_that_are_not_declared_make_no_page(lines: tuple[Line, ...]) -> None:
    with pytest.raises(ValueError, match="`own` has not measured what it declares"):
        shown(*lines)


@each(
    ("target", "met"),
    [
        pytest.param(Target("time", 1.8, 1.8), True, id="a limit may be reached"),
        pytest.param(Target("time", 1.8, 1.804), True, id="what is shown is what counts"),
        pytest.param(Target("time", 1.8, 1.806), False, id="a limit is exceeded"),
        pytest.param(Target("speed", 2, 2.5, at_least=True), True, id="more is better"),
        pytest.param(Target("speed", 2, 1.5, at_least=True), False, id="less is worse"),
    ],
)
def test_a_target_is_met_or_missed(target: Target, met: bool) -> None:
    assert target.met is met


def test_measurements_come_back_as_they_were_saved(tmp_path: Path) -> None:
    measured = store.Measured({"cores": "2"}, {"onnx": "1"}, {"own": [[SLOW, FAST]]})
    store.save(measured, tmp_path / "measured.json")
    assert store.load(tmp_path / "measured.json") == measured


ASSERTION = """\
Traceback (most recent call last):
  File "/opt/tool/infer.py", line 7, in main
    infer(model)
  File "/opt/tool/infer.py", line 5, in _infer_Attention
    assert len(shape) == 4
AssertionError
"""


@each(
    ("printed", "exit_code", "expected"),
    [
        pytest.param(
            "Traceback\n"
            "onnx.ConvertError: /build/adapt.h:23: adapt: Assertion `false` failed: No way down\n",
            1,
            "No way down",
            id="the last line of a traceback, without places of the build",
        ),
        pytest.param(ASSERTION, 1, "AssertionError in `_infer_Attention`", id="a bare assertion"),
        pytest.param("ok\n[E] no such file\n[E] FAILED\n", 1, "no such file", id="a log"),
        pytest.param("fine\nbroken /home/me/m.onnx\n\n", 1, "broken m.onnx", id="any last line"),
        pytest.param("", 3, "exit code 3", id="nothing printed"),
        pytest.param("", -11, "dies of SIGSEGV", id="a signal"),
        pytest.param(
            "what(): std::bad_alloc", -6, "needs more than 8 GB of address space", id="no memory"
        ),
        pytest.param("Error: a | b", 1, "a   b", id="a bar, which would end the cell"),
        pytest.param("Error: " + "x" * 200, 1, "x" * 117 + "...", id="a long line"),
    ],
)
def test_the_reason_of_a_failure_is_one_line(printed: str, exit_code: int, expected: str) -> None:
    assert reason(printed, exit_code) == expected


@pytest.mark.long
def test_a_command_that_ends_well_has_no_failure(tmp_path: Path) -> None:
    done = run([sys.executable, "-c", "held = bytearray(50 << 20)"], tmp_path)
    assert done.failure is None
    assert 50 < done.megabytes < 150


@pytest.mark.long
def test_a_command_that_fails_says_why(tmp_path: Path) -> None:
    done = run([sys.executable, "-c", "raise ValueError('no model')"], tmp_path)
    assert done.failure == "no model"


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited on Linux alone")
def test_a_command_does_not_get_all_memory(tmp_path: Path) -> None:
    done = run([sys.executable, "-c", "bytearray(9 << 30)"], tmp_path)
    assert done.failure == "needs more than 8 GB of address space"


@pytest.mark.long
def test_compiled_modules_are_kept_whatever_the_shell_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    code = "import sys; sys.exit(sys.dont_write_bytecode)"
    assert run([sys.executable, "-c", code], tmp_path).failure is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["lowerd"], "there is no benchmark `lowerd`", id="an unknown name"),
        pytest.param(["--quick", "--update"], "not measured with --quick", id="quick, and kept"),
        pytest.param(["runtime", "compatibility"], "by itself", id="a page of its own"),
        pytest.param(["architectures", "lama"], "no architecture `lama`", id="no architecture"),
        pytest.param(["runtime", "architectures"], "by itself", id="a section of that page"),
    ],
)
def test_wrong_usage_is_refused_before_anything_is_measured(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_a_section_that_was_measured_elsewhere_says_so(tmp_path: Path) -> None:
    measured = store.Measured({"cores": "2"}, {"onnx": "1"}, {"own": [[SLOW, FAST]]})
    moved = measured.with_section("own", [[SLOW, FAST]], {"cores": "4"}, {"onnx": "1"})
    store.save(moved, tmp_path / "measured.json")
    text = page.page(store.load(tmp_path / "measured.json"), [SECTION])
    assert "This section was measured elsewhere: cores 4." in text
    again = moved.with_section("own", [[SLOW, FAST]], {"cores": "2"}, {"onnx": "1"})
    assert "elsewhere" not in page.page(again, [SECTION])


def test_the_page_of_compatibility_is_made_of_what_was_measured(root: Path) -> None:
    """`python -m benchmarks compatibility` writes both."""
    found = json.loads(compatibility.STORE.read_text(encoding="utf-8"))
    written = (root / "docs" / "compatibility.md").read_text(encoding="utf-8")
    assert written == compatibility.page(found)
    assert not [cell for row in found.values() for cell in row.values() if "wrong" in cell]


def test_each_architecture_and_exporter_has_an_answer_in_each_column() -> None:
    """`python -m benchmarks architectures` writes them; the page has them, as above."""
    found = architectures.found()
    assert len(architectures.ARCHITECTURES) >= 45
    for exporter, rows in found.items():
        for name, row in rows.items():
            asked = ["export"] if "export" in row else list(architectures.COLUMNS)
            assert list(row) == asked, (exporter, name)
            for column, cell in row.items():
                assert "apart" in cell or cell["refused"], (exporter, name, column)


@pytest.mark.long
@pytest.mark.parametrize(
    "place", [-1, *rest(None, 2)], ids=["last layer", "the same", "first layer"]
)
def test_a_result_that_differs_from_the_exported_model_is_wrong(
    place: int | None, root: Path, tmp_path: Path
) -> None:
    source, path = root / "fixtures/growing/llama__optimum.onnx", tmp_path / "raised.onnx"
    model = onnx.load_from_string(serialize(kv.raise_(source, capacity=16, verify=False)[0]))
    if place is not None:
        weights = [one for one in model.graph.initializer if "MatMul" in one.name]
        array = numpy_helper.to_array(weights[place]) * np.float32(1.01)
        weights[place].CopyFrom(numpy_helper.from_array(array, weights[place].name))
    onnx.save(model, path)
    cell = architectures.bounded(
        lambda: {"apart": architectures.apart(source, path, None, padded=True)}
    )
    assert ("wrong" in cell) == (place is not None), cell


@pytest.mark.long
def test_a_step_that_dies_or_raises_is_wrong() -> None:
    for work in (lambda: os.kill(os.getpid(), 9), lambda: {}[0]):
        assert "wrong" in architectures.bounded(work)  # type: ignore[arg-type]


def test_the_plot_of_the_readme_shows_what_was_measured(root: Path) -> None:
    """`python -m tests.pages` writes it; that it is current another test holds."""
    measured = store.load()
    shown = pictures.bars(measured)
    assert [bar.context for bar in shown[:3]] == list(growing_caches.CONTEXTS)
    lines = {line.case: line for line in measured.tables["growing_caches"][0]}
    assert f"{shown[2].milliseconds:.1f} ms" == lines["the growing model"].cells[2].text
    ratio = shown[5].milliseconds / shown[2].milliseconds
    assert f"{ratio:.2f}" == lines["`--attention auto`"].cells[2].text
    plot = ET.parse(root / "docs/images/decode-step.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    drawn = [r for r in plot.iter(f"{space}rect") if r.get("width") == "66"]
    heights = [float(r.get("height", "0")) for r in drawn]
    by_place = sorted(shown, key=lambda bar: bar.context)
    scale = heights[0] / by_place[0].milliseconds
    assert heights == pytest.approx([bar.milliseconds * scale for bar in by_place], abs=0.5)
    words = {text.text for text in plot.iter(f"{space}text")}
    assert {f"{bar.milliseconds:.1f}" for bar in shown} <= words


@pytest.mark.long
def test_the_table_of_the_readme_shows_what_was_measured(root: Path) -> None:
    found = json.loads(compatibility.STORE.read_text(encoding="utf-8"))
    names = [name.replace(" ", "@") for name, row in found.items() if row["llama, Native"]["step"]]
    model = kv.load(root / "fixtures/models/native/llama_static.onnx")
    loading = [name for name in names if not kv.check(model, targets=[name]).exit_code]
    table = pictures.gains(len(loading), len(names))
    for file in ("README.md", "docs/index.md"):
        assert table in (root / file).read_text(encoding="utf-8")


def test_the_picture_of_an_update_says_what_it_moves(root: Path) -> None:
    text = (root / "docs/images/cache-update.svg").read_text(encoding="utf-8")
    size = growing_caches.SIZE
    row = size.layers * 2 * size.kv_heads * 64 * 4
    assert pictures.row_bytes() == row
    assert f"{row // 1024} KiB written" in text
    assert f"{row * growing_caches.CONTEXTS[-1] // 2**20} MiB copied" in text


@pytest.mark.parametrize("name", pictures.pictures())
def test_a_picture_has_its_own_ground_in_light_and_dark(root: Path, name: str) -> None:
    text = (root / "docs/images" / name).read_text(encoding="utf-8")
    light, dark = text.split("prefers-color-scheme: dark")
    for part in (light, dark):
        assert re.search(r"\.card \{ fill: #", part) and re.search(r"\n +text \{ fill: #", part)
    file = "docs/guides/in-place-cache.md" if name == "cache-update.svg" else "README.md"
    assert f"images/{name})" in (root / file).read_text(encoding="utf-8")
