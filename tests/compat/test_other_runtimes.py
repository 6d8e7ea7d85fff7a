"""Runtimes beyond onnxruntime and OpenVINO compute what `--target` wrote for them.

Run it with `pytest -m compat`; they are installed from the indexes of Python and npm on first use.
A runtime that cannot be installed, or dies, fails: nothing is left out.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_kvtool.targets.target import find_target
from tests.compat.decoders import STEPS, allowed, comparing, lowered, steps
from tests.compat.environments import RuntimeFailed, run_in
from tests.compat.fixtures import difference, limit_of, lowered_file

pytestmark = pytest.mark.compat

CASES = [
    ("tract", "llama, Native"),
    ("tract", "llama fp16, Native"),
    ("onnxruntime-node", "llama, Native"),
    ("onnxruntime-node", "llama fp16, Native"),
    ("opencv", "llama, Native"),
    ("opencv", "gemma, Native"),
]
"""tinygrad compiles a kernel for every node, which takes half a minute for a decoder."""


@pytest.mark.parametrize(("runtime", "decoder"), CASES)
def test_a_decoder_lowered_for_a_runtime_answers_as_its_source(
    runtime: str, decoder: str, tmp_path: Path
) -> None:
    release = find_target(runtime).release
    path = tmp_path / "model.onnx"
    lowered(decoder, runtime, None, path)
    with comparing(runtime, release.version, path) as apart:
        for _, fed in zip(STEPS, steps(decoder, 2), strict=True):
            assert apart(fed) <= allowed(decoder)


@pytest.mark.parametrize("runtime", ["tract", "onnxruntime-node", "opencv", "tinygrad"])
def test_a_mask_lowered_for_a_runtime_is_the_recorded_one(runtime: str, tmp_path: Path) -> None:
    fixture, release = "mobius_block_bias_int64_2d", find_target(runtime).release
    model = lowered_file(fixture, runtime, tmp_path)
    assert difference(fixture, model, runtime, release.version) <= limit_of(fixture)


@pytest.mark.parametrize("runtime", ["tract", "onnxruntime-node", "opencv", "tinygrad"])
def test_a_model_that_a_runtime_cannot_load_is_a_failure(runtime: str, tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(RuntimeFailed):
        run_in(runtime, find_target(runtime).release.version, tmp_path / "broken.onnx", {})
