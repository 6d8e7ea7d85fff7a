"""No example escapes: each block of a page is run, read, quoted, or shown as output."""

from __future__ import annotations

import functools
import re
import sys
from pathlib import Path

import pytest
import yaml  # comes with pre-commit

from onnx_kvtool.cli.app import COMMANDS
from onnx_kvtool.lint.settings.config import load
from tests.grids import each
from tests.page_examples import SHELLS, Block, blocks
from tests.pages.table import documents
from tests.test_page_examples import help_examples

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = pytest.mark.long  # pages are made to be collected

DOCUMENTS = documents()
PROGRAMS = r"(?:\$ |kvtool |pip |python3? |mkdocs |pytest|\.venv/)"


@pytest.mark.long
@each("name", DOCUMENTS.keys())
def test_every_block_is_fenced_and_of_a_known_kind(name: str) -> None:
    text = DOCUMENTS[name]
    found = blocks(text)
    assert len(re.findall(r"^\s*(?:```|~~~)", text, re.MULTILINE)) == 2 * len(found)
    known = {*SHELLS, "python", "text", "yaml", "toml", "py"}
    assert {block.language for block in found} <= known
    rest = text
    for block in reversed(found):
        rest = rest[: block.start] + rest[block.end :]
    outside_lists = re.findall(r"(?:\A|\n\n)(?: {4,}|\t).*(?=\n)", rest)
    assert outside_lists == [], "an indented block is run by nobody"


def commands_of_text(text: str) -> list[str]:
    """Return lines of blocks of text that are commands, but for a session's and a synopsis."""
    synopses = ("[", "COMMAND", "OP ", "MODEL", "A B")
    return [
        line
        for block in blocks(text)
        if block.language == "text"
        for line in block.content.splitlines()[block.content.startswith("$ ") :]
        if re.match(PROGRAMS, line)
        and not (line.startswith("kvtool ") and any(mark in line for mark in synopses))
    ]


@functools.cache
def shown_in_help() -> set[str]:
    return {code for command in COMMANDS.values() for code in help_examples(command)}


@each("name", DOCUMENTS.keys())
def test_blocks_of_text_hold_no_other_command_than_those_of_the_help(name: str) -> None:
    lines = commands_of_text(DOCUMENTS[name])
    assert [line for line in lines if re.split(r"  +", line)[0] not in shown_in_help()] == []


def of_language(language: str) -> list[object]:
    return [
        pytest.param(block, id=f"{name}: {block.content.splitlines()[0]}")
        for name, text in DOCUMENTS.items()
        for block in blocks(text)
        if block.info == language
    ]


@each("block", of_language("yaml"))
def test_yaml_is_read(block: Block) -> None:
    assert isinstance(yaml.safe_load(block.content), dict)


@pytest.mark.parametrize("block", of_language("toml"))
def test_toml_is_a_configuration_that_check_takes(block: Block, tmp_path: Path) -> None:
    assert "kvtool" in tomllib.loads(block.content)["tool"]
    path = tmp_path / "pyproject.toml"
    path.write_text(block.content, encoding="utf-8")
    assert load(str(path)).values
