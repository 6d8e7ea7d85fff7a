"""Hostile files through every command that reads a model: `tests/faults/hostile.py` has them."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("needs pidfd, and limits of processes", allow_module_level=True)

import onnx_kvtool as kv
from tests.faults.hostile import COMMANDS, HOSTILE, complaints, stage
from tests.faults.kvtool_process import Runner


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file(runner: Runner, tmp_path: Path, name: str) -> None:
    stage(name, tmp_path)
    found = {
        " ".join(arguments): problems
        for arguments in COMMANDS
        if (problems := list(complaints(runner, arguments, tmp_path)))
    }
    assert found == {}


_CHEAP = [name for name in HOSTILE if "Constant" in name or "Einsum" in name or "version" in name]


@pytest.mark.parametrize("name", _CHEAP)
def test_a_function_refuses_it_or_gives_an_answer(name: str) -> None:
    model = HOSTILE[name]()
    for call in (
        lambda: kv.lower(model, opset=13, verify=False),
        lambda: kv.check(model),
        lambda: kv.infer(model),
        lambda: kv.evaluate(model, {"x": [2.0, 3.0]}),
    ):
        with contextlib.suppress(kv.KvtoolError):
            call()
