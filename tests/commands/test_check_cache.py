"""Results that are kept: used as long as nothing has changed that they depend on, and no longer."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from onnx_kvtool.commands import check_cache, check_file
from onnx_kvtool.commands.check import run
from onnx_kvtool.commands.requests import CheckRequest
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.lint.report import CheckReport

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
WRONG = ROOT / "docs" / "examples" / "wrong_axis.onnx"


def model(path: Path, axis: int = 0) -> None:
    """Write a cache update, which KV001 finds wrong along axis 0."""
    text = f"""<ir_version: 10, opset_import: ["": 24]>
        decoder (float[2, 3, 5, 7] past, float[2, 3, 1, 7] update, int64[2] write_indices)
            => (float[2, 3, 5, 7] present) {{
            present = TensorScatter <axis: int = {axis}> (past, update, write_indices)
        }}"""
    onnx.save(onnx.parser.parse_model(text), path)


@pytest.fixture
def looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models that were looked at; two of them lie in the current directory, settled."""
    seen: list[str] = []
    real = check_file.read

    def read(path: str):  # type: ignore[no-untyped-def]
        seen.append(path)
        return real(path)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(check_file, "read", read)
    for name in ("a.onnx", "b.onnx"):
        model(Path(name), axis=0 if name == "a.onnx" else 2)
        os.utime(name, (1, 1))
    return seen


def check(**options: object) -> CheckReport:
    options = {"paths": (".",), "isolated": True, "cache_dir": "kept", **options}
    return run(CheckRequest(**options))  # type: ignore[arg-type]


def test_a_second_run_looks_at_nothing_and_says_the_same(looked: list[str]) -> None:
    first = check()
    assert looked == ["a.onnx", "b.onnx"]
    second = check()
    assert looked == ["a.onnx", "b.onnx"]
    assert "KV001" in {f.code for f in first}
    assert second.to_json() == first.to_json() == check(cache_dir=None).to_json()
    assert [file.is_kept for file in second.files] == [True, True]


def touched() -> None:
    os.utime("a.onnx", (2, 2))


def with_data() -> None:
    """Let `a.onnx` have external data, and check it."""
    loaded = onnx.load("a.onnx")
    weight = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [2], b"\0" * 8, raw=True)
    loaded.graph.initializer.append(weight)
    onnx.save(loaded, "a.onnx", save_as_external_data=True, location="a.data", size_threshold=0)
    os.utime("a.onnx", (1, 1))


CHANGES: dict[str, tuple[Callable[[], object], dict[str, object], list[str]]] = {
    "the bytes": (lambda: model(Path("a.onnx"), 2), {}, ["a.onnx"]),
    "the time alone": (touched, {}, []),
    "another file takes its name": (lambda: shutil.move("b.onnx", "a.onnx"), {}, ["a.onnx"]),
    "a copy at another path": (lambda: shutil.copy2("a.onnx", "c.onnx"), {}, ["c.onnx"]),
    "names of caches beside it": (
        lambda: Path("genai_config.json").write_text("{}", encoding="utf-8"),
        {},
        ["a.onnx", "b.onnx"],
    ),
    "the rules": (lambda: None, {"ignore": ("KV001",)}, ["a.onnx", "b.onnx"]),
    "rules of another file": (lambda: None, {"per_file_ignores": ("b.onnx:KV0",)}, ["b.onnx"]),
    "a target": (lambda: None, {"targets": ("onnxruntime@1.25",)}, ["a.onnx", "b.onnx"]),
    "who is told": (lambda: None, {"fail_on": "info", "statistics": True, "jobs": 1}, []),
    "a link": (
        lambda: (os.rename("a.onnx", "a.bin"), os.symlink("a.bin", "a.onnx")),
        {},
        ["a.onnx"],
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_result_depends_on(looked: list[str], name: str) -> None:
    change, options, expected = CHANGES[name]
    check()
    looked.clear()
    change()
    kept = check(**options)
    assert looked == expected
    assert kept.to_json() == check(**{**options, "cache_dir": None}).to_json()


def test_data_beside_a_model_is_looked_at(looked: list[str]) -> None:
    with_data()
    clean = check()
    assert "a.data" in os.listdir()
    os.remove("a.data")
    looked.clear()
    missing = check()
    assert looked == ["a.onnx"]
    assert {f.code for f in missing} - {f.code for f in clean}
    looked.clear()
    assert check().to_json() == missing.to_json() and looked == []


def piped() -> None:
    os.mkfifo("genai_config.json")


def endless() -> None:
    """Let the data of `a.onnx` be a device, with a checksum that asks for a look at its content."""
    loaded = onnx.load("a.onnx")
    weight = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[2])
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="/dev/zero")
    weight.external_data.add(key="checksum", value="0")
    loaded.graph.initializer.append(weight)
    onnx.save(loaded, "a.onnx")


@pytest.mark.parametrize("beside", [piped, endless])
def test_what_has_no_end_is_not_read(looked: list[str], beside: Callable[[], object]) -> None:
    beside()
    assert check().to_json() == check().to_json()
    assert looked == ["a.onnx", "b.onnx"]


def test_a_model_that_comes_through_a_pipe_is_not_kept(looked: list[str]) -> None:
    os.mkfifo("pipe")
    data = Path("a.onnx").read_bytes()
    for _ in range(2):
        writer = threading.Thread(target=Path("pipe").write_bytes, args=(data,))
        writer.start()
        assert not check(paths=("pipe",)).files[0].is_kept
        writer.join()
    assert looked == ["pipe", "pipe"]


def test_a_file_that_is_younger_than_a_clock_tells_is_read_again(looked: list[str]) -> None:
    """As in git: the second write of one tick leaves size and time as they were."""
    before = os.stat("b.onnx")
    os.utime("b.onnx")
    check()
    at = os.stat("b.onnx").st_mtime_ns
    model(Path("b.onnx"), axis=1)
    os.utime("b.onnx", ns=(at, at))
    assert os.stat("b.onnx").st_size == before.st_size
    looked.clear()
    check()
    assert looked == ["b.onnx"]


def test_what_could_not_be_read_is_not_kept(looked: list[str]) -> None:
    Path("b.onnx").write_bytes(b"no model")
    assert "MD400" in {f.code for f in check()}
    looked.clear()
    check()
    assert looked == ["b.onnx"]


def test_fixes_are_made_on_models_as_they_are(looked: list[str]) -> None:
    check()
    looked.clear()
    check(diff=True)
    assert looked == ["a.onnx", "b.onnx"]


def test_a_run_that_ends_early_leaves_what_it_found(
    looked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = check_file.look

    def interrupted(*args: object):  # type: ignore[no-untyped-def]
        if looked[-1] == "b.onnx":
            raise KeyboardInterrupt
        return real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(check_file, "look", interrupted)
    with pytest.raises(KeyboardInterrupt):
        check()
    monkeypatch.setattr(check_file, "look", real)
    looked.clear()
    check()
    assert looked == ["b.onnx"]


def test_another_version_of_the_rules_looks_again(
    looked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check()
    looked.clear()
    monkeypatch.setattr(check_cache, "_version", lambda: "another")
    check()
    assert looked == ["a.onnx", "b.onnx"]


def test_what_nobody_asks_for_is_dropped(
    looked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check()
    later = check_cache.time.time() + 100 * 24 * 60 * 60
    monkeypatch.setattr(check_cache.time, "time", lambda: later)
    check(paths=("a.onnx",))
    assert looked == ["a.onnx", "b.onnx"], "asked for in time"
    with sqlite3.connect("kept/results.sqlite3") as data:
        rows = data.execute("SELECT path FROM results").fetchall()
    assert rows == [(b"a.onnx",)]


def test_a_directory_that_cannot_be_used_is_refused(looked: list[str]) -> None:
    Path("kept").write_text("a file", encoding="utf-8")
    with pytest.raises(UsageError, match="`kept` cannot store results"):
        check()
    assert looked == []


def test_an_edit_in_place_with_size_and_time_restored_is_seen(
    looked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_cache, "_SETTLED", 0)
    first = check()
    check()
    before = os.stat("a.onnx")
    data = Path("b.onnx").read_bytes()
    with open("a.onnx", "r+b") as file:
        file.write(data)
    os.utime("a.onnx", ns=(before.st_atime_ns, before.st_mtime_ns))
    after = os.stat("a.onnx")
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    looked.clear()
    assert {f.code for f in check()} != {f.code for f in first}
    assert looked == ["a.onnx"]


DATABASE = "kept/results.sqlite3"


def edited(statement: str) -> Callable[[], object]:
    def edit() -> None:
        with sqlite3.connect(DATABASE) as data:
            data.execute(statement)
        data.close()

    return edit


def flattened() -> None:
    """Overwrite what lies behind the header of the database."""
    edited("PRAGMA wal_checkpoint(TRUNCATE)")()
    data = Path(DATABASE).read_bytes()
    Path(DATABASE).write_bytes(data[:100] + b"\xff" * (len(data) - 100))


ROWS = "2 results in `kept/results.sqlite3` had been edited or damaged"
ROW = "1 result in `kept/results.sqlite3` had been edited or damaged"
BOTH = ["a.onnx", "b.onnx"]
ANEW = "`kept/results.sqlite3` was no database of results, or a damaged one"
DAMAGE: dict[str, tuple[Callable[[], object], str, list[str]]] = {
    "a severity": (
        edited("UPDATE results SET body = replace(body, 'error', 'info')"),
        ROW,
        BOTH[:1],
    ),
    "a body that is no JSON": (edited("UPDATE results SET body = '{'"), ROWS, BOTH),
    "a body of bytes": (edited("UPDATE results SET body = x'ff00'"), ROWS, BOTH),
    "a body that is a number": (edited("UPDATE results SET body = 7"), ROWS, BOTH),
    "no body": (edited("UPDATE results SET body = NULL"), ROWS, BOTH),
    "a seal": (edited("UPDATE results SET seal = 'x'"), ROWS, BOTH),
    "a time that is a text": (edited("UPDATE results SET used = 'soon'"), ROWS, BOTH),
    "another file's row": (
        edited("UPDATE results SET body = (SELECT body FROM results ORDER BY path LIMIT 1)"),
        ROW,
        BOTH[1:],
    ),
    "other columns": (edited("ALTER TABLE results RENAME COLUMN body TO text"), ANEW, BOTH),
    "no table": (edited("DROP TABLE results"), "", BOTH),
    "a view": (
        lambda: (edited("DROP TABLE results")(), edited("CREATE VIEW results AS SELECT 1")()),
        ANEW,
        BOTH,
    ),
    "no database": (lambda: Path(DATABASE).write_bytes(b"x" * 4096), ANEW, BOTH),
    "an empty file": (lambda: Path(DATABASE).write_bytes(b""), "", BOTH),
    "pages": (flattened, ANEW, BOTH),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_results_are_made_anew(looked: list[str], name: str) -> None:
    damage, note, expected = DAMAGE[name]
    first = check()
    damage()
    looked.clear()
    again = check()
    assert again.to_json()["files"] == first.to_json()["files"]
    assert looked == expected
    assert [note in text for text in again.notes] == ([True] if note else [])
    looked.clear()
    assert check().notes == () and looked == []


SEED = int(os.environ.get("KVTOOL_SEED", "0"))


@pytest.mark.parametrize("seed", range(SEED, SEED + 12))
def test_any_byte_of_the_results_may_be_damaged(looked: list[str], seed: int) -> None:
    first = check().to_json()["files"]
    edited("PRAGMA wal_checkpoint(TRUNCATE)")()
    data = bytearray(Path(DATABASE).read_bytes())
    chance = random.Random(seed)
    for _ in range(chance.choice((1, 5, 60))):
        data[chance.randrange(len(data))] = chance.randrange(256)
    shutil.rmtree("kept")
    os.mkdir("kept")
    Path(DATABASE).write_bytes(data)
    with contextlib.suppress(UsageError):  # where the system cannot say what is wrong
        assert check().to_json()["files"] == first


def test_results_that_are_damaged_while_they_are_used(
    looked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = check()
    real = check_cache.Kept.get

    def get(self: check_cache.Kept, path: str):  # type: ignore[no-untyped-def]
        edited("UPDATE results SET body = '{'")()
        return real(self, path)

    monkeypatch.setattr(check_cache.Kept, "get", get)
    looked.clear()
    assert check().to_json()["files"] == first.to_json()["files"]
    assert looked == ["a.onnx", "b.onnx"]


def test_the_directory_is_no_part_of_a_repository(looked: list[str]) -> None:
    check()
    assert Path("kept/.gitignore").read_text(encoding="utf-8") == "*\n"
    assert json.loads(json.dumps(check().to_json()))["files"][0]["path"] == "a.onnx"


def test_what_a_result_is_known_by_is_made_once(
    looked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    real = check_cache.Kept._made_key

    def making(self: check_cache.Kept, path: str) -> dict[str, object]:
        made.append(path)
        return real(self, path)

    monkeypatch.setattr(check_cache.Kept, "_made_key", making)
    check()
    check()
    assert made == ["a.onnx", "b.onnx"] * 2
