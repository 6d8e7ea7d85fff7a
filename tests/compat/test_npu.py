"""The guide to an NPU, followed word by word: OpenVINO gives the tokens of the source.

Run it with `pytest -m compat`; OpenVINO is installed from the index on first use.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import onnx_kvtool as kv
from tests.compat.environments import installed
from tests.page_examples import examples

pytestmark = pytest.mark.compat

MODELS = ("llama__optimum", "gemma2__optimum", "qwen2__dynamo_op18", "bloom__optimum")

ROWS = 64
"""The capacity that the guide gives."""


@pytest.mark.parametrize("name", MODELS)
def test_openvino_gives_the_tokens_of_the_source(name: str, root: Path, tmp_path: Path) -> None:
    page = (root / "docs/guides/npu.md").read_text(encoding="utf-8")
    taken = "fixtures/growing/llama__optimum.onnx"
    assert taken in page
    found = list(examples(page.replace(taken, f"'{root}'/fixtures/growing/{name}.onnx")))
    kvtool = tmp_path / "bin" / "kvtool"
    kvtool.parent.mkdir()
    kvtool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m onnx_kvtool "$@"\n', encoding="utf-8")
    kvtool.chmod(0o755)

    def call(command: list[object]) -> str:
        path = os.pathsep.join((str(kvtool.parent), os.environ["PATH"]))
        result = subprocess.run(
            [str(part) for part in command],
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    for example in found:
        if example.language == "sh" and "bench" not in example.code:
            call(["sh", "-e", "-c", example.code])
    (host,) = (example.code for example in found if "import openvino" in example.code)
    lengths = [1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49, 50, 60, 63]
    prompts = {length: [(7 * n + length) % 60 for n in range(length)] for length in lengths}
    calls = [f"print(*pair.generate({p}, {min(20, ROWS - n)}))" for n, p in prompts.items()]
    (tmp_path / "host.py").write_text("\n".join((host, *calls)), encoding="utf-8")
    first, *told = call([installed("openvino", "2026.4.1"), "host.py"]).splitlines()
    assert first.startswith("7 3 11 ") and len(first.split()) == 23
    source = kv.Decoder(tmp_path / "growing.onnx", threads=1)
    for line, (length, prompt) in zip(told, prompts.items(), strict=True):
        expected = source.generate([prompt], steps=min(20, ROWS - length))[0].tolist()
        assert [int(token) for token in line.split()] == [*prompt, *expected], length
