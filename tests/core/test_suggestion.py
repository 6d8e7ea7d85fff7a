"""The nearest name: what counts as near, and what does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onnx_kvtool.core.words import closest, closest_path, did_you_mean, unknown_name
from tests.grids import each


@each(
    ("word", "words", "expected"),
    [
        pytest.param("lowr", ["lower", "raise"], "lower", id="a letter is missing"),
        pytest.param("TENSORSCATTER", ["Scatter", "TensorScatter"], "TensorScatter", id="case"),
        pytest.param("b", ["a", "b"], "b", id="the word itself"),
        pytest.param("ab", ["abx", "aby"], "abx", id="the first of two that are equally near"),
        pytest.param("abcdef", ["uvwxyz"], None, id="nothing in common"),
        pytest.param("", ["a"], None, id="no word"),
        pytest.param("a", [], None, id="no words"),
    ],
)
def test_closest(word: str, words: list[str], expected: str | None) -> None:
    assert closest(word, words) == expected


@pytest.mark.long
def test_among_thousands_of_names_the_nearest_is_found() -> None:
    names = [f"/model/layers.{i}/self_attn/k_proj/MatMul_output_0" for i in range(5000)]
    assert closest("/model/layers.4321/self_attn/k_prj/MatMul_output_0", names) == names[4321]


def test_what_else_to_do_is_said_where_nothing_is_near() -> None:
    assert did_you_mean("lowr", ["lower"], "read the page") == "did you mean `lower`?"
    assert did_you_mean("x", ["lower"], "read the page") == "read the page"
    assert did_you_mean("x", ["lower"]) is None


@each(
    ("known", "help"),
    [
        ([], "there are none"),
        (["one"], "use `one`"),
        (["one", "two"], "use one of `one`, `two`"),
        (["one", "one"], "use `one`"),
        ([f"n{i}" for i in range(13)], "use one of `n0`, `n1`, `n2`, `n3` and 9 more"),
        (["unknwn"], "did you mean `unknwn`?"),
    ],
)
def test_few_names_are_listed(known: list[str], help: str | None) -> None:
    error = unknown_name("no such name", "unknown", known)
    assert (error.message, error.help) == ("no such name", help)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("decoder.onx", "decoder.onnx", id="a slip in the ending"),
        pytest.param("decoder", "decoder.onnx", id="no ending"),
        pytest.param("sub/decoder.onnx", None, id="another directory"),
        pytest.param("modls/a.onnx", "models/a.onnx", id="a slip in the directory"),
        pytest.param("modls/b.onnx", None, id="a slip in the directory of no such file"),
        pytest.param("modls", "models", id="a directory"),
        pytest.param("x.onnx", None, id="the ending alone is not near"),
        pytest.param("decoder.onnx.dat", "decoder.onnx", id="data are no model"),
        pytest.param("no\0such/decoder.onnx", None, id="a directory that cannot be"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_closest_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, expected: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    for name in ("decoder.onnx", "decoder.onnx.data", "models/a.onnx"):
        (tmp_path / name).touch()
    assert closest_path(path, ".onnx") == expected
    if expected is not None:
        assert os.path.exists(expected)
