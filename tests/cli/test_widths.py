"""Each command on terminals of 60 to 200 columns: a table keeps its rows, and fits."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from onnx_kvtool.cli.app import COMMANDS
from onnx_kvtool.commands import bench
from onnx_kvtool.decoding.report import BenchReport
from tests.grids import part
from tests.page_examples import stage

pytestmark = pytest.mark.long

RUNS = {
    "inspect": "inspect decoder.onnx",
    "inspect --nodes": "inspect decoder.onnx --nodes",
    "infer": "infer decoder.onnx",
    "check": "check decoder.onnx --isolated --target tensorrt --statistics",
    "merge": "merge found.json",
    "print": "print decoder.onnx",
    "diff": "diff decoder.onnx exported.onnx",
    "lower": "lower decoder.onnx --dry-run --no-verify",
    "raise": "raise exported.onnx --assume in-range --dry-run --no-verify",
    "verify": "verify decoder.onnx decoder.onnx --cases 1 --runtime reference",
    "eval": "eval decoder.onnx --random --runtime reference",
    "bench": "bench decoder.onnx --prompt 3 --tokens 2 --rounds 1",
    "ops": "ops TensorScatter",
    "rule": "rule --all",
    "targets": "targets",
}
TABLES = {"inspect", "bench"}
"""Commands whose tables leave out columns before they give up the form of a table."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("widths")
    stage(place)
    shutil.rmtree(place / "bin")
    return place


@part(2)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.needs_onnxruntime("1.29") if name == "bench" else ())
        for name in RUNS
    ],
)
def test_a_table_keeps_its_rows_and_fits(
    kvtool, directory: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(directory)
    if name == "merge":
        kvtool("check", "decoder.onnx", "--isolated", "--format", "json", "-o", "found.json")
    counts, reports, run = set(), [], bench.run

    def once(*given: Any) -> BenchReport:
        reports or reports.append(run(*given))
        return reports[0]

    monkeypatch.setattr(bench, "run", once)  # a process for each width tells nothing more
    for columns in (60, 80, 120, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        result = kvtool("--color", "always", *shlex.split(RUNS[name]))
        assert result.exit_code in (0, 1), result.stderr
        text = re.sub(r"\x1b\[[\d;]*m", "", result.stdout + result.stderr)
        lines = text.splitlines()
        rules = [line for line in lines if set(line) == {" ", "─"}]
        assert all(len(line.rstrip()) <= columns for line in rules), text
        if name in TABLES:
            assert rules, text
            assert not re.search(r"(?m)^  (cache|name|graph|node|model) +\S+$", text), text
            counts.add(sum(bool(re.match(r"  \S", line)) for line in lines))
    if name == "inspect":
        assert len(counts) == 1, "each row is one line at every width"


def test_every_command_is_looked_at() -> None:
    assert {line.split()[0] for line in RUNS.values()} == set(COMMANDS)
