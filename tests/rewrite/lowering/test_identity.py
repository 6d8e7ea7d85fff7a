"""Identity of sequences, for opsets whose Identity knows none."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.model_io.model import serialize
from tests.grids import part

_TYPES = {np.float32: TensorProto.FLOAT, np.int64: TensorProto.INT64, object: TensorProto.STRING}


def _model(op: str, opset: int, number: int) -> onnx.ModelProto:
    tensor = helper.make_tensor_type_proto(number, None)
    sequence = helper.make_sequence_type_proto(tensor)
    node = helper.make_node(op, ["x"], ["y"], name="node")
    ends = [[helper.make_value_info(name, sequence)] for name in ("x", "y")]
    graph = helper.make_graph([node], "case", *ends)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@part(3)
@pytest.mark.parametrize(("op", "opset"), [("Identity", 16), ("OptionalGetElement", 18)])
@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("dtype", list(_TYPES))
def test_a_sequence_is_passed(op: str, opset: int, count: int, dtype: type) -> None:
    rows = [[str(i) if dtype is object else i for i in range(n + 2)] for n in range(count)]
    given = [np.array(row, dtype) for row in rows]
    for target in (11, 13):
        lowered, _ = lower(_model(op, opset, _TYPES[dtype]), opset=target, verify=False)
        data = serialize(lowered)
        onnx.checker.check_model(data, full_check=True)
        (found,) = onnxruntime.InferenceSession(data).run(None, {"x": given})
        assert len(found) == count
        for got, one in zip(found, given, strict=True):
            np.testing.assert_array_equal(got, one)
