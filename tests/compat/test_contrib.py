"""Models with onnxruntime's own operators, written for releases that know none, or few of them.

Each is asked for a prompt and two steps, with one sequence and with two, or runs once where it has
no caches; what it answers has to be what onnxruntime answers with the source.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.model_io.model import read, serialize
from onnx_kvtool.runtime.onnxruntime import Session
from onnx_kvtool.symbolic.dimensions import dims_of
from onnx_kvtool.verification.inputs.cases import cases_of
from onnx_kvtool.verification.inputs.drawing import draw
from onnx_kvtool.verification.inputs.plan import plan
from tests.compat.environments import run_in
from tests.compat.makers import Maker, copied, fused, tool
from tests.growing_models import Arrays, Conversation, Host
from tests.hybrid_decoder import hybrid_decoder

pytestmark = pytest.mark.compat

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
GENAI = FIXTURES / "models" / "genai" / "genai_llama_fp32_cpu.onnx"
GROWING = FIXTURES / "growing"


def hybrid(dtype: Any) -> Maker:
    """Return what writes a decoder of which one layer keeps a state instead of rows."""

    def make(path: Path) -> None:
        path.write_bytes(hybrid_decoder(dtype).SerializeToString())

    return make


DECODERS: dict[str, Maker] = {
    "genai": copied(GENAI),
    "genai float16": tool(GENAI, "float16"),
    "genai int4": tool(GENAI, "int4"),
    "hybrid": hybrid(np.float32),
    "hybrid float16": hybrid(np.float16),
    "gpt2 fused": fused(GROWING / "gpt2__optimum_op18.onnx", "gpt2"),
    "gpt_neox fused": fused(GROWING / "gpt_neox__optimum.onnx", "gpt_neox"),
    "llama fused": fused(GROWING / "llama__optimum.onnx", "gpt2"),
    "phi3 fused": fused(GROWING / "phi3__optimum_op18.onnx", "gpt2"),
    "qwen3 extended": tool(GROWING / "qwen3__optimum_op18.onnx", "extended"),
    "opt extended": tool(GROWING / "opt__optimum_op18.onnx", "extended"),
}
OTHERS: dict[str, Maker] = {
    "static llama of the optimiser": copied(
        FIXTURES / "models" / "optimized" / "llama_static__ts_op17__ortext.onnx"
    ),
    "bert fused": fused(FIXTURES / "encoders" / "bert.onnx", "bert"),
    "bert fused, float16": fused(FIXTURES / "encoders" / "bert.onnx", "bert", is_half=True),
    "vit fused": fused(FIXTURES / "encoders" / "vit.onnx", "vit"),
    "bert int8": tool(FIXTURES / "encoders" / "bert.onnx", "int8"),
    "vit extended": tool(FIXTURES / "encoders" / "vit.onnx", "extended"),
    "swin int4": tool(FIXTURES / "encoders" / "swin.onnx", "int4"),
}

RELEASES: dict[str, tuple[str, str | None]] = {
    "onnxruntime": ("onnxruntime", "1.17.3"),
    "openvino": ("openvino", None),
}
"""The releases, of which onnxruntime is asked for standard operators only."""

CHUNKS = (5, 1, 1)
SIZES = {"kv_cache_dim": 16}
"""Of the caches of the model of genai."""
PICTURE = {"num_channels": 3, "height": 224, "width": 224}
"""The size that each encoder of pictures takes."""


def lowered(source: Path, release: tuple[str, str | None], path: Path) -> ir.Model:
    """Write a model for a release, for onnxruntime with operators of ONNX alone."""
    target = "@".join(part for part in release if part)
    contrib: Literal["standard"] | None = "standard" if release[0] == "onnxruntime" else None
    model, _ = kv.lower(source, target=target, contrib=contrib, verify=False)
    if contrib is not None:
        assert {node.domain for node in model.graph.all_nodes()} == {""}
    path.write_bytes(serialize(model))
    return model


def limit_of(name: str) -> float:
    """Return how far the element type lets numbers of the order of 1 go apart.

    Weights of 8 bits are multiplied with an operand that is rounded to as many, by other ways.
    """
    return 3e-2 if "float16" in name or "int8" in name else 1e-4


@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)
@pytest.mark.parametrize("name", DECODERS)
def test_a_release_answers_as_onnxruntime_does(
    name: str, release: tuple[str, str | None], tmp_path: Path
) -> None:
    source, result = tmp_path / "source.onnx", tmp_path / "result.onnx"
    DECODERS[name](source)
    model = lowered(source, release, result)
    session, names = Session(source.read_bytes(), ""), [v.name or "" for v in model.graph.outputs]
    expected = Host(source, lambda feeds: dict(session.run(feeds)), SIZES)

    def run(feeds: Arrays) -> Arrays:
        return dict(zip(names, run_in(*release, result, feeds), strict=True))

    found = Host(result, run, SIZES)
    for batch in (1, 2):
        ids = np.random.default_rng(batch).integers(1, 60, (batch, sum(CHUNKS)))
        talk = Conversation(ids, np.ones_like(ids), {})
        one, other = (host.answer(talk, CHUNKS)[0] for host in (expected, found))
        assert np.abs(one.astype(float) - other.astype(float)).max() <= limit_of(name)


@pytest.mark.parametrize("release", RELEASES.values(), ids=RELEASES)
@pytest.mark.parametrize("name", OTHERS)
def test_a_release_computes_what_onnxruntime_does(
    name: str, release: tuple[str, str | None], tmp_path: Path
) -> None:
    source, result = tmp_path / "source.onnx", tmp_path / "result.onnx"
    OTHERS[name](source)
    model = lowered(source, release, result)
    session, names = Session(source.read_bytes(), ""), [v.name or "" for v in model.graph.outputs]
    known = plan(read(source))
    for case in cases_of(2):
        feeds = draw(known, case, 0, PICTURE if known.inputs[0].name == "pixel_values" else None)
        expected = session.run(feeds)
        for key, got in zip(names, run_in(*release, result, feeds), strict=True):
            away = np.abs(got.astype(float) - expected[key].astype(float))
            assert away.max(initial=0) <= limit_of(name), key


FIXED = {name: maker for name, maker in {**DECODERS, **OTHERS}.items() if "extended" not in name}
"""What is asked of runtimes that take no symbolic dimensions, at the sizes of each of two cases."""


OF_ROWS = (cases_of(2)[1], replace(cases_of(2)[1], batch=2, past=6))
"""Steps behind rows in use: `--dim` gives no dimension the size 0, and GroupQueryAttention takes
chunks of one sequence only."""


@pytest.mark.parametrize("index", range(2))
@pytest.mark.parametrize("name", FIXED)
def test_tract_computes_what_onnxruntime_does(name: str, index: int, tmp_path: Path) -> None:
    source, result = tmp_path / "source.onnx", tmp_path / "result.onnx"
    FIXED[name](source)
    model = read(source)
    known, case = plan(model), OF_ROWS[index]
    picture = PICTURE if known.inputs[0].name == "pixel_values" else SIZES
    feeds = draw(known, case, 0, picture)
    dims = {
        dim: size
        for value in model.graph.inputs
        for dim, size in zip(dims_of(value) or (), feeds[value.name or ""].shape, strict=True)
        if isinstance(dim, str) and dim.isidentifier()
    }
    model, _ = kv.lower(source, target="tract", dims=dims, verify=False)
    result.write_bytes(serialize(model))
    expected = Session(source.read_bytes(), "").run(feeds)
    found = run_in("tract", None, result, feeds)
    for value, got in zip(model.graph.outputs, found, strict=True):
        away = np.abs(got.astype(float) - expected[value.name or ""].astype(float))
        assert away.max(initial=0) <= limit_of(name), value.name
