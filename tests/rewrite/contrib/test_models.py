"""Whole models of onnxruntime's tools, written with operators of ONNX."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.model_io.model import read, serialize
from onnx_kvtool.rewrite.report import LowerReport
from onnx_kvtool.runtime.onnxruntime import Session
from tests.grids import part
from tests.rewrite.test_converted_encoders import NOT_MADE, TOOLS
from tests.rewrite.test_encoders import ENCODERS, NAMES
from tests.runtime.kernels.contrib.node import needs_onnxruntime

MODELS = Path(__file__).resolve().parents[3] / "fixtures" / "models"
GENAI = MODELS / "genai" / "genai_llama_fp32_cpu.onnx"


def standard(path: Path, opset: int) -> tuple[ir.Model, LowerReport]:
    """Return a model at an opset, of which no operator is onnxruntime's."""
    model, report = kv.lower(path, opset=opset, contrib="standard")
    assert report.verification.status == "equal", report.verification.detail
    domains = {node.domain for node in model.graph.all_nodes()}
    assert domains == {""}
    assert not [name for name in model.opset_imports if name.startswith("com.")]
    known = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}
    assert {node.op_type for node in model.graph.all_nodes()} <= known
    onnx.checker.check_model(ir.to_proto(model))
    return model, report


@pytest.mark.long
@needs_onnxruntime
@part(3)
@pytest.mark.parametrize("opset", [22, 18, 13])
@pytest.mark.parametrize("lengths", [(5,), (5, 3, 4)], ids=["one sequence", "three, ragged"])
def test_a_decoder_of_the_genai_builder(lengths: tuple[int, ...], opset: int) -> None:
    """A prompt with padding behind, and eight steps, each model feeding back its own caches."""
    model, report = standard(GENAI, opset)
    assert {done.rule for done in report.lowered if done.location.op.startswith("com.")} == {
        "group_query_attention",
        "skip_simplified_layer_normalization",
    }
    sessions = Session(serialize(read(GENAI)), ""), Session(serialize(model), "")
    rng = np.random.default_rng(3)
    batch, longest = len(lengths), max(lengths)
    pasts = [i for i in model.graph.inputs if i.name.startswith("past")]
    size = kv.load(str(GENAI)).graph.initializers["cos_cache"].shape[1] * 2  # type: ignore[index]
    caches = [{i.name: np.zeros((batch, 2, 0, size), np.float32) for i in pasts} for _ in sessions]
    mask = (np.arange(longest) < np.array(lengths)[:, None]).astype(np.int64)
    ids = rng.integers(0, 97, (batch, longest))
    for step in range(9):
        found = [
            session.run({"input_ids": ids, "attention_mask": mask, **cache})
            for session, cache in zip(sessions, caches, strict=True)
        ]
        live = mask.astype(bool) if step == 0 else np.ones((batch, 1), bool)
        one, other = (run["logits"] for run in found)
        assert one.shape == other.shape
        np.testing.assert_allclose(other[live], one[live], 1e-4, 1e-5)
        counts = np.array(lengths) + step
        for cache, run in zip(caches, found, strict=True):
            cache.update({i.name: run[i.name.replace("past_key_values", "present")] for i in pasts})
        for i in pasts:
            for b, count in enumerate(counts):
                rows = [cache[i.name][b, :, :count] for cache in caches]
                np.testing.assert_allclose(rows[1], rows[0], 1e-4, 1e-5)
        ids = rng.integers(0, 97, (batch, 1))
        total = longest + step + 1
        mask = (np.arange(total) < (counts + 1)[:, None]).astype(np.int64)


@pytest.mark.long
@needs_onnxruntime
def test_a_decoder_of_onnxruntimes_optimiser() -> None:
    path = MODELS / "optimized" / "llama_static__ts_op17__ortext.onnx"
    _, report = standard(path, 17)
    assert {done.rule for done in report.lowered} == {
        "fused_mat_mul",
        "quick_gelu",
        "simplified_layer_normalization",
    }


@pytest.mark.exhaustive
@needs_onnxruntime
@pytest.mark.parametrize("tool", ["extended", "int4"])
@pytest.mark.parametrize("name", NAMES)
def test_an_encoder_after_the_tools(name: str, tool: str, tmp_path: Path) -> None:
    if (name, tool) in NOT_MADE:
        return
    path = tmp_path / "converted.onnx"
    TOOLS[tool](ENCODERS / f"{name}.onnx", path)
    _, report = standard(path, 17)
    lowered = [d for d in report.lowered if d.location.op.startswith("com.microsoft::")]
    # A picture's network has no MatMul to quantise, and imports the domain all the same.
    assert bool(lowered) == ("com.microsoft" in {n.domain for n in read(path).graph.all_nodes()})


FUSED = {
    "bert": (ENCODERS / "bert.onnx", "bert"),
    "vit": (ENCODERS / "vit.onnx", "vit"),
    "gpt_neox": (MODELS.parent / "growing" / "gpt_neox__optimum.onnx", "gpt_neox"),
    "llama": (MODELS.parent / "growing" / "llama__optimum.onnx", "gpt2"),
    "gpt2": (MODELS / "concat" / "gpt2_dynamic__ts_op17.onnx", "gpt2"),
}


@pytest.mark.exhaustive
@needs_onnxruntime
@pytest.mark.parametrize("is_half", [False, True], ids=["float32", "float16"])
@pytest.mark.parametrize("name", FUSED)
def test_a_model_after_the_fusions_of_the_transformers_tool(
    name: str, is_half: bool, tmp_path: Path
) -> None:
    from onnxruntime.transformers.optimizer import optimize_model

    source, kind = FUSED[name]
    optimised = optimize_model(str(source), model_type=kind, opt_level=0)
    if is_half:
        optimised.convert_float_to_float16(keep_io_types=True)
    path = tmp_path / "optimised.onnx"
    optimised.save_model_to_file(str(path))
    _, report = standard(path, 17)
    assert [done for done in report.lowered if done.location.op.startswith("com.microsoft::")]
