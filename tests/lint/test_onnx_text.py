"""A model as text for people: a line for each value, and no large numbers."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser

from onnx_kvtool.core.model import deserialize
from onnx_kvtool.lint.onnx_text import diff, readable

MODEL = """
    <ir_version: 12, opset_import: ["": 24]>
    one (float[2, 3] x, float["a, b", 3] y) => (float[2, 3] z, float[] q)
        <float[1] small = {7}, float[2] far = ["location": "w.bin", "offset": "16"]> {
        [first] z = Add (x, small)
        q = Mul (y, large)
    }
"""


def text(message: onnx.ModelProto) -> list[str]:
    return readable(deserialize(message.SerializeToString()))


def parsed() -> onnx.ModelProto:
    message = onnx.parser.parse_model(MODEL)
    large = onnx.numpy_helper.from_array(np.ones((64, 3), np.float32), "large")
    message.graph.initializer.append(large)
    message.graph.node[0].metadata_props.add(key="kvtool.ignore", value="KV1")
    message.graph.node[0].metadata_props.add(key="pkg.stack_trace", value="lines\nand lines")
    return message


def test_each_value_has_a_line() -> None:
    lines = [line.strip() for line in text(parsed())]
    assert "one (float[2,3] x," in lines
    assert 'float["a, b",3] y) => (float[2,3] z,' in lines
    assert "<float[1] small =  {7}," in lines
    assert 'float[2] far = ["location": "w.bin", "offset": "16"],' in lines
    assert "float[64,3] large =  {}>" in lines
    assert "[first] z = Add (x, small)" in lines
    assert "# one, node first: kvtool.ignore = KV1" in lines
    assert not any("stack" in line for line in lines)


def test_a_difference_is_a_line() -> None:
    after = parsed()
    after.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "B"
    changes = diff(text(parsed()), text(after), "m.onnx").splitlines()
    assert [line for line in changes if line[0] in "+-"] == [
        "--- m.onnx",
        "+++ m.onnx",
        "-one (float[2,3] x,",
        "+one (float[B,3] x,",
    ]


def test_equal_models_have_no_difference() -> None:
    assert diff(text(parsed()), text(parsed()), "m.onnx") == ""
