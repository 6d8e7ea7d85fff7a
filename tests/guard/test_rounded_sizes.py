"""Sizes times scales: what runtimes do not agree on is known to nobody."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnx.parser
import onnx.shape_inference
import onnx_ir as ir
import onnxruntime
import pytest

from onnx_kvtool.guard.inference import infer_with_data
from onnx_kvtool.guard.rounded_sizes import scaled
from onnx_kvtool.shapes.inference import infer_model
from onnx_kvtool.symbolic.dimensions import shape_words
from tests.grids import each

_SCALES = "<float[4] s = {1, 1, 1.3, %s}>"
FORMS = {
    "Resize at 10": (10, _SCALES + " { y = Resize (x, s) }"),
    "Resize at 18": (18, _SCALES + " { y = Resize (x, , s) }"),
    "Resize by axes": (18, "<float[2] s = {1.3, %s}> { y = Resize <axes = [-2, 3]> (x, , s) }"),
    "Upsample at 7": (7, "{ y = Upsample <scales = [1.0, 1.0, 1.3, %s]> (x) }"),
    "Upsample at 9": (9, _SCALES + " { y = Upsample (x, s) }"),
}
EACH_FORM = each(
    ("opset", "text"), {n: (opset, text % "2.0") for n, (opset, text) in FORMS.items()}
)


def _message(opset: int, text: str, height: int) -> onnx.ModelProto:
    head = f'<ir_version: 8, opset_import: ["": {opset}]> g (float[1, 2, {height}, 3] x) => (z) '
    return onnx.parser.parse_model(f"{head}{text[:-1]} z = Relu (y) }}")


def _dims(message: onnx.ModelProto) -> list[int]:
    return [dim.dim_value for dim in message.graph.output[0].type.tensor_type.shape.dim]


@EACH_FORM
def test_the_fault_is_there(opset: int, text: str) -> None:
    assert _dims(onnx.shape_inference.infer_shapes(_message(opset, text, 10))) == [1, 2, 12, 6]


@EACH_FORM
def test_what_differs_is_not_known(opset: int, text: str) -> None:
    message = _message(opset, text, 10)
    inferred = infer_with_data(message, strict=True)
    assert 12 not in _dims(inferred)
    assert list(inferred.graph.node) == list(message.graph.node)
    found = infer_model(ir.from_proto(message))
    z = next(v for v in found.run.values if v.name == "z")
    words = shape_words(found.run.knowledge.shapes[z]) or ()
    assert words[:2] == (1, 2) and words[3] == 6 and not isinstance(words[2], int)
    assert any("depends on how a runtime rounds" in u.lost.why for u in found.report.unknown)


@EACH_FORM
def test_what_does_not_differ_is_known(opset: int, text: str) -> None:
    message = _message(opset, text, 9)
    assert _dims(infer_with_data(message, strict=True)) == [1, 2, 11, 6]
    found = infer_model(ir.from_proto(message))
    z = next(v for v in found.run.values if v.name == "z")
    assert shape_words(found.run.knowledge.shapes[z]) == (1, 2, 11, 6)


@pytest.mark.needs_onnxruntime("1.29")
def test_onnxruntime_has_the_sizes_on_which_runtimes_agree() -> None:
    text = "m (float[1, 1, H, 1] x, float[4] s) => (float[A, B, C, D] y) { y = Resize (x, , s) }"
    message = onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 18]> ' + text)
    session = onnxruntime.InferenceSession(message.SerializeToString())
    unknown = 0
    for scale in np.array([1.3, 0.7, 1.1, 0.1, 1 / 3, 2.9, 1.15], np.float32):
        for size in range(1, 41):
            x, scales = (
                np.zeros((1, 1, size, 1), np.float32),
                np.array([1, 1, scale, 1], np.float32),
            )
            if (expected := scaled(size, float(scale))) is None:
                unknown += 1
            elif expected:
                (y,) = session.run(None, {"x": x, "s": scales})
                assert y.shape[2] == expected == math.floor(size * float(scale)), (size, scale)
    assert unknown > 5
