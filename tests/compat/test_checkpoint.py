"""The guide from a Hugging Face checkpoint to text, followed word by word by either exporter.

Run it with `pytest -m compat`; torch and transformers are installed from the index on first use.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.compat.environments import environment
from tests.compat.test_hosts import HOSTS, OPTIMUM
from tests.page_examples import examples, matches

pytestmark = pytest.mark.compat

NEEDED = (*OPTIMUM, "onnxscript==0.7.2", "onnx", "onnx-ir", "click", "rich", "ml_dtypes")

OLD = ("onnxruntime==1.17.3", "transformers==4.57.6", "numpy<2")

EXPORTS = {"optimum": "optimum-cli export", "torch": "torch.onnx.export("}


@pytest.mark.parametrize("exporter", EXPORTS)
def test_the_guide_leads_from_a_checkpoint_to_the_text_of_transformers(
    exporter: str, root: Path, tmp_path: Path
) -> None:
    page = (root / "docs/guides/hugging-face.md").read_text(encoding="utf-8")
    python = environment("checkpoint-torch-2.13.0", NEEDED)
    old = environment("text-onnxruntime-1.17.3", OLD)
    kvtool = tmp_path / "bin" / "kvtool"
    kvtool.parent.mkdir()
    kvtool.write_text(f'#!/bin/sh\nexec "{python}" -m onnx_kvtool "$@"\n', encoding="utf-8")
    kvtool.chmod(0o755)
    path = os.pathsep.join(map(str, (kvtool.parent, python.parent, os.environ["PATH"])))

    def call(command: list[object]) -> str:
        result = subprocess.run(
            [str(part) for part in command],
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(root), "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    (prompt,) = re.findall(r'tokenizer\("(.*?)", return_tensors', page)
    expected = call([python, HOSTS / "make_checkpoint.py", "checkpoint", prompt, 20])
    printed = ""
    for example in examples(page):
        others = [words for name, words in EXPORTS.items() if name != exporter]
        if any(words in example.code for words in (*others, "cp fixtures/")):
            continue  # the other exporter, and what those take who have no export
        if example.language == "python":
            (tmp_path / "example.py").write_text(example.code, encoding="utf-8")
            where = old if "from host import" in example.code else python
            told = call([where, "example.py"])
            if EXPORTS[exporter] not in example.code:  # which tells its progress
                printed += told
            continue
        told = call(["sh", "-c", example.code])
        # The names of dimensions, and of what holds the weights, are those of optimum.
        if example.shown is not None and exporter == "optimum":
            assert matches(told, example.shown, whole=example.language == "session"), told
    assert expected.strip()
    likeliest, drawn, on_the_old_runtime = printed.splitlines()
    assert likeliest == on_the_old_runtime == expected.rstrip("\n")
    assert drawn and drawn != likeliest
