"""Start-up is cheap: what only prints does not import the libraries that work needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

import onnx_kvtool
from onnx_kvtool.cli.app import COMMANDS
from tests.grids import part

MODEL = Path(__file__).parents[1] / "fixtures" / "models" / "native" / "llama_static.onnx"
HEAVY = {"ml_dtypes", "numpy", "onnx", "onnx_ir", "onnxruntime", "onnxscript", "rich", "sympy"}

REPORT_MODULES = """
import atexit, json, sys
atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))
"""


def modules_after(code: str) -> set[str]:
    """Run `code` in a fresh interpreter and return the top-level modules it has imported."""
    return {name.partition(".")[0] for name in all_modules_after(code)}


def all_modules_after(code: str) -> set[str]:
    """Run `code` in a fresh interpreter and return the modules it has imported."""
    result = subprocess.run(
        [sys.executable, "-c", REPORT_MODULES + code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return set(json.loads(result.stderr.splitlines()[-1]))


@part(3)
@pytest.mark.long
@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import onnx_kvtool", id="importing the package"),
        pytest.param("import onnx_kvtool.cli", id="importing the command line"),
        pytest.param("from onnx_kvtool.cli import app; app(['--help'])", id="kvtool --help"),
        pytest.param("from onnx_kvtool.cli import app; app(['--version'])", id="kvtool --version"),
        pytest.param(
            "from onnx_kvtool.cli import app; app(['lower', '--help'])", id="lower --help"
        ),
        pytest.param(
            "from onnx_kvtool.cli import app; app(['verify', '--help'])", id="verify --help"
        ),
        pytest.param(
            "from onnx_kvtool.cli import app; app(['check', '--help'])", id="check --help"
        ),
        pytest.param("from onnx_kvtool.cli import app; app(['rule', 'KV001'])", id="rule KV001"),
        pytest.param("from onnx_kvtool.cli import app; app(['rule', '--all'])", id="rule --all"),
        pytest.param("from onnx_kvtool.cli import app; app(['lower', '-x'])", id="wrong usage"),
        pytest.param("from onnx_kvtool import KvtoolError", id="naming an error class"),
        pytest.param(
            "from onnx_kvtool.core.machine import bounded_memory", id="a process that infers apart"
        ),
    ],
)
def test_start_up_does_not_import(code: str) -> None:
    modules = modules_after(code)
    assert "onnx_kvtool" in modules
    assert not HEAVY & modules


@pytest.mark.long
def test_a_table_on_a_terminal_needs_rich_alone() -> None:
    """The line that says what is under way is imported when a second has passed."""
    modules = modules_after(
        "import onnx_kvtool.report.text\nfrom onnx_kvtool.cli import app\napp(['targets'])"
    )
    assert HEAVY & modules == {"rich"}


MISPLACED = """
import sys
from onnx_kvtool.cli import app
codes = []
for line in sys.argv[1:]:
    try:
        app(line.split())
    except SystemExit as end:
        codes.append(end.code)
print(codes)
"""


@pytest.mark.long
def test_a_path_that_leads_nowhere_is_said_before_anything_is_imported(tmp_path: Path) -> None:
    model = tmp_path / "decoder.onnx"
    model.touch()
    models = {
        name: sum(
            isinstance(p, click.Argument) and isinstance(p.type, click.Path) for p in c.params
        )
        for name, c in COMMANDS.items()
    }
    missing = [f"{name}{' missing.onnx' * count}" for name, count in models.items() if count]
    writers = ("lower", "raise", "infer", "inspect", "check", "print")
    writes = [f"{name} {model} -o missing/out" for name in writers]
    writes += [f"eval {model} --save missing/out", f"check {model} --write-baseline missing/out"]
    done = subprocess.run(
        [sys.executable, "-c", REPORT_MODULES + MISPLACED, *missing, *writes],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=tmp_path,
    )
    assert len(missing) >= 8
    assert json.loads(done.stdout) == [3] * len(missing) + [2] * len(writes)
    *said, modules = done.stderr.splitlines()
    assert sum("`missing.onnx` does not exist" in line for line in said) == len(missing)
    assert sum("cannot write `missing/out`" in line for line in said) == len(writes)
    assert not HEAVY & {name.partition(".")[0] for name in json.loads(modules)}


NO_RUN = ["check", "infer", "inspect", "lower --dry-run --no-verify", "raise --dry-run --no-verify"]
ONE_BY_ONE = """
import contextlib, io, json, sys
from onnx_kvtool.cli import app
for command in sys.argv[2:]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        app([*command.split(), sys.argv[1]])
    print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.long
def test_what_runs_no_model_does_not_import_what_runs_models() -> None:
    command = [sys.executable, "-c", ONE_BY_ONE, str(MODEL), *NO_RUN]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    after = dict(zip(NO_RUN, map(json.loads, done.stdout.splitlines()), strict=True))
    runs = ("onnx_kvtool.runtime", "onnxruntime")
    for modules in after.values():
        assert "onnx_kvtool.model_io.model" in modules
    brought = {name: [m for m in found if m.startswith(runs)] for name, found in after.items()}
    assert brought == {name: [] for name in NO_RUN}


@pytest.mark.long
def test_the_probe_sees_a_heavy_import() -> None:
    assert "numpy" in modules_after("import numpy")


def test_every_public_name_can_be_used() -> None:
    for name in onnx_kvtool.__all__:
        assert getattr(onnx_kvtool, name) is not None
    assert set(onnx_kvtool.__all__) <= set(dir(onnx_kvtool))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'louwer'"):
        _ = onnx_kvtool.louwer
