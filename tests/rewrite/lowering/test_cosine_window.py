"""Windows of cosines, in the precision of their output."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto as T

from tests.grids import part
from tests.rewrite.lowering.single import check, one_node

_TERMS = {
    "HannWindow": (0.5, 0.5, 0),
    "HammingWindow": (25 / 46, 21 / 46, 0),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}


@part(6)
@pytest.mark.parametrize("opset", [11, 16])
@pytest.mark.parametrize("size", [np.int64(37), np.int32(8), np.int64(0)])
@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("dtype", [T.DOUBLE, T.FLOAT, T.INT32])
@pytest.mark.parametrize("op", sorted(_TERMS))
def test_a_window(op: str, dtype: int, periodic: int, size: np.generic, opset: int) -> None:
    a0, a1, a2 = (float(np.float32(term)) for term in _TERMS[op])
    angle = np.arange(size) * (2 * np.pi / max(int(size) - (not periodic), 1))
    type_ = onnx.helper.tensor_dtype_to_np_dtype(dtype)
    expected = (a0 - a1 * np.cos(angle) + a2 * np.cos(2 * angle)).astype(type_)
    inputs = {"size": np.array(size)}
    model = one_node(op, inputs, [type_], opset=17, periodic=periodic, output_datatype=dtype)
    tolerance = {T.DOUBLE: 1e-14, T.FLOAT: 1e-5, T.INT32: 0}[dtype]
    check(model, inputs, opset, [expected], rtol=tolerance)
