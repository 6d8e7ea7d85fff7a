"""Nodes without an input that onnxruntime reads unasked."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest

from onnx_kvtool.decoding.bound import BoundSession
from onnx_kvtool.guard.onnxruntime_faults import with_all_inputs
from onnx_kvtool.runtime.onnxruntime import Session

_LOAD = """
import sys
import onnxruntime
onnxruntime.InferenceSession(sys.stdin.buffer.read())
"""


def _model(op: str, inputs: str) -> bytes:
    text = f"""
        <ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g (uint8[3] x) => (uint8[3] y)
        <float a = {{0.1}}, uint8 z = {{3}}, float b = {{0.01}}, uint8 o = {{0}}> {{
            y = com.microsoft.{op} (x, {inputs})
        }}"""
    return bytes(onnx.parser.parse_model(text).SerializeToString())


_OPS = ("QLinearLeakyRelu", "QLinearSigmoid")


@pytest.mark.parametrize("op", _OPS)
def test_a_node_without_the_last_input_is_computed_as_one_with_zero(op: str) -> None:
    feeds = {"x": np.array([1, 5, 200], np.uint8)}
    found = Session(_model(op, "a, z, b"), "").run(feeds)
    expected = Session(_model(op, "a, z, b, o"), "").run(feeds)
    np.testing.assert_array_equal(found["y"], expected["y"])
    BoundSession(_model(op, "a, z, b"), "")


def test_other_models_are_given_as_they_are() -> None:
    for model in (b"", b"QLinearSigmoid", _model("QLinearSoftmax", "a, z, b, o")):
        assert with_all_inputs(model) is model


@pytest.mark.slow
@pytest.mark.parametrize("op", _OPS)
def test_the_fault_is_there(op: str) -> None:
    command = [sys.executable, "-c", _LOAD]
    child = subprocess.run(command, input=_model(op, "a, z, b"), capture_output=True, check=False)
    assert child.returncode != 0, f"onnxruntime loads {op} now"
