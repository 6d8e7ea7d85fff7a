"""Lowered RMSNormalization against the definition, and its form."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto as T
from onnx import helper

from onnx_kvtool.commands.lower import lower
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.runtime import reference
from onnx_kvtool.runtime.onnxruntime import Session
from tests.cache_models import model, value
from tests.grids import part

# The computation is in float32 unless `stash_type` says otherwise, for double too.
_DTYPES = {
    T.FLOAT: (np.float32, 1e-6),
    T.FLOAT16: (np.float16, 2e-3),
    T.DOUBLE: (np.float64, 1e-6),
    T.BFLOAT16: (ml_dtypes.bfloat16, 2**-6),
}


def _source(dtype: int, shape: Any, **attributes: Any) -> onnx.ModelProto:
    axis = attributes.get("axis", -1)
    scale = [5] if axis == -1 else [3, 5]
    node = helper.make_node("RMSNormalization", ["x", "scale"], ["y"], name="norm", **attributes)
    inputs = [value("x", dtype, shape), value("scale", dtype, scale)]
    return model([node], inputs, [value("y", dtype, shape)], opset=23, ir_version=11)


@part(3)
@pytest.mark.parametrize(
    ("dtype", "opset"),
    [
        pytest.param(dtype, opset, id=f"{T.DataType.Name(dtype).lower()}, opset {opset}")
        for dtype in _DTYPES
        for opset in (11, 13, 17, 18, 22)
        if dtype != T.BFLOAT16 or opset >= 13
    ],
)
@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ([2, 3, 5], {}),
        (["B", 3, 5], {"axis": 1, "epsilon": 0.25}),
        (["B", "L", 5], {"axis": -1, "stash_type": T.DOUBLE}),
    ],
    ids=["the default", "two axes and a large epsilon", "computed in double"],
)
def test_results(shape: Any, attributes: Any, dtype: int, opset: int) -> None:
    kind, tolerance = _DTYPES[dtype]
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 3, 5)).astype(kind)
    axes = (1, 2) if attributes.get("axis") == 1 else (2,)
    scale = rng.standard_normal((3, 5) if len(axes) == 2 else (5,)).astype(kind)
    result, report = lower(
        ir.from_proto(_source(dtype, shape, **attributes)), opset=opset, verify=False
    )
    assert [done.rule for done in report.lowered] == ["rms_normalization"]
    onnx.checker.check_model(ir.to_proto(result), full_check=True)
    wide = x.astype(np.float64)
    rms = np.sqrt((wide**2).mean(axis=axes, keepdims=True) + attributes.get("epsilon", 1e-5))
    expected = wide / rms * scale.astype(np.float64)
    session = reference.Session if dtype == T.BFLOAT16 else Session
    actual = session(serialize(result), "").run({"x": x, "scale": scale})["y"]
    assert actual.dtype == kind
    np.testing.assert_allclose(actual.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


def test_the_form_is_the_one_that_runtimes_fuse() -> None:
    result, _ = lower(ir.from_proto(_source(T.FLOAT, [2, 3, 5])), opset=18, verify=False)
    assert [n.op_type for n in result.graph] == ["Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul"]


@pytest.mark.needs_onnxruntime("1.29")
def test_onnxruntime_fuses_it_to_the_very_bits_of_the_operator() -> None:
    rng = np.random.default_rng(4)
    feeds = {
        "x": rng.standard_normal((2, 3, 5)).astype(np.float32),
        "scale": rng.standard_normal(5).astype(np.float32),
    }
    source = _source(T.FLOAT, ["B", "L", 5])
    result, _ = lower(ir.from_proto(source), opset=18, verify=False)
    native = Session(source.SerializeToString(), "").run(feeds)["y"]
    assert Session(serialize(result), "").run(feeds)["y"].tobytes() == native.tobytes()


def test_an_unknown_rank_takes_the_body_of_the_schema() -> None:
    source = _source(T.FLOAT, None)
    _, report = lower(ir.from_proto(source), opset=18, verify=False)
    assert [done.rule for done in report.lowered] == ["function_body"]
