"""The documents say what the tool does: commands, options, output, links."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path

import click
import pytest

from onnx_kvtool import __version__
from onnx_kvtool.cli.app import COMMANDS, app
from tests.grids import each
from tests.page_examples import blocks, normalised
from tests.pages.table import MADE

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def contents(text: str, language: str) -> list[str]:
    """Return the contents of the fenced blocks of a language."""
    return [block.content for block in blocks(text) if block.language == language]


def section(title: str) -> str:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return readme.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_ci_ends_with_the_test_command_of_the_readme() -> None:
    (command,) = contents(section("Install and test"), "sh")
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert ci.splitlines()[-1] == command.strip()


@pytest.mark.exhaustive
@pytest.mark.needs_onnxruntime("1.29")
def test_the_first_command_of_the_readme_prints_what_stands_below_it(
    kvtool_process, tmp_path: Path
) -> None:
    (command,) = contents(section("Install and lower a model"), "sh")
    (shown,) = contents(section("Install and lower a model"), "text")
    program, *arguments = shlex.split(command.split(" && ")[-1])
    assert program == ".venv/bin/kvtool"
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")

    result = kvtool_process(*arguments, cwd=tmp_path)

    assert result.returncode == 0, result.stderr
    assert normalised(result.stderr.decode()) == normalised(shown)
    assert (tmp_path / arguments[-1]).is_file()


def test_every_name_of_the_python_reference_exists() -> None:
    """The site is built in the slow set alone."""
    text = (ROOT / "docs" / "python" / "reference.md").read_text(encoding="utf-8")
    names = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    assert len(names) > 10
    for name in names:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name


@pytest.mark.long
def test_every_option_is_documented() -> None:
    for name, command in COMMANDS.items():
        text = MADE["commands"]()[f"{name}.md"]
        for param in (*command.params, *app.params):
            if isinstance(param, click.Option):
                for flag in (*param.opts, *param.secondary_opts):
                    assert re.search(rf"`[^`]*{flag}\b", text), f"{flag} of {name}"


@pytest.mark.long
def test_every_option_that_is_documented_exists() -> None:
    known = {"--help"} | {
        flag
        for command in (app, *COMMANDS.values())
        for param in command.params
        for flag in (*param.opts, *param.secondary_opts)
    }
    for name in (*COMMANDS, "index"):
        text = MADE["commands"]()[f"{name}.md"]
        assert set(re.findall(r"--[a-z][a-z-]+", text)) <= known


def test_every_reason_that_raise_gives_is_documented() -> None:
    rooms = [ROOT / "onnx_kvtool" / name for name in ("analysis", "rewrite/raising")]
    files = [path for room in rooms for path in sorted(room.rglob("*.py"))]
    source = "".join(path.read_text(encoding="utf-8") for path in files)
    raised = r'(?:Unproven|super\(\).__init__)\(\s*"([a-z-]+)"'
    named = raised + r'|assume\(\s*"[a-z-]+",\s*[\w.]+,\s*"([a-z-]+)"'
    given = {one or other for one, other in re.findall(named, source)}
    page = (ROOT / "docs" / "commands" / "raise.md").read_text(encoding="utf-8")
    rows = page.partition("| reason code |")[2].partition("\n\n")[0]
    documented = {
        code
        for row in rows.splitlines()[2:]
        for code in re.findall(r"`([a-z-]+)`", row.split("|")[1])
    }
    assert documented == given


def test_the_readme_gives_the_exit_codes_of_the_help() -> None:
    rows = re.findall(r"^\| (\d) \| (.*?)(?:; `--debug`.*)? \|$", section("Use"), re.MULTILINE)
    lines = re.findall(r"^  (\d)  (.*)$", app.epilog or "", re.MULTILINE)
    assert rows == lines


def test_the_changelog_begins_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[(.*?)\] - (?:unreleased|\d{4}-\d\d-\d\d)$", text, re.MULTILINE)
    assert versions[0] == __version__
    assert len(versions) == text.count("\n## ")


@each("document", DOCUMENTS)
def test_links_lead_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", document.read_text(encoding="utf-8")):
        if "://" not in link:
            assert (document.parent / link).exists(), link


def test_the_places_where_an_operator_can_be_known_exist() -> None:
    text = (ROOT / "docs/developing/trait.md").read_text(encoding="utf-8")
    table = text.split("## All places")[1]
    places = [
        path
        for line in table.splitlines()
        if line.startswith("| `")
        for path in re.findall(r"`([\w/]+(?:\.py|\.toml|/\w*))`", line.split("|")[1])
    ]
    assert len(places) > 15
    assert [path for path in places if not (ROOT / "onnx_kvtool" / path).exists()] == []
