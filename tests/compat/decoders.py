"""Decoders lowered for a release, and the prompt and the step that are asked of them.

Each has fixed caches: some were written so, others raised from growing ones or from a model of
onnxruntime-genai. A conversation is fed to the decoder as it is, in the onnxruntime that is
installed beside kvtool; what it computed, the lowered model has to compute from the same inputs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx

import onnx_kvtool as kv
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.runtime.onnxruntime import Session
from tests.compat.environments import running
from tests.compat.makers import Maker, copied, small, tool
from tests.growing_models import Arrays, Host, conversation
from tests.test_growing_models import talk_with

__all__ = [
    "DECODERS",
    "GROUPS",
    "STEPS",
    "Fed",
    "allowed",
    "comparing",
    "fitting",
    "made",
    "source",
    "steps",
]

_FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


@dataclass(frozen=True)
class Decoder:
    """A decoder with fixed caches.

    Attributes:
        make: What writes it.
        raised: Whether its caches grow, and `kvtool raise` fixes them.
        allowed: The largest difference that its element type justifies.
        growing: What `tests.test_growing_models` calls it, if it is one of them.
    """

    make: Maker
    raised: bool = True
    allowed: float = 5e-5
    growing: str | None = None


def _native(name: str, allowed: float = 5e-5) -> Decoder:
    return Decoder(copied(_FIXTURES / f"models/native/{name}.onnx"), False, allowed)


def _growing(name: str, allowed: float = 5e-5) -> Decoder:
    return Decoder(copied(_FIXTURES / f"growing/{name}.onnx"), True, allowed, name)


_HALF = 1e-2
_COARSE = 1e-2  # `accuracy_level`, or a default of onnxruntime, lets products be taken in 8 bits
_GENAI = _FIXTURES / "models/genai/genai_llama_fp32_cpu.onnx"

GROUPS: dict[str, dict[str, Decoder]] = {
    "Native": {
        "llama": _native("llama_static"),
        "llama fp16": _native("llama_static_fp16", _HALF),
        "mistral": _native("mistral_sliding_bias_static"),
        "gemma": _native("gemma4_hybrid_static"),
        "llama, MatMulNBits": Decoder(small("llama-1b-int4"), False, _COARSE),
        "qwen, int4": Decoder(small("qwen-0.5b-dq-int4"), False, _COARSE),
    },
    "Raised from torch's dynamo exporter": {
        "llama 23": _growing("llama__dynamo_op23"),
        "llama fp16": _growing("llama_eager_fp16__dynamo_op18", _HALF),
        "qwen2": _growing("qwen2__dynamo_op18"),
        "gemma2": _growing("gemma2_eager_dynamo18"),
        "gpt2": _growing("gpt2__dynamo_op23"),
        "mixtral": _growing("mixtral__dynamo_op18"),
        "olmo2": _growing("olmo2__dynamo_op20"),
        "bart": _growing("bart__dynamo_op18"),
    },
    "Raised from torch's TorchScript exporter": {
        "mistral": _growing("mistral_swmask_ts17"),
        "gpt_neox": _growing("gpt_neox_eager__ts_op14"),
        "gptj": _growing("gptj_eager__ts_op17"),
        "qwen2 fp16": _growing("qwen2_eager_fp16__ts_op17", _HALF),
        "phi3, onnxslim": _growing("phi3__ts_op17__onnxslim"),
        "stablelm, onnxruntime": _growing("stablelm__ts_op17__ort"),
    },
    "Raised from optimum": {
        "llama": _growing("llama__optimum"),
        "qwen2": _growing("qwen2__optimum_op18"),
        "qwen3": _growing("qwen3__optimum_op18"),
        "gemma3": _growing("gemma3__optimum_op18"),
        "gpt2": _growing("gpt2__optimum_op18"),
        "bloom": _growing("bloom__optimum"),
        "falcon": _growing("falcon__optimum_op18"),
        "t5": _growing("t5_decoder_merged__optimum"),
    },
    "Raised from onnxruntime-genai": {
        "llama": Decoder(copied(_GENAI)),
        "llama fp16": Decoder(tool(_GENAI, "float16"), allowed=_HALF),
        "llama int4": Decoder(tool(_GENAI, "int4")),
    },
}
"""The tables of the page, and what stands in their columns."""

DECODERS = {
    f"{name}, {group}": decoder
    for group, members in GROUPS.items()
    for name, decoder in members.items()
}
"""All of them."""

STEPS = ("prompt", "step")

_CHUNKS = (2, 4, 1)
"""Tokens that were there before, those of the prompt, and one more."""

_CAPACITY = 16

_ALONE_FLOAT32 = "opencv"
"""The runtime that gives float32 in the place of float16."""


def allowed(decoder: str) -> float:
    """Return the largest difference that the element type of a decoder justifies."""
    return DECODERS[decoder].allowed


Fed = tuple[Arrays, Arrays]
"""Inputs of a step, and what the source gives."""


@cache
def source(decoder: str) -> bytes:
    """Return a decoder with fixed caches, at opset 24 if it was raised."""
    return made(decoder)


def made(decoder: str, dims: Mapping[str, int] | None = None) -> bytes:
    """Return a decoder with fixed caches, and with `dims` of nothing but these sizes if may be.

    The length of a mask is left to `--static`, which makes it the capacity. Where it refuses, the
    rest is left to `lower --dim`.
    """
    made = DECODERS[decoder]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "model.onnx")
        made.make(path)
        if not made.raised:
            return path.read_bytes()
        if dims is None:
            return serialize(kv.raise_(path, capacity=_CAPACITY, verify=False)[0])
        own = {
            value.name: value.type.tensor_type.shape.dim for value in onnx.load(path).graph.input
        }
        names = {dim.dim_param for dims in own.values() for dim in dims}
        names -= {dim.dim_param for dim in own.get("attention_mask", [])[-1:]}
        given = {name: size for name, size in dims.items() if name in names}
        try:
            model, _ = kv.raise_(path, capacity=_CAPACITY, dims=given, static=True, verify=False)
        except Refused:
            model, _ = kv.raise_(path, capacity=_CAPACITY, attention="full", verify=False)
        return serialize(model)


@cache
def steps(decoder: str, batch: int) -> list[Fed]:
    """Return inputs and outputs of a prompt and of the step after it, by name.

    Among the inputs is the number of rows in use as `past_length`, whether it is one or not.
    """
    session = Session(source(decoder), "")
    fed: list[Fed] = []

    def run(feeds: Arrays) -> Mapping[str, np.ndarray]:
        before = np.array([sum(_CHUNKS[: len(fed)])])
        fed.append(({**feeds, "past_length": before}, dict(session.run(feeds))))
        return fed[-1][1]

    known, length = DECODERS[decoder].growing, sum(_CHUNKS)
    talk = conversation(batch, length) if known is None else talk_with(known, batch, length)
    host = Host(onnx.load_from_string(source(decoder)), run, {"kv_cache_dim": 16})
    host.answer(talk, _CHUNKS)
    return fed[-2:]


@contextmanager
def comparing(runtime: str, version: str | None, path: Path) -> Iterator[Callable[[Fed], float]]:
    """Give what runs a lowered decoder, which a release has loaded once.

    It returns the largest difference from the source, and raises

    - RuntimeFailed, if the release does not load or run it;
    - AssertionError, if an output has another shape or element type than that of the source, or
      holds a number that is not finite where that of the source is.
    """
    graph = onnx.load(path).graph
    outputs = [value.name for value in graph.output]
    with running(runtime, version, path) as run:

        def apart(fed: Fed) -> float:
            feeds, expected = fed
            arrays = run({value.name: fitting(feeds[value.name], value) for value in graph.input})
            found = dict(zip(outputs, arrays, strict=True))
            assert found.keys() == expected.keys()
            return max(_largest(found[name], expected[name], runtime, name) for name in expected)

        yield apart


def fitting(array: np.ndarray, value: onnx.ValueInfoProto) -> np.ndarray:
    """Return a mask with as many columns as an input has; those of rows not in use are 0."""
    last = value.type.tensor_type.shape.dim[-1:]
    if value.name != "attention_mask" or not last[0].dim_value:
        return array
    return np.pad(array, ((0, 0), (0, last[0].dim_value - array.shape[1])))


def _largest(actual: np.ndarray, expected: np.ndarray, runtime: str, name: str) -> float:
    if runtime == _ALONE_FLOAT32 and not expected.size:  # whose shape it does not tell
        assert not actual.size, name
        return 0.0
    if runtime == _ALONE_FLOAT32 and expected.dtype == np.float16:
        actual = actual.astype(np.float16)
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype), name
    same = actual == expected
    pair = actual[~same].astype(np.float64), expected[~same].astype(np.float64)
    assert all(np.isfinite(array).all() for array in pair), name
    return float(np.max(np.abs(pair[0] - pair[1]), initial=0.0))
