"""The notebooks of docs run, and print what stands in them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.notebooks import NOTEBOOKS, ROOT, outputs, printed, read

NAMES = [path.stem for path in NOTEBOOKS]


def test_there_is_a_notebook_for_each_question() -> None:
    assert NAMES == ["cache-cost", "lint-in-ci", "old-runtime"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_a_notebook_is_whole_and_small(path: Path) -> None:
    book = read(path)
    assert (book["nbformat"], book["metadata"]["kernelspec"]["language"]) == (4, "python")
    assert path.stat().st_size < 20_000
    assert "".join(book["cells"][0]["source"]).startswith("# ")
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert sum(bool(text) for text in outputs(book)) >= 4
    for cell in book["cells"]:
        for link in re.findall(r"\]\((\.\./[^)#]+)", "".join(cell["source"])):
            assert (path.parent / link).is_file(), link


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=NAMES)
def test_a_notebook_prints_what_stands_in_it(path: Path, tmp_path: Path) -> None:
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    program = (
        "import json, sys; from pathlib import Path; from tests.notebooks import printed, read;"
        " said = printed(read(Path(sys.argv[1]))); print(json.dumps(said))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, path],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == outputs(read(path)), "run `python -m tests.notebooks`"


def test_a_cell_that_fails_is_a_failure() -> None:
    book = {"cells": [{"cell_type": "code", "id": "a", "source": ["assert 1 == 2\n"]}]}
    with pytest.raises(AssertionError):
        printed(book)
