"""The models of the fixtures give what was recorded when they were exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_kvtool.model_io.model import read
from onnx_kvtool.runtime.engine.evaluator import Evaluator
from onnx_kvtool.runtime.errors import RuntimeUnavailable
from tests.grids import part

MODELS = Path(__file__).resolve().parents[2] / "fixtures" / "models"

RECORDED = sorted(
    path.relative_to(MODELS).with_suffix("").as_posix() for path in MODELS.rglob("*.npz")
)

FLOAT32, FLOAT16 = 1e-4, 5e-3
"""Largest difference, absolute: outputs are of the order of 1."""

Arrays = dict[str, np.ndarray[Any, Any]]


def recorded(name: str) -> tuple[Arrays, Arrays]:
    with np.load(MODELS / f"{name}.npz") as arrays:
        inputs = {k[3:]: arrays[k] for k in arrays if k.startswith("in:")}
        outputs = {k[4:]: arrays[k] for k in arrays if k.startswith("out:")}
    return inputs, outputs


def difference(expected: np.ndarray[Any, Any], actual: np.ndarray[Any, Any]) -> float:
    assert expected.shape == actual.shape
    wide = [array.astype(np.float64) for array in (expected, actual)]
    return float(np.max(np.abs(wide[0] - wide[1]), initial=0.0))


@pytest.mark.long
@pytest.mark.parametrize("name", RECORDED)
def test_recorded_outputs(name: str) -> None:
    """Float32 within 1e-4 and float16 within 5e-3; integers, and what is only moved, exactly."""
    inputs, outputs = recorded(name)
    evaluator = Evaluator(read(MODELS / f"{name}.onnx"))
    found = evaluator.run(inputs)
    assert list(found.values) == list(outputs)
    assert not found.warnings
    is_moved = name.startswith("torch_static/hand/")
    for output, expected in outputs.items():
        actual = found.values[output]
        assert actual.dtype == expected.dtype
        if is_moved and expected.dtype == np.float32:
            # The mask of a one-hot update is computed; everything else is copied.
            assert np.array_equal(actual, expected), output
            continue
        limit = {"float32": FLOAT32, "float16": FLOAT16}.get(expected.dtype.name, 0.0)
        assert difference(expected, actual) <= limit, output


def test_every_exporter_is_among_them() -> None:
    folders = {name.rpartition("/")[0] for name in RECORDED}
    assert {"native", "torch_static/hf", "torch_static/hand", "optimized", "genai"} <= folders


@pytest.mark.long
@part(3)
@pytest.mark.parametrize("name", RECORDED)
def test_no_operator_of_a_decoder_is_left_to_onnx_reference(name: str) -> None:
    inputs, _ = recorded(name)
    evaluator = Evaluator(read(MODELS / f"{name}.onnx"))
    evaluator.run(inputs)
    assert evaluator.borrowed == ()


def test_operators_of_a_runtime_are_refused_by_name() -> None:
    model = read(MODELS / "genai" / "genai_llama_fp32_cpu.onnx")
    node = next(node for node in model.graph if node.op_type == "GroupQueryAttention")
    node.op_type = "QOrderedAttention"
    with pytest.raises(RuntimeUnavailable, match="QOrderedAttention") as caught:
        Evaluator(model)
    assert caught.value.help == "run the model with `--runtime onnxruntime`"


def in_bfloat16(model: ir.Model) -> ir.Model:
    """Return a float32 model with bfloat16 in place of float32 everywhere."""
    proto = ir.to_proto(model)
    graphs = [proto.graph]
    for tensor in proto.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            values = onnx.numpy_helper.to_array(tensor).astype(ml_dtypes.bfloat16)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    for graph in graphs:
        del graph.value_info[:]
        for value in (*graph.input, *graph.output):
            if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
                value.type.tensor_type.elem_type = onnx.TensorProto.BFLOAT16
    for function in proto.functions:
        del function.value_info[:]
    return ir.from_proto(proto)


def test_a_decoder_in_bfloat16() -> None:
    """The recorded float32 run, within what eight bits of mantissa leave over two layers."""
    inputs, outputs = recorded("native/llama_static")
    model = in_bfloat16(read(MODELS / "native" / "llama_static.onnx"))
    fed = {
        name: array.astype(ml_dtypes.bfloat16) if array.dtype == np.float32 else array
        for name, array in inputs.items()
    }
    found = Evaluator(model).run(fed).values
    assert list(found) == list(outputs)
    for output, expected in outputs.items():
        assert found[output].dtype == ml_dtypes.bfloat16
        assert difference(expected, found[output]) <= 4e-2, output
        assert not np.array_equal(expected, found[output].astype(np.float32)), "nothing was rounded"
