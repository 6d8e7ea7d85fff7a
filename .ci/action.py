"""The step of `action.yml` that checks: its inputs as a command line, its result as outputs.

It is run by the Python that kvtool was installed for, in the workspace. That it is no bash has two
reasons: the bash of macOS knows no `mapfile`, and no bash reads quotes in a variable without
running what else stands there.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


def words(text: str) -> list[str]:
    r"""Split text at spaces and line ends outside of quotes.

    A backslash is a character like others, as in `models\decoder.onnx`, and so are `#` and `$`.

    Raises:
        ValueError: If a quote has no end.
    """
    reader = shlex.shlex(text, posix=True, punctuation_chars=False)
    reader.whitespace_split = True
    reader.commenters = reader.escape = ""
    return list(reader)


def arguments(inputs: Mapping[str, str]) -> list[str]:
    """Return what follows `kvtool` on the command line.

    Raises:
        ValueError: If an input cannot be read.
    """
    paths, flags = (_words_of(inputs, name) for name in ("paths", "args"))
    if not paths:
        # What lists changed files lists none one day, and would check everything then.
        raise ValueError("the input `paths` of the action is empty; `.` checks everything")
    output = ["-o", inputs["output"]] if inputs["output"] else []
    return ["check", "--format", inputs["format"], *flags, *output, "--", *paths]


def _words_of(inputs: Mapping[str, str], name: str) -> list[str]:
    try:
        return words(inputs[name])
    except ValueError:
        raise ValueError(f"a quote in the input `{name}` of the action has no end") from None


def annotate(message: str) -> None:
    """Show an error with the job, not in its log alone."""
    safe = message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    sys.stdout.write(f"::error title=kvtool check::{safe}\n")


def run(command: list[str]) -> int:
    """Run kvtool, annotate why it failed where it says so, and return its exit code."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stderr is not None
        for line in process.stderr:
            sys.stderr.write(line)
            failure = _FAILURE.fullmatch(_COLOR.sub("", line.rstrip("\n")))
            if failure is not None:
                annotate(failure[1])
    return process.returncode


_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_FAILURE = re.compile(r"kvtool: (?:error|bug): (.*)")


def state(path: str) -> tuple[int, ...] | None:
    """Return what changes when a file is written; None where there is none."""
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return (seen.st_ino, seen.st_size, seen.st_mtime_ns) if Path(path).is_file() else None


def main() -> int:
    """Check, and say what came out; the counts are written by kvtool itself.

    A report that kvtool has not written is no output of the step, so that nothing uploads one of an
    earlier run.
    """
    names = ("paths", "args", "format", "output")
    inputs = {name: os.environ[f"KVTOOL_{name.upper()}"] for name in names}
    try:
        command = arguments(inputs)
    except ValueError as error:
        annotate(str(error))
        return 2
    # The one beside this Python; `-m` would look for modules in the workspace first.
    kvtool = shutil.which("kvtool", path=str(Path(sys.executable).parent))
    assert kvtool is not None, "the step before has installed it"
    report = inputs["output"]
    before = state(report)
    exit_code = run([kvtool, *command])
    lines = [f"exit-code={exit_code}"]
    if state(report) not in (None, before):
        lines += [f"report={report}"]
        lines += [f"sarif={report}"] if inputs["format"] == "sarif" else []
    with open(os.environ["GITHUB_OUTPUT"], "a", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
