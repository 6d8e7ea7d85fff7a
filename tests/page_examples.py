"""Examples in the pages: what they are, and how they are run.

Fenced blocks count. A block of `sh` is run by a shell and has to succeed; if a block of `text`
follows it, the output has to end with that text. A block of `text` whose first line begins with
`$ ` is a session: the line is run, and its output has to be the rest, whatever the exit code. A
block of `python` is run by the interpreter. All examples of a page run one after the other in one
directory, in which lie the files of `stage`. In shown output, a line `...` stands for any lines.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx.parser
from click.testing import CliRunner

from onnx_kvtool.cli import app

__all__ = ["Example", "examples", "matches", "normalised", "run", "stage"]

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "fixtures" / "models"

_FLOAT8_CACHE = """
    <ir_version: 12, opset_import: ["": 24]>
    decoder (float8e4m3fn[2, 3, 7, 5] past, float8e4m3fn[2, 3, 1, 5] update, int64[2] start)
        => (float8e4m3fn[2, 3, 7, 5] present) {
        [cache_0] present = TensorScatter (past, update, start)
    }
"""


@dataclass(frozen=True)
class Example:
    """One example.

    Attributes:
        language: `sh`, `session` or `python`.
        code: What is run.
        shown: What the page shows of its output; None for nothing.
    """

    language: str
    code: str
    shown: str | None = None

    @property
    def first_line(self) -> str:
        return self.code.splitlines()[0]


def examples(text: str) -> Iterator[Example]:
    """Yield the examples of a page in order."""
    blocks = list(re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    for block, following in itertools.zip_longest(blocks, blocks[1:]):
        language, content = block.groups()
        if language == "text" and content.startswith("$ "):
            line, _, shown = content[2:].partition("\n")
            yield Example("session", line, shown)
        elif language == "sh":
            output = None
            if following is not None and not text[block.end() : following.start()].strip():
                is_output = following[1] == "text" and not following[2].startswith("$ ")
                output = following[2] if is_output else None
            yield Example("sh", content, output)
        elif language == "python":
            yield Example("python", content)


def stage(directory: Path) -> None:
    """Fill the directory in which the examples of a page run.

    decoder.onnx is a decoder of opset 24, exported.onnx one with a static cache as PyTorch's
    exporter wrote it, float8.onnx a cache of a type that opset 18 lacks; fixtures are the fixtures.
    """
    (directory / "fixtures").symlink_to(ROOT / "fixtures")
    shutil.copy(MODELS / "native" / "llama_static.onnx", directory / "decoder.onnx")
    exported = MODELS / "torch_static" / "hf" / "llama_static__dynamo_op18.onnx"
    shutil.copy(exported, directory / "exported.onnx")
    onnx.save(onnx.parser.parse_model(_FLOAT8_CACHE), directory / "float8.onnx")
    tool = directory / "bin" / "kvtool"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m onnx_kvtool "$@"\n', encoding="utf-8")
    tool.chmod(0o755)


def run(example: Example, directory: Path) -> tuple[int, str]:
    """Run an example and return its exit code and what it printed, in the order of printing.

    Commands of kvtool that need no shell are run in this process, which must be in `directory`.
    """
    commands = None if example.language == "python" else _commands(example.code)
    if commands is None:
        return _elsewhere(example.code, example.language, directory)
    return _here(commands)


def _commands(code: str) -> list[list[str]] | None:
    """Return the arguments of each command of kvtool; None for what needs a shell."""
    if re.search(r"[|&;<>$`*\\]", re.sub(r"#.*", "", code)):
        return None
    commands = [words for line in code.splitlines() if (words := shlex.split(line, comments=True))]
    return [words[1:] for words in commands] if all(w[0] == "kvtool" for w in commands) else None


def _here(commands: list[list[str]]) -> tuple[int, str]:
    printed = ""
    for arguments in commands:
        result = CliRunner().invoke(app, arguments, catch_exceptions=False)
        printed += result.output
        if result.exit_code:
            return result.exit_code, printed
    return 0, printed


def _elsewhere(code: str, language: str, directory: Path) -> tuple[int, str]:
    command = [sys.executable, "-c", code] if language == "python" else ["sh", "-e", "-c", code]
    environment = {
        **os.environ,
        "PATH": os.pathsep.join((str(directory / "bin"), os.environ.get("PATH", ""))),
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
    }
    result = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        check=False,
    )
    return result.returncode, result.stdout.decode()


def normalised(report: str) -> str:
    """Leave out what differs between machines: versions, rounding, and the width it takes."""
    report = re.sub(r"(onnxruntime|reference) [\d.]+(?= \()", r"\1 VERSION", report)
    report = re.sub(r"in reference [\d.]+", "in reference VERSION", report)
    rounding = (
        r"; (\d+ outputs? equal bit for bit, )?largest difference \d\.\de-\d\d( in the others)?"
    )
    report = re.sub(rounding, "; largest difference SMALL", report)
    return re.sub(r"\d(\.\d)?e-\d\d *", "SMALL", report)


def matches(printed: str, shown: str, *, whole: bool) -> bool:
    """Return whether output is what a page shows, or, unless `whole`, ends with it."""
    parts = [re.escape(part) for part in normalised(shown).split("...\n")]
    pattern = "(?:.*\n)*?".join(parts)
    head = "" if whole else "(?:.*\n)*?"
    return re.fullmatch(head + pattern, normalised(printed)) is not None
