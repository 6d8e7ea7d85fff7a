"""Small decoders of each way of storing weights and caches, lowered whole and verified."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

from benchmarks.real_models.configuration import CONFIGURATIONS, tiny
from benchmarks.real_models.writer import write
from onnx_kvtool.commands.lower import lower
from onnx_kvtool.core.walk import tensors
from onnx_kvtool.model_io.model import read
from onnx_kvtool.model_io.model import write as write_model
from onnx_kvtool.rewrite.report import Refused
from tests.grids import part

_KINDS = [
    "qwen-0.5b-dq-int4",
    "qwen-0.5b-dq-uint4",
    "qwen-0.5b-qdq-int8",
    "llama-1b-int4",
    "16-layers-int8-caches",
]


def _model(name: str, directory: Path) -> Path:
    return write(tiny(CONFIGURATIONS[name]), directory)


def _check(name: str, opset: int, directory: Path) -> ir.Model:
    result, report = lower(_model(name, directory), opset=opset)
    assert report.verification.status == "equal"
    assert report.verification.max_abs_diff is not None
    assert report.verification.max_abs_diff < 1e-5
    if name != "llama-1b-int4":  # the checker does not know MatMulNBits
        written = directory / "lowered.onnx"
        write_model(result, written)
        onnx.checker.check_model(written, full_check=True)
    return result


@pytest.mark.long
@part(4)
@pytest.mark.needs_onnxruntime("1.29")
@pytest.mark.parametrize("opset", [11, 18])
@pytest.mark.parametrize("name", _KINDS)
def test_equal(name: str, opset: int, tmp_path: Path) -> None:
    _check(name, opset, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.needs_onnxruntime("1.29")
@pytest.mark.parametrize(
    ("name", "opset"),
    [
        (name, opset)
        for number, name in enumerate(_KINDS)
        for opset in range(12 + number % 2, 24, 2)
        if opset != 18
    ],
)
def test_equal_at_every_other_opset(name: str, opset: int, tmp_path: Path) -> None:
    _check(name, opset, tmp_path)


@pytest.mark.long
def test_weights_of_4_bits_stay_where_they_are(tmp_path: Path) -> None:
    """Below opset 21 the same bytes of the same file are declared as uint8; nothing is read."""
    path = _model("qwen-0.5b-dq-int4", tmp_path)
    source = {t.name: t for _, t in tensors(read(path)) if t.dtype == ir.DataType.INT4}
    next(tmp_path.glob("*data*")).unlink()
    result, report = lower(path, opset=18, verify=False)
    found = {t.name: t for _, t in tensors(result) if t.name in source}
    assert len(source) == len(found) == 15
    for name, tensor in found.items():
        original = source[name]
        assert isinstance(tensor, ir.ExternalTensor)
        assert isinstance(original, ir.ExternalTensor)
        assert tensor.dtype == ir.DataType.UINT8
        places = [(t.location, t.offset, t.length) for t in (tensor, original)]
        assert places[0] == places[1]
    assert any("15 constants of type INT4" in note for note in report.notes)


def test_8_bit_float_caches_are_refused_where_their_type_is_missing(tmp_path: Path) -> None:
    """The type is that of inputs and outputs, which keep theirs."""
    path = _model("16-layers-fp8-caches", tmp_path)
    with pytest.raises(Refused) as refused:
        lower(path, opset=18, verify=False)
    reasons = {(d.code, d.lowest_opset) for d in refused.value.report.refused}
    assert reasons == {("element-type", 19)}


@pytest.mark.exhaustive
@pytest.mark.parametrize("opset", range(19, 24))
def test_8_bit_float_caches_where_there_is_the_type(opset: int, tmp_path: Path) -> None:
    _, report = lower(_model("16-layers-fp8-caches", tmp_path), opset=opset)
    assert report.verification.status == "equal"
