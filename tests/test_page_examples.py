"""Every example in the README and in the pages under docs runs, and prints what is shown."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import click
import pytest

from onnx_kvtool import __version__
from onnx_kvtool.cli.app import COMMANDS
from onnx_kvtool.targets.target import find_target
from tests.grids import each, part, rest
from tests.page_examples import (
    ROOT,
    Example,
    blocks,
    examples,
    matches,
    run,
    stage,
    workplace,
)
from tests.pages.table import documents

PAGES = {name: text for name, text in documents().items() if list(examples(text))}

NOT_RUN = {
    ("README.md", "python3 -m venv .venv && .venv/bin/pip install -q . && .venv/bin/kvtool"): (
        "takes a minute; tests/test_first_pages.py runs it in the slow set"
    ),
    ("README.md", "python3 -m venv .venv && .venv/bin/pip install -q -e '.[test]'"): (
        "is the last step of .ci/run, which runs this test"
    ),
    ("CONTRIBUTING.md", "python3 -m venv .venv && .venv/bin/pip install"): (
        "takes a minute; .ci/run installs the same with uv"
    ),
    ("CONTRIBUTING.md", ".venv/bin/pytest"): "are steps of .ci/run, which runs this test",
    ("CONTRIBUTING.md", ".ci/lowest"): "runs this test; tests/compat/test_lowest.py calls it",
    ("docs/developing/index.md", "pip install -e '.[docs]' && mkdocs serve"): (
        "serves until it is stopped; tests/test_site.py builds the site"
    ),
    ("docs/developing/index.md", "python -m benchmarks"): "measures for half an hour",
    ("docs/developing/faults.md", "python -m tests.faults"): (
        "takes an hour; a bounded part of it is in the slow set"
    ),
    ("docs/guides/remote.md", "pip install"): "reaches hosts that no test may reach",
    ("docs/guides/clusters.md", "pip install"): (
        "is done on several machines; tests/commands/test_check_dask.py starts a cluster on one"
    ),
    ("docs/guides/ci.md", "kvtool check models --format rdjson"): "needs reviewdog",
    ("docs/guides/ci.md", "pip install"): "leaves open where the repository of kvtool lies",
    ("docs/guides/npu.md", "import numpy"): "needs openvino; tests/compat/test_npu.py runs it",
    **{
        (
            "docs/guides/hugging-face.md",
            start,
        ): "needs torch; tests/compat/test_checkpoint.py runs it"
        for start in ("optimum-cli", "import torch", "from transformers", "from host import")
    },
    ("docs/index.md", "python3 -m venv .venv && .venv/bin/pip install -q ."): (
        "takes a minute; tests/test_first_pages.py runs it in the slow set"
    ),
}
"""Examples that are not run: page, start of the first line, and why."""


def is_run(page: str, example: Example) -> bool:
    return not any(page == of and example.first_line.startswith(start) for of, start in NOT_RUN)


OFTEN = ("README.md",)
"""Pages whose examples run by default; those of the others are exhaustive."""


@pytest.mark.long
@pytest.mark.needs_onnxruntime("1.29")
@pytest.mark.parametrize(
    "page",
    [*OFTEN, *rest(*(page for page in PAGES if page not in OFTEN))],
)
def test_examples_of_a_page(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain_environment: None
) -> None:
    workplace(tmp_path)
    monkeypatch.chdir(tmp_path)
    for example in examples(PAGES[page]):
        if not is_run(page, example):
            continue
        code, printed = run(example, tmp_path)
        report = f"{page}: {example.code}\nexit code {code}\n{printed}"
        assert "Traceback" not in printed, report
        if example.language != "session":
            assert code == 0, report
        if example.shown is not None:
            assert matches(printed, example.shown, whole=example.language == "session"), report


@pytest.mark.long
@pytest.mark.parametrize("page", ["README.md", "docs/commands/index.md"])
def test_the_line_for_bash_registers_a_completion(page: str, tmp_path: Path) -> None:
    workplace(tmp_path)
    (line,) = (one for one in examples(PAGES[page]) if one.language == "bash")
    code, printed = run(Example("bash", f"{line.code}complete -p kvtool\n"), tmp_path)
    assert code == 0, printed
    assert printed.startswith("complete -o nosort -F _kvtool_completion kvtool")


def help_examples(command: click.Command) -> list[str]:
    return re.findall(r"^  (kvtool .*?)(?:  .*)?$", command.epilog or "", re.MULTILINE)


RARELY = ("bench", "check", "lower", "raise", "verify")
"""Commands whose examples take seconds; all are held against the options by default."""


@part(2)
@pytest.mark.long
@pytest.mark.needs_onnxruntime("1.29")
@pytest.mark.parametrize(
    "name", [*(name for name in COMMANDS if name not in RARELY), *rest(*RARELY)]
)
def test_examples_in_the_help_of_a_command(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain_environment: None
) -> None:
    stage(tmp_path)
    (tmp_path / "fixtures").unlink()
    if name != "raise":  # it takes as long as all others
        (tmp_path / "growing.onnx").unlink()
    shutil.copy(tmp_path / "decoder.onnx", tmp_path / "other.onnx")
    monkeypatch.chdir(tmp_path)
    if name == "verify":
        assert run(Example("sh", "kvtool lower decoder.onnx"), tmp_path)[0] == 0
    if name == "merge":
        for report in ("decoder.onnx -o 1.json", "exported.onnx -o 2.json"):
            code = f"kvtool check --format json {report}"
            assert run(Example("sh", code), tmp_path)[0] == 0
    if name == "diff":
        shutil.copy(tmp_path / "decoder.onnx", tmp_path / "old.onnx")
        shutil.copy(tmp_path / "exported.onnx", tmp_path / "new.onnx")
    given = set(tmp_path.iterdir())
    for code in help_examples(COMMANDS[name]):
        exit_code, printed = run(Example("sh", code), tmp_path)
        for path in set(tmp_path.iterdir()) - given:
            path.unlink()
        # For some, 1 is an answer: there are findings, or differences.
        assert exit_code == 0 or (name in ("check", "diff") and exit_code == 1), (
            f"{code}\n{printed}"
        )
        assert "Traceback" not in printed


@pytest.mark.exhaustive
def test_files_are_opened_as_a_shell_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain_environment: None
) -> None:
    stage(tmp_path)
    monkeypatch.chdir(tmp_path)
    line = "kvtool lower - -o - --no-verify < decoder.onnx > OUT  # both"
    here, there = (line.replace("OUT", name) for name in ("here.onnx", "there.onnx"))
    assert run(Example("sh", here), tmp_path) == run(Example("sh", f"{there} &&\n:"), tmp_path)
    assert (tmp_path / "here.onnx").read_bytes() == (tmp_path / "there.onnx").read_bytes()


def test_what_is_not_run_is_there() -> None:
    for page, start in NOT_RUN:
        found = [
            example for example in examples(PAGES[page]) if example.first_line.startswith(start)
        ]
        assert len(found) == 1, (page, start)


@each(
    ("printed", "shown", "whole", "expected"),
    [
        pytest.param("a\nb\n", "a\nb\n", True, True, id="the same"),
        pytest.param("a\nb\n", "b\n", True, False, id="a line is missing"),
        pytest.param("a\nb\n", "b\n", False, True, id="the end of it"),
        pytest.param("ab\n", "b\n", False, False, id="the end of a line is no line"),
        pytest.param("a\nb\nc\n", "a\n...\nc\n", True, True, id="lines left out"),
        pytest.param("a\nc\n", "a\n...\nd\n", True, False, id="another line after the gap"),
        pytest.param(
            "equal in onnxruntime 1.30.0 (4 cases)\n",
            "equal in onnxruntime 1.31.1 (4 cases)\n",
            True,
            True,
            id="versions do not count",
        ),
        pytest.param("7e-07  at\n", "7.1e-08 at\n", True, True, id="rounding does not count"),
        pytest.param("7e-07\n", "0\n", True, False, id="rounding is not nothing"),
        pytest.param(
            "equal; 2 outputs equal bit for bit, largest difference 8.9e-08 in the others\n",
            "equal; 5 outputs equal bit for bit\n",
            True,
            True,
            id="nor does how many outputs it spares",
        ),
    ],
)
def test_output_is_compared(printed: str, shown: str, whole: bool, expected: bool) -> None:
    assert matches(printed, shown, whole=whole) == expected


def test_shown_output_names_one_version_of_each_runtime() -> None:
    """Versions do not count in a run; readers see those of `python -m tests.page_examples`."""
    shown = [
        line
        for text in PAGES.values()
        for block in blocks(text)
        if block.language == "text"
        for line in block.content.splitlines()
        if line.startswith(("verification: ", "equal: ", "different: ", "ran: "))
    ]
    named = [
        m.groups()
        for line in shown
        for m in re.finditer(r"(onnxruntime|reference) (\d\S*?)(?=[ ,]|$)", line)
    ]
    of = {runtime: {version for one, version in named if one == runtime} for runtime, _ in named}
    assert of["reference"] == {__version__}
    assert of["onnxruntime"] == {find_target("onnxruntime").release.version}


def test_a_text_block_belongs_to_the_shell_block_right_before_it() -> None:
    page = "```sh\na\n```\n\n```text\nA\n```\n\n```sh\nb\n```\n\nso\n\n```text\nB\n```\n"
    page += "```text\n$ c\nC\n```\n```python\nd\n```\n"
    assert list(examples(page)) == [
        Example("sh", "a\n", "A\n"),
        Example("sh", "b\n", None),
        Example("session", "c", "C\n"),
        Example("python", "d\n", None),
    ]


QUOTES = [
    pytest.param(path, title, part, id=f"{path.stem}: {part.strip().splitlines()[0]}")
    for path in sorted(ROOT.glob("docs/developing/*.md"))
    for title, quoted in re.findall(
        r'^```(?:py|text) title="(.*?)"\n(.*?)^```$',
        path.read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    for part in quoted.split("...\n")
]


@each(("page", "title", "part"), QUOTES)
def test_what_the_pages_for_developers_quote_is_there(page: Path, title: str, part: str) -> None:
    assert part in (ROOT / title).read_text(encoding="utf-8")


FOR_DEVELOPERS = [ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/developing/*.md"))]
CODE = [
    path
    for folder in ("onnx_kvtool", "tests", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".toml")
]
SPOKEN = {"has_low_rank_input_condition": "TensorFlow Lite's"}
"""Names in the pages that are not of this house, with whose they are."""


def test_the_files_that_the_pages_for_developers_name_are_there() -> None:
    there = {path.relative_to(ROOT).as_posix() for path in CODE}
    there |= {parent.as_posix() for path in there for parent in Path(path).parents}
    there |= {path.removesuffix(".py") for path in there}  # commands/lower
    ends = {path.split("/", cut)[-1] for path in there for cut in range(path.count("/") + 1)}
    named = {
        name.rstrip("/")
        for path in FOR_DEVELOPERS
        for name in re.findall(r"`(\.?\w[\w./]*(?:/[\w.]*|\.py|\.toml))`", prose(path))
        if not name.startswith(("/", "dist/"))
    }
    assert len(named) > 100
    assert sorted(n for n in named if n not in ends and not (ROOT / n).exists()) == []


@pytest.mark.long
def test_the_names_that_the_pages_for_developers_say_are_there() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in CODE)
    files = [*CODE, *ROOT.glob("*.py"), *(ROOT / "fixtures").rglob("*.onnx")]
    known = {*re.findall(r"\w+", code), *(path.stem for path in files), *SPOKEN}
    said = {
        name: path.name
        for path in FOR_DEVELOPERS
        for span in re.findall(r"`([^`\n]+)`", prose(path))
        if not {"<", "*"} & {*span} and not span.startswith(".")
        for name in re.findall(r"\b[a-zA-Z]\w*_\w+|\b_\w+|\b[A-Z][a-z]+[A-Z]\w+", span)
    }
    assert len(said) > 100
    assert {name: page for name, page in said.items() if name not in known} == {}


def prose(page: Path) -> str:
    """Return a page without its blocks."""
    text = page.read_text(encoding="utf-8")
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
