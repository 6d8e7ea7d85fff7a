"""A baseline over time: findings that are mended, files that are renamed and deleted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx.parser
import pytest

from tests.grids import each

MODEL = """
    <ir_version: 10, opset_import: ["": 24]>
    main (float[2, 3, 7, 5] past, float[2, 3, 1, 5] new, float[2] unused)
        => (float[2, 3, 7, 5] present) {
        [cache] present = TensorScatter <axis = AXIS> (past, new)
    }
"""


def save(path: str, axis: int = 0, graph: str = "main") -> None:
    """Write a model with a finding of MD404, and one of KV001 for axis 0."""
    text = MODEL.replace("AXIS", str(axis)).replace("main", graph)
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_bytes(onnx.parser.parse_model(text).SerializeToString())


@pytest.fixture(autouse=True)
def models(kvtool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two models with two findings each, and their baseline."""
    monkeypatch.chdir(tmp_path)
    save("models/a.onnx", graph="a")
    save("models/b.onnx", graph="b")
    assert kvtool("check", *ALL, "--write-baseline", "known.json").exit_code == 0
    assert held() == {"models/a.onnx": {"KV001", "MD404"}, "models/b.onnx": {"KV001", "MD404"}}


ALL = ("models", "--isolated", "--select", "KV001,MD404")
KNOWN = (*ALL, "--baseline", "known.json")


def held() -> dict[str, set[str]]:
    data = json.loads(Path("known.json").read_text(encoding="utf-8"))
    return {name: {line["code"] for line in lines} for name, lines in data["files"].items()}


def checked(kvtool, *flags: str) -> dict[str, Any]:
    """Return what a check with the baseline finds, as numbers and notes."""
    report = json.loads(kvtool("check", *(flags or KNOWN), "--format", "json").stdout)
    return {
        "found": sorted(f["code"] for file in report["files"] for f in file["findings"]),
        "stale": sorted(s["code"] for file in report["files"] for s in file.get("stale", ())),
        "notes": report["notes"],
    }


STALE = "{} in the baseline `known.json` no longer there: drop with `--prune-baseline`"


def mend() -> None:
    save("models/a.onnx", axis=2, graph="a")


def rename() -> None:
    Path("models/a.onnx").rename("models/c.onnx")


def rename_and_mend() -> None:
    rename()
    save("models/c.onnx", axis=2, graph="a")


def copy() -> None:
    Path("models/c.onnx").write_bytes(Path("models/a.onnx").read_bytes())


def copy_and_delete() -> None:
    copy()
    rename()
    Path("models/d.onnx").write_bytes(Path("models/c.onnx").read_bytes())


def delete() -> None:
    Path("models/a.onnx").unlink()


def damage() -> None:
    Path("models/a.onnx").write_bytes(b"\x08")


BOTH = {"KV001", "MD404"}
A, B, C, D = (f"models/{name}.onnx" for name in "abcd")
NEW_NAME = "the baseline `known.json` knows `{}` as `models/a.onnx`, which has the same content"


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "found", "stale", "notes", "left"),
    [
        pytest.param(mend, [], ["KV001"], [STALE.format("1 finding")], {A: {"MD404"}, B: BOTH},
                     id="mended"),
        pytest.param(rename, [], [], [NEW_NAME.format(C)], {B: BOTH, C: BOTH}, id="renamed"),
        pytest.param(rename_and_mend, ["MD404"], [], [STALE.format("2 findings")], {B: BOTH},
                     id="renamed, with another content"),
        pytest.param(copy, ["KV001", "MD404"], [], [], {A: BOTH, B: BOTH}, id="copied"),
        pytest.param(copy_and_delete, [], [], [NEW_NAME.format(C), NEW_NAME.format(D)],
                     {B: BOTH, C: BOTH, D: BOTH}, id="renamed and copied"),
        pytest.param(delete, [], [], [STALE.format("2 findings")], {B: BOTH}, id="deleted"),
        pytest.param(damage, ["MD400"], [], [], {A: BOTH, B: BOTH}, id="damaged"),
    ],
)  # fmt: skip
def test_what_became_of_a_file_is_told_and_can_be_pruned(
    kvtool, change, found, stale, notes, left
) -> None:
    change()
    flags = (*KNOWN, "--extend-select", "MD400")
    for _ in range(2):  # at first anew, then from results that were kept
        said = checked(kvtool, *flags, "--cache-dir", "kept")
        assert (said["found"], said["stale"], said["notes"]) == (found, stale, notes)
    before = Path("known.json").read_bytes()
    result = kvtool("check", *flags, "--prune-baseline")
    assert result.exit_code == ("KV001" in found or "MD400" in found)
    assert held() == left
    assert ("which is written" in result.stderr) == bool(notes)
    assert bool(notes) or Path("known.json").read_bytes() == before
    assert checked(kvtool, *flags) == {"found": found, "stale": [], "notes": []}


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(("--isolated", "--select", "MD404", "models"), id="a rule that is off"),
        pytest.param(("--isolated", "models/b.onnx"), id="a file that is not looked at"),
        pytest.param(("--isolated", "--per-file-ignores", "a.onnx:KV", "models"), id="off there"),
    ],
)
def test_what_was_not_looked_for_is_not_stale(kvtool, flags: tuple[str, ...]) -> None:
    mend()
    assert checked(kvtool, *flags, "--baseline", "known.json")["notes"] == []


def test_a_rule_of_a_target_looks_with_that_target_only(kvtool) -> None:
    flags = ("models", "--isolated", "--select", "KV3")
    target = ("--target", "openvino")
    assert kvtool("check", *flags, *target, "--write-baseline", "known.json").exit_code == 0
    assert any(code.startswith("KV3") for codes in held().values() for code in codes)
    known = ("--baseline", "known.json")
    assert checked(kvtool, *flags, *target, *known) == {"found": [], "stale": [], "notes": []}
    assert checked(kvtool, *flags, *known) == {"found": [], "stale": [], "notes": []}


def test_each_is_listed_if_asked(kvtool) -> None:
    mend()
    said = kvtool("check", *KNOWN, "--verbose").stderr
    assert "no longer found: models/a.onnx: KV001, a, node `cache` (TensorScatter)\n" in said


@each(
    "flags",
    [
        pytest.param((*ALL, "--prune-baseline"), id="no baseline"),
        pytest.param((*KNOWN, "--prune-baseline", "--fix"), id="fixed models"),
        pytest.param((*KNOWN, "--prune-baseline", "--diff"), id="models as they would be"),
        pytest.param((*KNOWN, "--prune-baseline", "--shard", "1/2"), id="a part of the models"),
        pytest.param((*ALL, "--prune-baseline", "--write-baseline", "new.json"), id="a new one"),
    ],
)
def test_what_cannot_be_pruned_is_wrong_usage(kvtool, flags: tuple[str, ...]) -> None:
    before = Path("known.json").read_bytes()
    mend()
    assert kvtool("check", *flags).exit_code == 2
    assert Path("known.json").read_bytes() == before
