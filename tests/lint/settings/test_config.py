"""Configuration is found upwards, and says which key or value is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.lint.settings.config import KEYS, discover, load


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


FULL = """
select = ["KV", "MD4"]
ignore = "KV101, KV105"
extend-select = ["XD5"]
target = ["onnxruntime@1.25"]
format = "concise"
fix = false
unsafe-fixes = true
baseline = "known.json"
fail-on = "warning"
exit-zero = false
statistics = true
jobs = 2
cache-dir = ".cache"
dim = {batch = 2, sequence = 3}
[per-file-ignores]
"legacy/" = ["KV1"]
"*.q.onnx" = "KV0, MD4"
"""


def test_every_key_can_be_given(tmp_path: Path) -> None:
    values = load(str(write(tmp_path / "kvtool.toml", FULL))).values
    assert set(values) == set(KEYS)
    assert values["ignore"] == ("KV101", "KV105")
    assert values["dim"] == {"batch": 2, "sequence": 3}
    assert values["per-file-ignores"] == {"legacy/": ("KV1",), "*.q.onnx": ("KV0", "MD4")}


@pytest.mark.parametrize(
    ("text", "message", "help"),
    [
        pytest.param("selct = []", "unknown key `selct`", "did you mean `select`?", id="a typo"),
        pytest.param(
            "fail_on = 'error'",
            "unknown key `fail_on`",
            "did you mean `fail-on`?",
            id="an underscore",
        ),
        pytest.param(
            "[tool.kvtool]\nselect = []",
            "unknown key `tool`",
            "leave the header `[tool.kvtool]` out",
            id="the table of a pyproject.toml",
        ),
        pytest.param("zzz = 1", "unknown key `zzz`", "the keys are select, ignore", id="no key"),
        pytest.param(
            "shard = '1/2'",
            "`shard` is no configuration key",
            "give `--shard` on the command line",
            id="a flag of one run",
        ),
        pytest.param(
            "fail-on = 'fatal'",
            "`fail-on` is `fatal`, expected `error`, `warning` or `info`",
            None,
            id="a word that is none",
        ),
        pytest.param(
            "fail-on = 'eror'",
            "`fail-on` is `eror`, expected",
            "did you mean `error`?",
            id="a word that is nearly one",
        ),
        pytest.param("jobs = 0", "`jobs` is 0, expected a positive integer", None, id="no jobs"),
        pytest.param("jobs = true", "`jobs` is true, expected a positive", None, id="a truth"),
        pytest.param("fix = 'yes'", "`fix` is `yes`, expected true or false", None, id="a string"),
        pytest.param("select = 3", "`select` is 3, expected a list of strings", None, id="number"),
        pytest.param("dim = {b = 0}", "expected a table of positive integers", None, id="a size"),
        pytest.param("select = [", "is no TOML", None, id="no TOML"),
        pytest.param("per-file-ignores = 1", "expected a table from patterns", None, id="no table"),
    ],
)
def test_what_is_wrong_is_named(text: str, message: str, help: str | None, tmp_path: Path) -> None:
    path = write(tmp_path / "kvtool.toml", text)
    with pytest.raises(UsageError) as caught:
        load(str(path))
    assert f"`{path}`" in caught.value.message and message in caught.value.message
    assert (caught.value.help or "").startswith(help or "")


def test_bytes_that_are_no_text_are_no_toml(tmp_path: Path) -> None:
    (tmp_path / "kvtool.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is no TOML"):
        load(str(tmp_path / "kvtool.toml"))


def test_a_missing_file_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        load(str(tmp_path / "kvtool.toml"))


def test_a_pyproject_without_the_table_is_passed_by(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", "[tool.kvtool]\njobs = 3\n")
    write(tmp_path / "deep" / "pyproject.toml", "[tool.other]\njobs = 5\n")
    found = discover([str(tmp_path / "deep" / "a.onnx")])
    assert found.values == {"jobs": 3}
    assert found.base == str(tmp_path)
    with pytest.raises(UsageError, match=r"has no table `\[tool.kvtool\]`"):
        load(str(tmp_path / "deep" / "pyproject.toml"))


def test_a_table_that_is_none_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "pyproject.toml", "[tool]\nkvtool = 3\n")
    with pytest.raises(UsageError, match=r"`tool\.kvtool` is 3, expected a table"):
        load(str(path))


def test_the_nearest_file_counts_alone(tmp_path: Path) -> None:
    write(tmp_path / "kvtool.toml", "jobs = 3\n")
    write(tmp_path / "deep" / "kvtool.toml", "statistics = true\n")
    assert discover([str(tmp_path / "deep" / "a.onnx")]).values == {"statistics": True}
    assert discover([str(tmp_path / "deep" / "a.onnx"), str(tmp_path / "b.onnx")]).values == {
        "jobs": 3
    }


def test_kvtool_toml_comes_before_pyproject(tmp_path: Path) -> None:
    write(tmp_path / "kvtool.toml", "jobs = 3\n")
    write(tmp_path / "pyproject.toml", "[tool.kvtool]\njobs = 5\n")
    assert discover([str(tmp_path)]).values == {"jobs": 3}


@pytest.mark.parametrize("paths", [[], ["-"]], ids=["no paths", "standard input"])
def test_without_a_file_the_current_directory_counts(
    paths: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "kvtool.toml", "jobs = 7\n")
    monkeypatch.chdir(tmp_path)
    assert discover(paths).values == {"jobs": 7}


@pytest.mark.long
def test_brackets_without_end_are_no_bug(tmp_path: Path) -> None:
    path = tmp_path / "kvtool.toml"
    path.write_text("select = " + "[" * 100_000)
    with pytest.raises(UsageError, match=r"`.*kvtool\.toml` is nested too deeply to be read"):
        load(str(path))
