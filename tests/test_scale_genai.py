"""Decoders of true size with operators of onnxruntime: proven by default, in little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.real_models import DATA
from benchmarks.real_models.genai import write_genai
from benchmarks.real_models.genai_configuration import GENAI
from tests.test_scale import _MEASURE

pytestmark = pytest.mark.slow

_MEGABYTES = {"moe-64-int4": 1200}
"""At the peak; copies of 64 experts of two blocks each hold more. Others take 600."""


@pytest.mark.parametrize("name", GENAI)
def test_a_standardised_decoder_of_true_size_is_proven(name: str, tmp_path: Path) -> None:
    path = write_genai(GENAI[name], tmp_path, sparse=True)
    held = os.stat(tmp_path / DATA).st_blocks
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(path), "--opset", "18", "--contrib", "standard"],
        capture_output=True,
        text=True,
        check=True,
    )
    report = json.loads(done.stdout)
    assert report["verification"]["status"] == "equal", report["verification"]["detail"]
    assert report["verification"]["shrunken"]
    end = json.loads(done.stderr.splitlines()[-1])
    assert end["code"] == 0
    if sys.platform == "linux":
        assert end["megabytes"] < _MEGABYTES.get(name, 600)
    # The weights are those of the source: bytes of 4 bits stay such, and none is read or copied.
    assert os.stat(tmp_path / DATA).st_blocks == held
    assert os.stat(report["output"]).st_size < 40 << 20
