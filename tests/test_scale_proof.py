"""Decoders of the size that people deploy: proven by default, in little memory, faults found."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from benchmarks.real_models import CONFIGURATIONS, DATA, write
from onnx_kvtool.core.machine import Budget
from onnx_kvtool.model_io.model import read
from onnx_kvtool.rewrite.verify import Verifier
from onnx_kvtool.verification.report import Settings
from tests.test_scale import _MEASURE

pytestmark = pytest.mark.slow

MODELS = (
    "qwen-0.5b-fp32",
    "qwen-0.5b-dq-int4",
    "qwen-0.5b-qdq-int8",
    "llama-1b-fp16",
    "llama-1b-bf16",
    "llama-1b-int4",
    "llama-7b-fp16",
    "long-131072",
    "16-layers-int8-caches",
    "16-layers-fp8-caches",
)

_OPSETS = {"16-layers-fp8-caches": 21}
"""The target of models that opset 18 cannot express: it lacks float8."""


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return what writes a model of true size, its weights a hole in a file, once."""
    root = tmp_path_factory.mktemp("real")
    made: dict[str, Path] = {}

    def path(name: str) -> Path:
        if name not in made:
            made[name] = write(CONFIGURATIONS[name], root / name, sparse=True)
        return made[name]

    return path


@pytest.mark.parametrize("name", MODELS)
def test_a_lowered_decoder_of_true_size_is_proven(
    name: str, paths: Callable[[str], Path], tmp_path: Path
) -> None:
    path = paths(name)
    if name == "llama-7b-fp16":
        assert (path.parent / DATA).stat().st_size > 12 << 30
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, str(path), "--opset", str(_OPSETS.get(name, 18))],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=True,
    )
    report = kv_json(done.stdout)["verification"]
    assert report["status"] == "equal", report["detail"]
    assert report["shrunken"]
    assert "capacity" not in {entry["what"] for entry in report["shrunken"]}
    end = kv_json(done.stderr.splitlines()[-1])
    assert end["code"] == 0
    if sys.platform == "linux":
        assert end["megabytes"] < 400


def kv_json(text: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def node(source: ir.Model, name: str) -> ir.Node:
    return next(node for node in source.graph if node.name == name)


def constant(source: ir.Model, name: str, array: np.ndarray) -> ir.Value:
    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, const_value=tensor, type=ir.TensorType(tensor.dtype))
    value.shape = ir.Shape(array.shape)
    source.graph.initializers.add(value)
    return value


def start_one_row_late(source: ir.Model) -> None:
    scatter = node(source, "updated_key_cache.9_node")
    late = ir.node("Add", [scatter.inputs[2], constant(source, "one", np.array([1]))])
    source.graph.insert_before(scatter, late)
    scatter.replace_input_with(2, late.outputs[0])


def end_at_the_last_row_but_one(source: ir.Model) -> None:
    """Starts in the last rows of all are moved, no others."""
    scatter = node(source, "updated_value_cache.9_node")
    shape = scatter.inputs[0].shape
    assert shape is not None
    least = ir.node(
        "Min", [scatter.inputs[2], constant(source, "limit", np.array([int(shape[1]) - 6]))]
    )
    source.graph.insert_before(scatter, least)
    scatter.replace_input_with(2, least.outputs[0])


def read_the_keys_of_another_layer(source: ir.Model) -> None:
    other = node(source, "model.layers.8.self_attn.Attention_node").inputs[1]
    node(source, "model.layers.9.self_attn.Attention_node").replace_input_with(1, other)


def turn_the_wrong_way(source: ir.Model) -> None:
    rotary = node(source, "model.layers.9.self_attn.key.RotaryEmbedding_node")
    cosine, sine = rotary.inputs[1:3]
    rotary.replace_input_with(1, sine)
    rotary.replace_input_with(2, cosine)


def forget_the_valid_length(source: ir.Model) -> None:
    node(source, "model.layers.9.self_attn.Attention_node").replace_input_with(6, None)


def scale_by_another_number(source: ir.Model) -> None:
    attention = node(source, "model.layers.9.self_attn.Attention_node")
    attention.attributes["scale"] = ir.AttrFloat32("scale", 0.3)


def leave_out_the_causal_mask(source: ir.Model) -> None:
    attention = node(source, "model.layers.9.self_attn.Attention_node")
    attention.attributes["is_causal"] = ir.AttrInt64("is_causal", 0)


def leave_out_a_layer(source: ir.Model) -> None:
    names = [f"model.layers.{i}.input_layernorm" for i in (9, 10)]
    for output in ("RMSNormalization", "sum"):
        before, after = (
            next(v for n in source.graph for v in n.outputs if v.name == f"{name}.{output}")
            for name in names
        )
        after.replace_all_uses_with(before)


FAULTS = (
    end_at_the_last_row_but_one,
    forget_the_valid_length,
    leave_out_a_layer,
    leave_out_the_causal_mask,
    read_the_keys_of_another_layer,
    scale_by_another_number,
    start_one_row_late,
    turn_the_wrong_way,
)


_PATIENT = Budget(seconds=120.0)
"""However busy the machine, so that no case is left out that alone shows a fault."""


@pytest.mark.parametrize("name", MODELS)
def test_a_fault_of_one_layer_is_found_at_true_size(
    name: str, paths: Callable[[str], Path]
) -> None:
    """A fifth of the faults in each model, each of them in two models or more."""
    source = read(paths(name))
    verifier = Verifier(source, Settings(budget=_PATIENT))
    missed = []
    for fault in FAULTS[MODELS.index(name) % 5 :: 5]:
        wrong = read(paths(name))
        fault(wrong)
        lowered, _ = kv.lower(wrong, opset=_OPSETS.get(name, 18), verify=False)
        found = verifier.compare(lowered)
        # A layer without readers is removed with its weights: nothing is proven then.
        is_struck = fault is leave_out_a_layer and "is not in the result" in (found.detail or "")
        if found.status != "different" and not (is_struck and found.status == "skipped"):
            missed.append((fault.__name__, found.status, found.detail))
    assert not missed
