"""OpenVINO's provider of onnxruntime, in an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.compat.environments import environment

pytestmark = pytest.mark.compat

NEEDED = ("onnxruntime-openvino==1.24.1", "onnx", "onnx-ir", "click", "rich", "ml_dtypes")
MODEL = "fixtures/models/native/llama_static.onnx"


def run(root: Path, *arguments: object) -> dict[str, Any]:
    python = environment("onnxruntime-openvino-1.24.1-kvtool", NEEDED)
    result = subprocess.run(
        [python, "-m", "onnx_kvtool", *map(str, arguments), "--format", "json"],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_models_are_compared_and_timed_by_openvino(root: Path, tmp_path: Path) -> None:
    paths = [tmp_path / f"opset{opset}.onnx" for opset in (18, 20)]
    for path, opset in zip(paths, (18, 20), strict=True):
        run(root, "lower", root / MODEL, "--opset", opset, "-o", path, "--no-verify")
    compared = run(root, "verify", *paths, "--provider", "OpenVINO,device_type=CPU")
    assert compared["status"] == "equal"
    assert "(OpenVINOExecutionProvider)" in compared["runtime"]
    timed = run(root, "bench", *paths, "--prompt", 3, "--tokens", 4, "--provider", "OpenVINO")
    assert timed["same_tokens"] and not timed["runs"][0]["in_place"]
    one = ("--random", "--provider", "openvino", "--compare", "onnxruntime")
    assert run(root, "eval", paths[0], *one)["comparison"]["status"] == "equal"
