"""MelWeightMatrix-17, for older opsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.runtime import onnxruntime
from tests.grids import part
from tests.rewrite.lowering.single import check, one_node, refusal

_NAMES = ("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz")


def _inputs(
    bins: int, length: int, rate: int, low: float, high: float
) -> dict[str, np.ndarray | None]:
    numbers = [np.array(n, np.int64) for n in (bins, length, rate)]
    edges = [np.array(n, np.float32) for n in (low, high)]
    return dict(zip(_NAMES, [*numbers, *edges], strict=True))


_CASES = {
    "that of onnx": (8, 16, 8192, 0.0, 4096.0),
    "speech": (80, 400, 16000, 0.0, 8000.0),
    "narrow": (23, 512, 16000, 20.0, 7600.0),
    "more bins than frequencies": (40, 64, 22050, 300.0, 11025.0),
}


@part(3)
@pytest.mark.parametrize("target", [9, 11, 16])
@pytest.mark.parametrize("numbers", list(_CASES.values()), ids=list(_CASES))
def test_triangles(numbers: Any, target: int) -> None:
    """As onnxruntime has it, and onnx.reference."""
    inputs = _inputs(*numbers)
    source = one_node("MelWeightMatrix", inputs, [np.float32], opset=17)
    feeds = {name: value for name, value in inputs.items() if value is not None}
    expected = onnxruntime.Session(source.SerializeToString(), "").run(feeds)["out0"]
    model = one_node("MelWeightMatrix", inputs, [np.float32], opset=17, constants=_NAMES)
    check(model, inputs, target, [expected], rtol=1e-6)
    check(model, inputs, target, rtol=1e-6)


def test_the_matrix_is_a_constant_of_the_type_that_is_asked_for() -> None:
    inputs = _inputs(8, 16, 8192, 0.0, 4096.0)
    model = one_node(
        "MelWeightMatrix",
        inputs,
        [np.float64],
        opset=17,
        constants=_NAMES,
        output_datatype=ir.DataType.DOUBLE.value,
    )
    lowered, _ = lower(ir.from_proto(model), opset=13, verify=False)
    assert [node.op_type for node in lowered.graph] == ["Identity"]
    check(model, inputs, 13, rtol=1e-12)


@pytest.mark.parametrize(
    ("numbers", "constants", "code"),
    [
        ((8, 16, 8192, 0.0, 4096.0), _NAMES[1:], "dynamic-input"),
        ((3, 16, 700, 0.0, 6300.0), _NAMES, None),
    ],
    ids=["an input that is not constant", "frequencies beyond those of the transform"],
)
def test_refused(numbers: Any, constants: Any, code: str | None) -> None:
    model = one_node(
        "MelWeightMatrix", _inputs(*numbers), [np.float32], opset=17, constants=constants
    )
    assert refusal(model, 16).code == (code or "bad-frequency")
