"""Real decoders, lowered whole: equal to the source, and every cache write exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.core.walk import nodes
from onnx_kvtool.model_io.model import read, serialize
from onnx_kvtool.rewrite.engine.stamp import ir_version_of
from onnx_kvtool.runtime.onnxruntime import Session
from tests.cache_models import tensor_scatter_oracle
from tests.grids import part, thinned

_NATIVE = Path(__file__).resolve().parents[2] / "fixtures" / "models" / "native"
_DECODERS = [
    "llama_static",
    "llama_static_fp16",
    "mistral_sliding_bias_static",
    "gemma4_hybrid_static",
    "mobius_block_bias_int64_2d",
]


def _recorded(name: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the recorded inputs and outputs of a model."""
    with np.load(_NATIVE / f"{name}.npz") as arrays:
        found = {key: arrays[key] for key in arrays.files}
    inputs = {key[3:]: array for key, array in found.items() if key.startswith("in:")}
    outputs = {key[4:]: array for key, array in found.items() if key.startswith("out:")}
    return inputs, outputs


def _caches(model: ir.Model) -> dict[str, str]:
    """Return present -> past of every TensorScatter between graph inputs and outputs."""
    return {
        node.outputs[0].name or "": node.inputs[0].name or ""
        for node in model.graph
        if node.op_type == "TensorScatter"
        and node.inputs[0] is not None
        and node.inputs[0].is_graph_input()
    }


def _run(model: ir.Model, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return dict(Session(serialize(model), "").run(feeds))


def _difference(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.max(np.abs(a.astype(np.float64) - b.astype(np.float64)), initial=0.0))


@pytest.mark.long
@pytest.mark.needs_onnxruntime("1.29")
@pytest.mark.parametrize(
    ("name", "opset"),
    thinned(
        [
            pytest.param(name, opset, id=f"{name}-{opset}")
            for number, name in enumerate(_DECODERS)
            for opset in range(9 + number % 2, 24, 2)
        ],
        9,
    ),
)
def test_lowered_decoder_equals_its_source(name: str, opset: int) -> None:
    """Valid at the opset and its IR version; float32 within 1e-5, unwritten rows bit for bit."""
    source = read(_NATIVE / f"{name}.onnx")
    caches = _caches(source)
    inputs, recorded = _recorded(name)
    result, report = lower(source, opset=opset, verify=True)
    assert report.verification.status == "equal"  # at other batch and sequence sizes, step by step
    assert (report.source_opset, report.target_opset) == (24, opset)
    assert result.opset_imports[""] == opset
    assert result.ir_version == min(source.ir_version, ir_version_of(opset))
    onnx.checker.check_model(ir.to_proto(result), full_check=True)
    actual = _run(result, inputs)
    limit = 5e-3 if name.endswith("fp16") else 1e-5
    assert list(actual) == list(recorded)
    for output, expected in recorded.items():
        assert _difference(actual[output], expected) <= limit, output
    starts, length = inputs["write_indices"], inputs[_token_input(inputs)].shape[1]
    for present, past in caches.items():
        for batch, start in enumerate(starts):
            kept = np.delete(actual[present][batch], range(start, start + length), axis=0)
            before = np.delete(inputs[past][batch], range(start, start + length), axis=0)
            assert kept.tobytes() == before.tobytes(), present


def _token_input(inputs: dict[str, np.ndarray]) -> str:
    return "input_ids" if "input_ids" in inputs else "block_sequence_ids"


@part(2)
@pytest.mark.long
@pytest.mark.needs_onnxruntime("1.29")
@pytest.mark.parametrize("name", _DECODERS)
def test_replacing_tensor_scatter_alone_changes_no_bit(name: str) -> None:
    """`--only TensorScatter` keeps the opset, and every other operator with it."""
    source = read(_NATIVE / f"{name}.onnx")
    inputs, _ = _recorded(name)
    result, report = lower(source, only=["TensorScatter"], verify=False)
    assert report.target_opset == 24
    assert {done.rule for done in report.lowered} == {"tensor_scatter"}
    assert not any(node.op_type == "TensorScatter" for _, _, node in nodes(result))
    expected, actual = _run(source, inputs), _run(result, inputs)
    for output, array in expected.items():
        assert actual[output].tobytes() == array.tobytes(), output


@pytest.mark.long
@pytest.mark.parametrize("opset", [11, 13, 18, 23])
def test_what_is_written_is_what_was_computed(opset: int) -> None:
    """Rounding may differ where a new operator became several; the write itself may not.

    Each cache is compared with an oracle that writes the very update that the lowered model
    computed.
    """
    source = read(_NATIVE / "llama_static.onnx")
    inputs, _ = _recorded("llama_static")
    result, _ = lower(source, opset=opset, verify=False)
    scatters = [node for node in result.graph if node.op_type == "ScatterND"]
    assert len(scatters) == 4
    for scatter in scatters:
        update = scatter.inputs[2]
        assert update is not None
        update.shape = ir.Shape([None, None, None])
        result.graph.outputs.append(update)
    actual = _run(result, inputs)
    for scatter in scatters:
        past, _, update = scatter.inputs
        assert past is not None and update is not None
        expected = tensor_scatter_oracle(
            inputs[past.name or ""],
            actual[update.name or ""],
            inputs["write_indices"],
            1,
            "linear",
        )
        assert actual[scatter.outputs[0].name or ""].tobytes() == expected.tobytes()


@pytest.mark.long
@part(4)
@pytest.mark.needs_onnxruntime("1.29")
@pytest.mark.parametrize("sizes", [(1, 1), (1, 5), (3, 1), (3, 4)], ids=str)
@pytest.mark.parametrize("opset", [13, 18, 23])
def test_other_batch_and_sequence_sizes(opset: int, sizes: tuple[int, int]) -> None:
    """The symbolic sizes stay free."""
    batch, length = sizes
    source = read(_NATIVE / "llama_static.onnx")
    rng = np.random.default_rng(17)
    starts = np.arange(batch, dtype=np.int64) * 3
    feeds: dict[str, Any] = {
        "input_ids": rng.integers(0, 256, (batch, length)),
        "position_ids": starts[:, None] + np.arange(length),
        "write_indices": starts,
        "nonpad_kv_seqlen": starts + length,
    }
    for value in source.graph.inputs:
        if value.name and "cache" in value.name:
            feeds[value.name] = rng.standard_normal((batch, 32, 32)).astype(np.float32)
    result, _ = lower(source, opset=opset, verify=False)
    expected, actual = _run(source, feeds), _run(result, feeds)
    for output, array in expected.items():
        assert _difference(actual[output], array) <= 1e-5, output


@pytest.mark.long
def test_the_source_is_not_changed() -> None:
    source = read(_NATIVE / "llama_static.onnx")
    before = serialize(source)
    lower(source, opset=13, verify=False)
    assert serialize(source) == before


@pytest.mark.long
def test_lowering_is_deterministic() -> None:
    path = _NATIVE / "gemma4_hybrid_static.onnx"
    first, second = (serialize(lower(path, opset=18, verify=False)[0]) for _ in range(2))
    assert first == second
