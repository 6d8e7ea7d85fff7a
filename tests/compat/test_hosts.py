"""Programs that generate text do so with what kvtool wrote as with the source.

Run it with `pytest -m compat`; they are installed from the package index on first use.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnx_kvtool as kv
from onnx_kvtool.runtime.onnxruntime import Session
from tests.compat.environments import environment
from tests.growing_models import Conversation, Host

pytestmark = pytest.mark.compat

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
HOSTS = Path(__file__).with_name("hosts")

GENAI = "onnxruntime-genai==0.18.0", "onnxruntime==1.32.0"
OPTIMUM = "torch==2.13.0", "optimum-onnx==0.1.0", "transformers==4.57.6", "onnxruntime==1.32.0"

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
"""What optimum has to know of the model that it wrote."""

LENGTH = 17
"""Tokens of a sequence: a prompt of five, and what is generated."""


def generated(host: str, requirements: tuple[str, ...], directory: Path, **asked: Any) -> Any:
    """Return the sequences that a host generates, prompts included."""
    python = environment(f"host-{host}-{requirements[0].partition('==')[2]}", requirements)
    command = [python, "-I", HOSTS / f"run_{host}.py", directory, json.dumps(asked)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def greedy(model: Path, prompts: list[list[int]]) -> Any:
    """Return the sequences of the largest logits, each token from the whole text before it."""
    session = Session(model.read_bytes(), str(model.parent))
    host = Host(model, lambda feeds: dict(session.run(feeds)), {"kv_cache_dim": 16})
    ids = np.array(prompts)
    while ids.shape[1] < LENGTH:
        talk = Conversation(ids, (ids > 0).astype(np.int64), {})
        logits, _ = host.answer(talk, [ids.shape[1]])
        ids = np.concatenate([ids, logits[:, -1:].argmax(-1)], axis=1)
    return ids.tolist()


def drawn(sequences: int, vocabulary: int) -> list[list[int]]:
    return np.random.default_rng(0).integers(3, vocabulary, (sequences, 5)).tolist()


@pytest.mark.parametrize("sequences", [1, 3])
def test_onnxruntime_genai_generates_with_a_raised_model_as_with_the_source(
    sequences: int, tmp_path: Path
) -> None:
    source, raised = genai_folder(tmp_path / "source"), genai_folder(tmp_path / "raised")
    model, report = kv.raise_(source / "model.onnx", capacity=LENGTH, verify=False)
    assert len(report.caches) == 4
    kv.save(model, raised / "model.onnx")
    prompts = drawn(sequences, 256)
    expected = greedy(source / "model.onnx", prompts)
    for share in (True, False):
        asked = {"prompts": prompts, "length": LENGTH, "share": share}
        assert generated("genai", GENAI, source, **asked) == expected
    assert generated("genai", GENAI, raised, prompts=prompts, length=LENGTH, share=True) == expected


def genai_folder(directory: Path) -> Path:
    """Return a new folder with the fixture and the configuration that belongs to it."""
    directory.mkdir()
    shutil.copy(FIXTURES / "models/genai/genai_llama_fp32_cpu.onnx", directory / "model.onnx")
    shutil.copy(FIXTURES / "models/genai/genai_config.json", directory)
    return directory


@pytest.mark.parametrize("binding", [False, True], ids=["arrays given", "arrays bound"])
@pytest.mark.parametrize("opset", [13, 11])
def test_optimum_generates_with_a_lowered_export_as_with_the_source(
    opset: int, binding: bool, tmp_path: Path
) -> None:
    source, lowered = tmp_path / "source", tmp_path / "lowered"
    for directory in (source, lowered):
        directory.mkdir()
        (directory / "config.json").write_text(json.dumps(LLAMA))
    shutil.copy(FIXTURES / "growing/llama__optimum.onnx", source / "model.onnx")
    kv.save(kv.lower(source / "model.onnx", opset=opset)[0], lowered / "model.onnx")
    prompts = drawn(3, 64)
    prompts[1][:2] = [0, 0]  # padding
    prompts[2][:1] = [0]
    asked = {"prompts": prompts, "length": LENGTH, "binding": binding}
    expected = generated("optimum", OPTIMUM, source, **asked)
    assert expected == greedy(source / "model.onnx", prompts)
    assert generated("optimum", OPTIMUM, lowered, **asked) == expected
