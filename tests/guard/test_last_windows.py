"""Windows that begin behind the axis: what onnx's inference says of them, and what it is let know.

onnx counts them right from opset 22 on, and runtimes compute the same at all opsets.
"""

from __future__ import annotations

import onnx
import onnx.parser
import onnx.shape_inference
import pytest

from onnx_kvtool.guard.inference import infer_with_data
from tests.grids import each

_POOL = "g (float[2, 3, %d, 6] x) => (z) { y = %s <ceil_mode = 1, %s> (x) z = Relu (y) }"
WAYS = [
    "kernel_shape = [1, 1], strides = [2, 2]",
    "kernel_shape = [1, 2], strides = [3, 1]",
    "kernel_shape = [2, 2], strides = [3, 3], pads = [1, 0, 1, 1]",
    "kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]",
    "kernel_shape = [2, 3], strides = [4, 2], pads = [1, 0, 0, 2]",
    'kernel_shape = [1, 1], strides = [2, 2], auto_pad = "VALID"',
    'kernel_shape = [3, 3], strides = [2, 2], auto_pad = "SAME_UPPER"',
    'kernel_shape = [2, 2], strides = [3, 3], auto_pad = "SAME_LOWER"',
    "kernel_shape = [2, 2]",
]
FIRST = {"AveragePool": 10, "LpPool": 18, "MaxPool": 10}


def _message(op: str, way: str, opset: int, size: int = 4) -> onnx.ModelProto:
    head = f'<ir_version: 10, opset_import: ["": {opset}]>'
    return onnx.parser.parse_model(head + _POOL % (size, op, way))


def _dims(message: onnx.ModelProto) -> list[int]:
    return [dim.dim_value for dim in message.graph.output[0].type.tensor_type.shape.dim]


def test_the_fault_is_there() -> None:
    message = _message("MaxPool", WAYS[0], 21)
    assert _dims(onnx.shape_inference.infer_shapes(message)) == [2, 3, 3, 4]
    assert _dims(infer_with_data(message, strict=True)) == [2, 3, 2, 3]


@pytest.mark.long
@each(
    ("op", "way", "opset"),
    [
        pytest.param(op, way, opset, id=f"{op} {way} at {opset}")
        for op, first in FIRST.items()
        for way in WAYS
        for opset in {first, 21}
    ],
)
def test_as_many_windows_as_from_opset_22_on(op: str, way: str, opset: int) -> None:
    for size in range(4, 10):
        message = _message(op, way, opset, size)
        inferred = infer_with_data(message)
        right = onnx.shape_inference.infer_shapes(_message(op, way, 22, size))
        assert _dims(inferred) == _dims(right), size
        assert message == _message(op, way, opset, size)
        assert list(inferred.graph.node) == list(message.graph.node)
