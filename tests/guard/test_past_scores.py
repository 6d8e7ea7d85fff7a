"""Scores over past keys: what onnx's inference says of them, and what it is let know."""

from __future__ import annotations

import onnx
import onnx.parser
import onnx.shape_inference
import pytest

from onnx_kvtool.guard.inference import infer_with_data

_HEAD = '<ir_version: 10, opset_import: ["": 24]>'
_ATTENTION = (
    "g (float[b, 2, 4, 8] q, float[b, 2, 1, 8] k, float[b, 2, 1, 8] v,"
    "  float[b, 2, P, 8] pk, float[b, 2, P, 8] pv) => (z) {"
    "  y, none, nothing, scores = Attention (q, k, v, mask, pk, pv) z = Relu (scores) }"
)


def _message() -> onnx.ModelProto:
    proto = onnx.parser.parse_model(_HEAD + _ATTENTION)
    attention = proto.graph.node[0]
    attention.input[3] = attention.output[1] = attention.output[2] = ""
    return proto


def _dims(message: onnx.ModelProto, name: str) -> list[int | str]:
    declared = (*message.graph.value_info, *message.graph.output)
    value = next(v for v in declared if v.name == name and v.type.tensor_type.HasField("shape"))
    dims = value.type.tensor_type.shape.dim
    return [dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in dims]


def test_the_fault_is_there() -> None:
    assert _dims(onnx.shape_inference.infer_shapes(_message()), "z") == ["b", 2, 4, 1]


@pytest.mark.parametrize("strict", [False, True])
def test_past_keys_are_not_left_out(strict: bool) -> None:
    message = _message()
    inferred = infer_with_data(message, strict=strict)
    for name in ("scores", "z"):
        *others, width = _dims(inferred, name)
        assert others == ["b", 2, 4]
        assert not isinstance(width, int)
    assert message == _message()
    assert list(inferred.graph.node) == list(message.graph.node)
    assert not any("kvtool" in v.name for v in inferred.graph.value_info)


def test_one_without_past_keys_is_inferred_as_it_is() -> None:
    message = _message()
    del message.graph.node[0].input[3:]
    assert _dims(infer_with_data(message), "z") == ["b", 2, 4, 1]
