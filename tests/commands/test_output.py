"""Where a result goes that nobody named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from onnx_kvtool.commands.lower import run as run_lower
from onnx_kvtool.commands.output import default_output
from onnx_kvtool.commands.raise_ import run as run_raise
from onnx_kvtool.commands.requests import LowerRequest, RaiseRequest
from onnx_kvtool.core.errors import UsageError
from tests.grids import each

_DECODER = Path(__file__).resolve().parents[2] / "fixtures/models/native/llama_static.onnx"
_HAND = Path(__file__).resolve().parents[2] / "fixtures/models/torch_static/hand"


@each(
    ("source", "suffix", "expected"),
    [
        pytest.param("a/x.onnx", "opset18", "a/x.opset18.onnx", id="beside the source"),
        pytest.param("x.opset18.onnx", "opset13", "x.opset13.onnx", id="another opset"),
        pytest.param("x.opset18.onnx", "raised", "x.raised.onnx", id="the way back"),
        pytest.param("x.raised.onnx", "opset18", "x.opset18.onnx", id="a raised model"),
        pytest.param("x.raised.opset18.onnx", "opset9", "x.opset9.onnx", id="piled up before"),
        pytest.param(
            "x.onnxruntime-1.17.onnx", "openvino-2026.4", "x.openvino-2026.4.onnx", id="a runtime"
        ),
        pytest.param("x.v2.onnx", "raised", "x.v2.raised.onnx", id="a suffix of somebody else"),
        pytest.param("x.model-1.5.onnx", "raised", "x.model-1.5.raised.onnx", id="no runtime"),
        pytest.param(".opset18.onnx", "raised", ".opset18.raised.onnx", id="nothing else"),
        pytest.param("x.pb", "opset18", "x.opset18.onnx", id="another extension"),
    ],
)
def test_the_name_of_a_result(source: str, suffix: str, expected: str) -> None:
    assert default_output(source, suffix) == str(Path(expected))


@pytest.mark.long
def test_lowered_for_a_release(tmp_path: Path) -> None:
    source = tmp_path / "d.opset24.onnx"
    shutil.copy(_DECODER, source)
    report = run_lower(LowerRequest(str(source), target="onnxruntime@1.17", verify=False))
    assert report.output == str(tmp_path / "d.onnxruntime-1.17.onnx")
    again = run_lower(LowerRequest(report.output, opset=13, verify=False))
    assert again.output == str(tmp_path / "d.opset13.onnx")


@pytest.mark.long
def test_the_input_is_not_the_output(tmp_path: Path) -> None:
    source = tmp_path / "d.opset18.onnx"
    shutil.copy(_DECODER, source)
    before = source.read_bytes()
    with pytest.raises(UsageError) as error:
        run_lower(LowerRequest(str(source), opset=18, verify=False))
    assert str(source) in error.value.message
    assert "--in-place" in (error.value.help or "")
    assert source.read_bytes() == before
    raised = tmp_path / "d.raised.onnx"
    shutil.copy(_HAND / "index_copy_bhsd__dynamo_op18.onnx", raised)
    with pytest.raises(UsageError):
        run_raise(RaiseRequest(str(raised), assume=("contiguous",), verify=False))
