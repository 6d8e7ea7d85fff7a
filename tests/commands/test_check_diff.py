"""How `check --diff` shows what a fix changes: a line for each value, and no large numbers."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser

from onnx_kvtool.commands.check_file import difference, readable
from onnx_kvtool.model_io.model import deserialize
from onnx_kvtool.review.digests import Digests

MODEL = """
    <ir_version: 12, opset_import: ["": 24]>
    one (float[2, 3] x, float["a, b", 3] y) => (float[2, 3] z, float[] q)
        <float[1] small = {7}, float[2] far = ["location": "w.bin", "offset": "16"]> {
        [first] z = Add (x, small)
        q = Mul (y, large)
    }
"""


def text(message: onnx.ModelProto) -> list[str]:
    return readable(deserialize(message.SerializeToString()), Digests("embedded"))


def changed_lines(before: onnx.ModelProto, after: onnx.ModelProto) -> list[str]:
    lines = difference(text(before), text(after), "m.onnx").splitlines()
    return [line for line in lines if line[0] in "+-"]


def parsed() -> onnx.ModelProto:
    message = onnx.parser.parse_model(MODEL)
    large = onnx.numpy_helper.from_array(np.ones((64, 3), np.float32), "large")
    message.graph.initializer.append(large)
    message.graph.node[0].metadata_props.add(key="kvtool.ignore", value="KV1")
    message.graph.node[0].metadata_props.add(key="pkg.stack_trace", value="lines\nand lines")
    return message


def test_each_value_has_a_line() -> None:
    lines = [line.strip() for line in text(parsed())]
    assert "float[2,3] x," in lines
    assert 'float["a, b",3] y' in lines
    assert "float[1] small = {7.0}" in lines
    assert 'float[2] far = ["location": "w.bin", "offset": "16"],' in lines
    assert any(line.startswith('float[64,3] large = ["sha256": ') for line in lines)
    assert "[first] z = Add (x, small)" in lines
    assert '# kvtool.ignore: "KV1"' in lines
    assert not any("stack" in line for line in lines)


def test_a_difference_is_a_line() -> None:
    after = parsed()
    after.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "B"
    assert changed_lines(parsed(), after) == [
        "--- m.onnx",
        "+++ m.onnx",
        "-   float[2,3] x,",
        "+   float[B,3] x,",
    ]


def test_equal_models_have_no_difference() -> None:
    assert changed_lines(parsed(), parsed()) == []


def test_a_tensor_of_fewer_bytes_than_its_shape_takes() -> None:
    cut = parsed()
    cut.graph.initializer[0].ClearField("float_data")
    cut.graph.initializer[0].raw_data = b"\0\0"
    before, after, defect = changed_lines(parsed(), cut)[2:]
    assert before.strip("- ") == "float[1] small = {7.0}"
    assert after.strip("+ ").startswith('float[1] small = ["sha256": ')
    assert "small" in defect and changed_lines(cut, cut) == []
