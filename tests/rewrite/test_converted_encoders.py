"""Encoders after the tools of onnxruntime: inferred, checked, lowered and proven."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

import onnx_kvtool as kv
from tests.rewrite.test_encoders import ENCODERS, NAMES

ort = pytest.importorskip("onnxruntime")

UNSORTED = frozenset({"float16, float32 outside"})
"""Tools that write nodes before what they read, which `check` tells."""

UNKNOWN = {
    "swin": "it pads to whole windows, by numbers that go through a Reshape to a matrix",
}
"""Encoders of which some shapes stay unknown, and why."""

NOT_MADE = {("wav2vec2", "int8"): "a weight is computed, which the quantiser refuses"}


def optimised(level: str) -> Callable[[Path, Path], None]:
    def convert(source: Path, result: Path) -> None:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
        options.optimized_model_filepath = str(result)
        ort.InferenceSession(str(source), options, ["CPUExecutionProvider"])

    return convert


def to_int8(source: Path, result: Path) -> None:
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(str(source), str(result))


def to_int4(source: Path, result: Path) -> None:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(onnx.load(source), block_size=16, is_symmetric=True)
    quantizer.process()
    quantizer.model.save_model_to_file(str(result))


def to_float16(keep_io_types: bool) -> Callable[[Path, Path], None]:
    def convert(source: Path, result: Path) -> None:
        from onnxruntime.transformers.float16 import convert_float_to_float16

        model = convert_float_to_float16(onnx.load(source), keep_io_types=keep_io_types)
        onnx.save(model, result)

    return convert


TOOLS: dict[str, Callable[[Path, Path], None]] = {
    "basic": optimised("ORT_ENABLE_BASIC"),
    "extended": optimised("ORT_ENABLE_EXTENDED"),
    "int8": to_int8,
    "int4": to_int4,
    "float16": to_float16(False),
    "float16, float32 outside": to_float16(True),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", NAMES)
def test_a_converted_encoder(name: str, tool: str, tmp_path: Path) -> None:
    path = tmp_path / "converted.onnx"
    if (name, tool) in NOT_MADE:
        with pytest.raises(ValueError, match="to be an initializer"):
            TOOLS[tool](ENCODERS / f"{name}.onnx", path)
        return
    TOOLS[tool](ENCODERS / f"{name}.onnx", path)
    _, report = kv.infer(path)
    assert not report.conflicts
    assert (report.known_after < report.values) == (name in UNKNOWN)
    errors = {finding.code for finding in kv.check(path) if finding.severity == "error"}
    assert errors == ({"MD422"} if tool in UNSORTED and name != "bert" else set())
    # Each encoder and each tool at every one of them.
    opset = (18, 13, 11)[(NAMES.index(name) + [*TOOLS].index(tool)) % 3]
    _, lowered = kv.lower(path, opset=opset)
    found = lowered.verification
    assert (opset, found.status) == (opset, "equal"), found.detail
    assert found.cases >= 1
