"""A model as text for people: a line for each value, and no large numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx.parser
import pytest

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.lint.onnx_text import Snapshot, changes, readable, snapshot
from onnx_kvtool.model_io.model import deserialize

MODEL = """
    <ir_version: 12, opset_import: ["": 24]>
    one (float[2, 3] x, float["a, b", 3] y) => (float[2, 3] z, float[] q)
        <float[1] small = {7}, float[2] far = ["location": "w.bin", "offset": "16"]> {
        [first] z = Add (x, small)
        q = Mul (y, large)
    }
"""


def shown(message: onnx.ModelProto) -> Snapshot:
    return snapshot(deserialize(message.SerializeToString()))


def text(message: onnx.ModelProto) -> list[str]:
    return readable(shown(message))


def changed_lines(before: onnx.ModelProto, after: onnx.ModelProto) -> tuple[list[str], str | None]:
    lines, reason = changes(shown(before), shown(after), "m.onnx")
    return [line for line in lines.splitlines() if line[0] in "+-"], reason


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
    assert changed_lines(parsed(), after) == (
        [
            "--- m.onnx",
            "+++ m.onnx",
            "-one (float[2,3] x,",
            "+one (float[B,3] x,",
        ],
        None,
    )


def test_equal_models_have_no_difference() -> None:
    assert changed_lines(parsed(), parsed()) == ([], None)


def cut_short() -> onnx.ModelProto:
    """A model with a tensor of fewer bytes than its shape promises."""
    message = parsed()
    tensor = message.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.raw_data = b"\0\0"
    return message


def test_a_model_that_onnx_cannot_print_is_compared_all_the_same() -> None:
    with pytest.raises(KvtoolError, match="cannot be shown as ONNX text"):
        text(cut_short())
    after = cut_short()
    after.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "B"
    lines, reason = changed_lines(cut_short(), after)
    assert [line.split() for line in lines[2:]] == [
        ["-", "dim_value:", "2"],
        ["+", "dim_param:", '"B"'],
    ]
    assert reason is not None and reason.startswith("the model cannot be shown as ONNX text: ")


@pytest.mark.parametrize(
    ("before", "after"), [(parsed, cut_short), (cut_short, parsed)], ids=["after", "before"]
)
def test_a_model_that_is_printed_at_one_time_only_is_compared_in_one_form(
    before: Callable[[], onnx.ModelProto], after: Callable[[], onnx.ModelProto]
) -> None:
    lines, reason = changed_lines(before(), after())
    assert reason is not None
    fields = [line[1:].strip().partition(":")[0] for line in lines[2:]]
    assert sorted(fields) == ["float_data", "raw_data"]
