"""Runtimes beyond onnxruntime and OpenVINO compute what `--target` wrote for them.

Run it with `pytest -m compat`; they are installed from the indexes of Python and npm on first use.
A runtime that cannot be installed, or dies, fails: nothing is left out.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from onnx_kvtool.targets.target import find_target
from tests.compat.decoders import STEPS, allowed, comparing
from tests.compat.environments import RuntimeFailed, run_in
from tests.compat.fixtures import difference, limit_of, lowered_file
from tests.compat.forms import BATCHES, forms

pytestmark = pytest.mark.compat

_FAST = ("tract", "onnxruntime-node", "opencv")

CASES = [
    *(
        (runtime, f"{name}, Native")
        for runtime in _FAST
        for name in ("llama", "llama fp16", "gemma")
    ),
    *(
        (runtime, "qwen2, Raised from optimum")
        for runtime in ("tract", "onnxruntime-node", "opencv")
    ),
    ("tinygrad", "llama, Raised from optimum"),
]
"""tinygrad compiles a kernel for every node, which takes half a minute for a decoder."""


@pytest.mark.parametrize(("runtime", "decoder"), CASES)
def test_a_decoder_lowered_for_a_runtime_answers_as_its_source(
    runtime: str, decoder: str, tmp_path: Path
) -> None:
    """In a prompt and the step after it, of one sequence and of two."""
    release, count = find_target(runtime).release, 0
    for form in forms(decoder, f"{runtime}@{release.version}", tmp_path):
        with comparing(runtime, release.version, form.path) as apart:
            for step, batch, fed in form.runs:
                assert apart(fed) <= allowed(decoder), (step, batch)
                count += 1
    assert count == len(STEPS) * len(BATCHES)


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
