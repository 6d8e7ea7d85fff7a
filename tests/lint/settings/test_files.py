"""Paths mean files in a stable order, without what .gitignore excludes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from onnx_kvtool.core.errors import UnreadableModel, UsageError
from onnx_kvtool.lint.settings.files import find_models, parse_shard, take_shard
from tests.grids import each


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "b.onnx",
        "a.onnx",
        "notes.txt",
        "deep/c.onnx",
        "deep/er/d.onnx",
        "build/e.onnx",
        ".git/f.onnx",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "g.onnx").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


EVERYTHING = ["a.onnx", "b.onnx", "build/e.onnx", "deep/c.onnx", "deep/er/d.onnx"]


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        pytest.param([], EVERYTHING, id="nothing is the current directory"),
        pytest.param(["."], EVERYTHING, id="the current directory"),
        pytest.param(["deep"], ["deep/c.onnx", "deep/er/d.onnx"], id="a directory below"),
        pytest.param(["deep/", "a.onnx"], ["deep/c.onnx", "deep/er/d.onnx", "a.onnx"], id="order"),
        pytest.param(["a.onnx", "."], EVERYTHING, id="each file once"),
        pytest.param(["*.onnx"], ["a.onnx", "b.onnx"], id="a glob"),
        pytest.param(["**/d.onnx"], ["deep/er/d.onnx"], id="a glob of any depth"),
        pytest.param(["notes.txt"], ["notes.txt"], id="a file of another name"),
        pytest.param(["missing.onnx"], ["missing.onnx"], id="a file that is missing"),
        pytest.param(["-"], ["-"], id="standard input"),
    ],
)
def test_paths(tree: Path, paths: list[str], expected: list[str]) -> None:
    assert find_models(paths) == expected


@pytest.mark.parametrize(
    ("ignores", "expected"),
    [
        pytest.param({".gitignore": "build/\n"}, [0, 1, 3, 4], id="a directory"),
        pytest.param({".gitignore": "*.onnx\n!a.onnx\n"}, [0], id="all but one"),
        pytest.param({"deep/.gitignore": "d.onnx\n"}, [0, 1, 2, 3], id="a file below"),
        pytest.param({".gitignore": "d.onnx", "deep/.gitignore": "!d.onnx"}, range(5), id="undone"),
        pytest.param({"deep/.gitignore": "/d.onnx\n"}, range(5), id="a slash in front"),
        pytest.param({".gitignore": "# *.onnx\n\n"}, range(5), id="comments"),
    ],
)
def test_gitignore(tree: Path, ignores: dict[str, str], expected: list[int]) -> None:
    for name, text in ignores.items():
        (tree / name).write_text(text, encoding="utf-8")
    assert find_models([]) == [EVERYTHING[place] for place in expected]


def test_the_gitignore_of_the_repository_counts_below(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / ".gitignore").write_text("d.onnx\n", encoding="utf-8")
    monkeypatch.chdir(tree / "deep")
    assert find_models([]) == ["c.onnx"]
    assert find_models(["er/d.onnx"]) == ["er/d.onnx"], "a file that is named is meant"


def test_a_directory_that_is_named_is_meant(tree: Path) -> None:
    (tree / ".gitignore").write_text("build/\n", encoding="utf-8")
    assert find_models(["build"]) == ["build/e.onnx"]


def test_links(tree: Path) -> None:
    os.symlink("a.onnx", tree / "link.onnx")
    os.symlink("nowhere", tree / "lost.onnx")
    os.symlink(tree, tree / "deep" / "loop")
    found = find_models([])
    assert found == sorted([*EVERYTHING, "link.onnx", "lost.onnx"])


def test_a_glob_without_a_match_is_said(tree: Path) -> None:
    with pytest.raises(UnreadableModel, match=r"`\*.pt` matches no file"):
        find_models(["*.pt"])


def test_standard_input_can_be_named_once(tree: Path) -> None:
    with pytest.raises(UsageError, match="`-` is given twice"):
        find_models(["-", "-"])


def shards(files: list[str], count: int) -> list[list[str]]:
    return [take_shard(files, parse_shard(f"{part}/{count}")) for part in range(1, count + 1)]


def test_shards_hold_each_file_once_in_order() -> None:
    files = [f"models/{number}.onnx" for number in range(400)]
    parts = shards(files, 3)
    assert sorted(file for part in parts for file in part) == sorted(files)
    assert all(part == sorted(part, key=files.index) for part in parts)
    assert all(100 < len(part) < 167 for part in parts), "they are of about one size"
    assert shards(files, 1) == [files]


def test_a_file_that_comes_moves_no_other() -> None:
    files = [f"models/{number}.onnx" for number in range(50)]
    more = sorted([*files, "models/17b.onnx"])
    for before, after in zip(shards(files, 4), shards(more, 4), strict=True):
        assert set(before) == set(after) - {"models/17b.onnx"}


def test_a_shard_does_not_depend_on_how_a_file_is_named(tree: Path) -> None:
    names = ["a/b.onnx", "./a/b.onnx", str(Path("a/b.onnx").resolve())]
    assert len({[bool(part) for part in shards([name], 5)].index(True) for name in names}) == 1


@each("text", ["", "1", "0/2", "3/2", "1/0", "a/b", "1/2/3", "-1/2", "²/3"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="expected `i/n`"):
        parse_shard(text)


def git(directory: Path, *words: str) -> None:
    """Run git in a directory, without the configuration of who tests."""
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    named = ["-c", "user.name=a", "-c", "user.email=b", "-c", "protocol.file.allow=always"]
    subprocess.run(
        ["git", *named, *words],
        cwd=directory,
        env={**os.environ, **alone},
        check=True,
        capture_output=True,
    )


@pytest.fixture
def repository(tree: Path) -> Path:
    """A repository that tracks `build/e.onnx` and `deep/er/d.onnx`, which it ignores."""
    if shutil.which("git") is None:
        pytest.skip("needs git")
    shutil.rmtree(tree / ".git")
    (tree / ".gitignore").write_text("*.onnx\nbuild/\n", encoding="utf-8")
    (tree / "build" / "new.onnx").touch()
    (tree / "build" / ".gitignore").write_text("!*.onnx\n", encoding="utf-8")
    git(tree, "init", "-q")
    git(tree, "add", "-f", "build/e.onnx", "deep/er/d.onnx", ".gitignore", "notes.txt")
    return tree


TRACKED = ["build/e.onnx", "deep/er/d.onnx"]
MADE = {
    "as git adds": (),
    "committed": (("commit", "-qm", "models"),),
    "with names that leave out what they share": (("update-index", "--index-version", "4"),),
    "with bits beyond those that fit": (("update-index", "--skip-worktree", "notes.txt"),),
    "split": (("update-index", "--split-index"), ("add", "-f", "a.onnx"), ("rm", "-fq", "a.onnx")),
}


@pytest.mark.parametrize("name", MADE)
def test_what_git_tracks_is_meant(repository: Path, name: str) -> None:
    for words in MADE[name]:
        git(repository, *words)
    assert find_models([]) == TRACKED
    assert find_models(["deep"]) == TRACKED[1:]
    assert find_models(["build"]) == ["build/e.onnx", "build/new.onnx"], "a directory that is named"


def test_what_a_linked_worktree_tracks_is_meant(repository: Path) -> None:
    git(repository, "commit", "-qm", "models")
    git(repository, "worktree", "add", "-q", "linked")
    assert find_models([]) == sorted([*TRACKED, *(f"linked/{name}" for name in TRACKED)])
    assert find_models(["linked/deep"]) == ["linked/deep/er/d.onnx"]


@pytest.mark.long
def test_what_a_submodule_tracks_is_meant(repository: Path) -> None:
    git(repository, "commit", "-qm", "models")
    git(repository, "init", "-q", "outer")
    git(repository / "outer", "submodule", "add", "-q", str(repository), "sub")
    (repository / "outer" / ".gitignore").write_text("sub\n*.onnx\n", encoding="utf-8")
    assert find_models(["outer"]) == [f"outer/sub/{name}" for name in TRACKED]


def test_what_git_tracks_by_longer_hashes_is_meant(repository: Path) -> None:
    shutil.rmtree(repository / ".git")
    try:
        git(repository, "init", "-q", "--object-format=sha256")
    except subprocess.CalledProcessError:
        pytest.skip("needs a git that has SHA-256")
    git(repository, "add", "-f", *TRACKED)
    assert find_models([]) == TRACKED


@pytest.mark.parametrize("content", [None, b"", b"DIRC", b"DIRC\0\0\0\2\0\0\0\7", b"x" * 100])
def test_an_index_that_cannot_be_read_holds_nothing(
    repository: Path, content: bytes | None
) -> None:
    index = repository / ".git" / "index"
    index.unlink()
    if content is not None:
        index.write_bytes(content)
    assert find_models([]) == []


@pytest.mark.long
def test_every_beginning_of_an_index_is_read_or_passed_over(repository: Path) -> None:
    git(repository, "update-index", "--index-version", "4")
    index = repository / ".git" / "index"
    whole = index.read_bytes()
    for length in range(len(whole)):
        index.write_bytes(whole[:length])
        assert find_models([]) in ([], TRACKED)


def test_a_line_that_is_no_pattern_is_passed_over(tree: Path) -> None:
    (tree / ".git").mkdir(exist_ok=True)
    (tree / ".gitignore").write_text("!\\\nbuild\n")
    assert find_models([]) == [path for path in EVERYTHING if "build" not in path]
