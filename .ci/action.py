"""The step of `action.yml` that checks: its inputs as a command line, its result as outputs.

It is run by the Python that kvtool was installed for, in the workspace. That it is no bash has two
reasons: the bash of macOS knows no `mapfile`, and no bash reads quotes in a variable without
running what else stands there.
"""

from __future__ import annotations

import os
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


def main() -> int:
    """Check, and say what came out; the counts are written by kvtool itself."""
    names = ("paths", "args", "format", "output")
    inputs = {name: os.environ[f"KVTOOL_{name.upper()}"] for name in names}
    try:
        command = arguments(inputs)
    except ValueError as error:
        sys.stdout.write(f"::error title=kvtool check::{error}\n")
        return 2
    # The one beside this Python; `-m` would look for modules in the workspace first.
    kvtool = shutil.which("kvtool", path=str(Path(sys.executable).parent))
    assert kvtool is not None, "the step before has installed it"
    exit_code = subprocess.run([kvtool, *command], check=False).returncode
    written = inputs["output"] if inputs["output"] != "-" else ""
    sarif = written if inputs["format"] == "sarif" else ""
    with open(os.environ["GITHUB_OUTPUT"], "a", encoding="utf-8") as file:
        file.write(f"exit-code={exit_code}\nreport={written}\nsarif={sarif}\n")
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
