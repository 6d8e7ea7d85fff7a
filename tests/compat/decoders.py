"""Decoders lowered for a release, and the prompt and the step that are asked of them.

Each has fixed caches: some were written so, others raised from growing ones or from a model of
onnxruntime-genai. A conversation is fed to the decoder as it is, in the onnxruntime that is
installed beside kvtool; what it computed, the lowered model has to compute from the same inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np
import onnx

import onnx_kvtool as kv
from onnx_kvtool.core.model import serialize
from onnx_kvtool.runtime.onnxruntime import Session
from tests.compat.environments import run_in
from tests.growing_models import Arrays, Host, conversation

__all__ = ["DECODERS", "STEPS", "allowed", "apart", "lowered", "steps"]

_FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"

DECODERS = {
    "llama, native": "models/native/llama_static.onnx",
    "llama fp16, native": "models/native/llama_static_fp16.onnx",
    "mistral, native": "models/native/mistral_sliding_bias_static.onnx",
    "gemma, native": "models/native/gemma4_hybrid_static.onnx",
    "llama, raised": "growing/llama__optimum.onnx",
    "qwen3, raised": "growing/qwen3__optimum_op18.onnx",
    "llama fp16, raised": "growing/llama_eager_fp16__dynamo_op18.onnx",
    "llama, genai": "models/genai/genai_llama_fp32_cpu.onnx",
}
"""Decoder, and the file that it is made of."""

STEPS = ("prompt", "step")

_CHUNKS = (2, 4, 1)
"""Tokens that were there before, those of the prompt, and one more."""

_CAPACITY = 16

_ALONE_FLOAT32 = "opencv"
"""The runtime that gives float32 in the place of float16."""


def allowed(decoder: str) -> float:
    """Return the largest difference that the element type of a decoder justifies."""
    return 1e-2 if "fp16" in decoder else 5e-5


@cache
def source(decoder: str) -> bytes:
    """Return a decoder with fixed caches, at opset 24."""
    path = _FIXTURES / DECODERS[decoder]
    if decoder.endswith("native"):
        return path.read_bytes()
    model, _ = kv.raise_(path, capacity=_CAPACITY, verify=False)
    return serialize(model)


@cache
def steps(decoder: str, batch: int) -> list[tuple[Arrays, Arrays]]:
    """Return inputs and outputs of a prompt and of the step after it, by name."""
    session = Session(source(decoder), "")
    fed: list[tuple[Arrays, Arrays]] = []

    def run(feeds: Arrays) -> Mapping[str, np.ndarray]:
        fed.append((feeds, dict(session.run(feeds))))
        return fed[-1][1]

    host = Host(onnx.load_from_string(source(decoder)), run, {"kv_cache_dim": 16})
    host.answer(conversation(batch, sum(_CHUNKS)), _CHUNKS)
    return fed[-2:]


def lowered(decoder: str, target: str, feeds: Arrays | None, path: Path) -> None:
    """Write a decoder for a release.

    Args:
        decoder: Its name.
        target: The release.
        feeds: Inputs whose sizes the model shall have; None where any sizes shall do.
        path: Of the file.

    Raises:
        Refused: If the release cannot be given the model.
    """
    model = onnx.load_from_string(source(decoder))
    dims = {} if feeds is None else _sizes(model, feeds)
    result, _ = kv.lower(model, target=target, dims=dims, verify=False)
    path.write_bytes(serialize(result))


def _sizes(model: onnx.ModelProto, feeds: Arrays) -> dict[str, int]:
    """Return the sizes of the names that dimensions of inputs have; a sum ends in new tokens."""
    found = {
        dim.dim_param: size
        for value in model.graph.input
        for dim, size in zip(value.type.tensor_type.shape.dim, feeds[value.name].shape, strict=True)
        if dim.dim_param
    }
    sizes = {name: size for name, size in found.items() if " + " not in name}
    for name in found.keys() - sizes.keys():
        before, new = name.split(" + ")
        sizes.setdefault(new, feeds["input_ids"].shape[1])
        sizes.setdefault(before, found[name] - sizes[new])
    return sizes


def apart(
    decoder: str, runtime: str, version: str | None, path: Path, fed: tuple[Arrays, Arrays]
) -> float:
    """Run a lowered decoder in a release; return its largest difference from the source.

    Raises:
        RuntimeFailed: If the release does not load or run it.
        AssertionError: If an output has another shape or element type than that of the source, or
            holds a number that is not finite where that of the source is.
    """
    feeds, expected = fed
    graph = onnx.load(path).graph
    taken = {value.name: feeds[value.name] for value in graph.input}
    arrays = run_in(runtime, version, path, taken)
    found = {value.name: array for value, array in zip(graph.output, arrays, strict=True)}
    assert found.keys() == expected.keys()
    return max(_largest(found[name], expected[name], runtime, name) for name in expected)


def _largest(actual: np.ndarray, expected: np.ndarray, runtime: str, name: str) -> float:
    if runtime == _ALONE_FLOAT32 and expected.dtype == np.float16:
        actual = actual.astype(np.float16)
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype), name
    same = actual == expected
    pair = actual[~same].astype(np.float64), expected[~same].astype(np.float64)
    assert all(np.isfinite(array).all() for array in pair), name
    return float(np.max(np.abs(pair[0] - pair[1]), initial=0.0))
