"""Examples in the pages: what they are, and how they are run.

Fenced blocks count, and pages have no others. A block of `sh`, `bash`, `zsh` or `fish` is run by
that shell, a block of `python` as a program. Each has to succeed; if a block of `text` follows it,
the output has to end with that text. A block of `text` whose first line begins with `$ ` is a
session: the line is run, and its output has to be the rest, whatever the exit code.
All examples of a page run one after the other in one directory, in which lie the fixtures; a page
makes what else it names. In shown output, a line `...` stands for any lines.

`python -m tests.page_examples [PAGE ...]` writes what this machine prints into the pages, with the
versions of its libraries.
"""

from __future__ import annotations

import contextlib
import glob
import io
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from onnx_kvtool.cli import app

__all__ = [
    "Block",
    "Example",
    "anew",
    "blocks",
    "examples",
    "matches",
    "normalised",
    "run",
    "stage",
    "workplace",
]

ROOT = Path(__file__).resolve().parent.parent

SHELLS = ("sh", "bash", "zsh", "fish")


@dataclass(frozen=True)
class Example:
    """One example.

    Attributes:
        language: A shell, `session` or `python`.
        code: What is run.
        shown: What the page shows of its output; None for nothing.
    """

    language: str
    code: str
    shown: str | None = None

    @property
    def first_line(self) -> str:
        return self.code.splitlines()[0]


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        language: What stands behind the fence, up to a space.
        info: All that stands behind the fence.
        content: The lines between the fences.
        start: Where it begins in the page.
        end: Where it ends.
    """

    language: str
    info: str
    content: str
    start: int
    end: int


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a page in order."""
    found = re.finditer(r"^```(.*)\n((?:(?!```).*\n)*)```$", text, re.MULTILINE)
    return [Block(m[1].partition(" ")[0], m[1], m[2], *m.span()) for m in found]


def examples(text: str) -> Iterator[Example]:
    """Yield the examples of a page in order."""
    found = blocks(text)
    for block, following in itertools.zip_longest(found, found[1:]):
        language, content = block.language, block.content
        if language == "text" and content.startswith("$ "):
            line, _, shown = content[2:].partition("\n")
            yield Example("session", line, shown)
        elif language in (*SHELLS, "python"):
            output = None
            if following is not None and not text[block.end : following.start].strip():
                is_output = following.language == "text" and following.content[:2] != "$ "
                output = following.content if is_output else None
            yield Example(language, content, output)


def stage(directory: Path) -> None:
    """Fill a directory with the models that the reference of Python makes before its examples."""
    workplace(directory)
    text = (ROOT / "docs" / "python" / "reference.md").read_text(encoding="utf-8")
    with _within(directory):
        for example in examples(text):
            code, printed = run(example, directory)
            assert code == 0, printed


@contextlib.contextmanager
def _within(directory: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)


def workplace(directory: Path) -> None:
    """Make a directory what a reader has: the fixtures of the checkout, kvtool, Python."""
    (directory / "fixtures").symlink_to(ROOT / "fixtures")
    _program(directory, "kvtool", f'exec "{sys.executable}" -m onnx_kvtool "$@"')
    for name in ("python", "python3"):  # as in an activated environment, which CI need not have
        _program(directory, name, f'exec "{sys.executable}" "$@"')
    if shutil.which("dot") is None:  # Graphviz: at least look at what it would be given
        _program(directory, "dot", "grep '^digraph'")


def _program(directory: Path, name: str, script: str) -> None:
    path = directory / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def run(example: Example, directory: Path) -> tuple[int, str]:
    """Run an example and return its exit code and what it printed, in the order of printing.

    Python, and commands of kvtool for which a shell would do no more than open files, are run in
    this process, which must be in `directory`.
    """
    if example.language == "python":
        return _interpreted(example.code)
    commands = _commands(example.code)
    if commands is None:
        return _elsewhere(example.code, example.language, directory)
    return _here(commands)


def _interpreted(code: str) -> tuple[int, str]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            exec(compile(code, "example", "exec"), {"__name__": "__main__"})
        except BaseException:  # noqa: BLE001 - whatever an example raises is what is reported
            traceback.print_exc()
            return 1, printed.getvalue()
    return 0, printed.getvalue()


def _commands(code: str) -> list[list[str]] | None:
    """Return the words behind `kvtool` of each command; None for what needs a shell."""
    plain = re.sub(r" [<>] (?=[\w.])", " ", re.sub(r"#.*", "", code))
    if re.search(r"[|&;<>$`\\]" if "'" not in plain else r"[|&;<>$`*\\]", plain):
        return None
    commands = [words for line in code.splitlines() if (words := shlex.split(line, comments=True))]
    return [words[1:] for words in commands] if all(w[0] == "kvtool" for w in commands) else None


def _here(commands: list[list[str]]) -> tuple[int, str]:
    printed = ""
    for words in commands:
        arguments, given, written = _redirected(words)
        result = CliRunner().invoke(app, arguments, input=given, catch_exceptions=False)
        if written is None:
            printed += result.output
        else:
            Path(written).write_bytes(result.stdout_bytes)
            printed += result.stderr
        if result.exit_code:
            return result.exit_code, printed
    return 0, printed


def _redirected(words: list[str]) -> tuple[list[str], bytes | None, str | None]:
    """Return the arguments, what standard input holds, and where standard output goes.

    `**` is what it is to `sh`: a single star.
    """
    arguments, given, written = [], None, None
    left = iter(words)
    for word in left:
        if word == "<":
            given = Path(next(left)).read_bytes()
        elif word == ">":
            written = next(left)
        else:
            arguments += ("*" in word and sorted(glob.glob(word))) or [word]
    return arguments, given, written


def _elsewhere(code: str, language: str, directory: Path) -> tuple[int, str]:
    shell = language if language in SHELLS else "sh"
    if shutil.which(shell) is None:  # at least run kvtool, whose output it would read
        shell, code = "sh", "\n".join(re.findall(r"\w+=\w+ kvtool", code))
    command = [shell, "-c", code] if shell == "fish" else [shell, "-e", "-c", code]
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
    largest = r"largest difference \d\.\de-\d\d( in the others)?"
    rounding = rf"; (\d+ outputs? equal bit for bit(, {largest})?|{largest})$"
    report = re.sub(rounding, "; largest difference SMALL", report, flags=re.MULTILINE)
    return re.sub(r"\d(\.\d)?e-\d\d *", "SMALL", report)


def anew(printed: str, shown: str, *, whole: bool) -> str | None:
    """Return what a page shows as this run printed it; None where that is something else.

    Unless `whole`, the output only has to end with what is shown.
    """
    lines = printed.splitlines(keepends=True)
    plain = [normalised(line) for line in lines]
    parts = [part.splitlines(keepends=True) for part in shown.split("...\n")]
    found, at = [], 0
    for position, part in enumerate(parts):
        wanted = [normalised(line) for line in part]
        last = len(plain) - len(wanted)
        first = last if position == len(parts) - 1 else at
        final = at if position == 0 and whole else last
        here = [n for n in range(max(at, first), final + 1) if plain[n : n + len(part)] == wanted]
        if not here:
            return None
        at = here[0] + len(part)
        found.append("".join(lines[here[0] : at]))
    return "...\n".join(found)


def matches(printed: str, shown: str, *, whole: bool) -> bool:
    """Return whether output is what a page shows, or, unless `whole`, ends with it."""
    return anew(printed, shown, whole=whole) is not None


def _written_anew(path: Path, is_run: Callable[[str, Example], bool]) -> str:
    """Run the examples of a page and return its text with what they printed."""
    text = path.read_text(encoding="utf-8")
    page = path.relative_to(ROOT).as_posix()
    with tempfile.TemporaryDirectory() as name, _within(Path(name)):
        workplace(Path(name))
        for example in examples(text):
            if not is_run(page, example):
                continue
            _, printed = run(example, Path(name))
            if example.shown is None:
                continue
            session = example.language == "session"
            shown = anew(printed, example.shown, whole=session)
            if shown is None:
                shown = printed if session and "...\n" not in example.shown else None
                what = "other output" if shown else "other output: mend it by hand"
                sys.stdout.write(f"{page}: {example.first_line}: {what}\n{printed}")
            head = f"$ {example.code}\n" if session else ""
            block, new = (f"```text\n{head}{out}```" for out in (example.shown, shown))
            text = text.replace(block, new, 1) if shown else text
    return text


if __name__ == "__main__":
    from tests.test_page_examples import is_run

    given = [Path(name).resolve() for name in sys.argv[1:]]
    os.environ.update(COLUMNS="80", TERM="xterm")
    folders = (ROOT / "docs", ROOT / "tests" / "pages")
    pages = [ROOT / "README.md", *(path for one in folders for path in sorted(one.rglob("*.md")))]
    for page in given or pages:
        page.write_text(_written_anew(page, is_run), encoding="utf-8")
