"""Sizes at which a window finds nothing to move over."""

from __future__ import annotations

import numpy as np
import pytest

from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.runtime.sessions import RUNTIMES, RuntimeName
from onnx_kvtool.verification.comparison.rounded_values import Emptiness
from tests.grids import each
from tests.runtime.recorded import model

SHRINKING = """
<ir_version: 10, opset_import: ["": 18]>
g (float[N, 3, H, W] x) => (float[N, 3] y)
{
  a = MaxPool <kernel_shape = [4, 4], strides = [2, 2]> (x)
  b = MaxPool <kernel_shape = [4, 4], strides = [2, 2]> (a)
  axes = Constant <value_ints = [2, 3]> ()
  y = ReduceSum <keepdims = 0> (b, axes)
}
"""


@each("runtime", RUNTIMES)
@each(("size", "is_empty"), [(16, False), (7, True), (6, True), (64, False)])
def test_a_value_without_elements_is_found(size: int, is_empty: bool, runtime: RuntimeName) -> None:
    empty = Emptiness(serialize(model(SHRINKING)), "", runtime)
    assert empty({"x": np.ones((2, 3, size, 16), np.float32)}) == is_empty


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_inputs_without_elements_and_missing_integers_do_not_count(runtime: RuntimeName) -> None:
    empty = Emptiness(serialize(model(SHRINKING)), "", runtime)
    assert not empty({"x": np.ones((0, 3, 16, 16), np.float32)})
    text = SHRINKING.replace(
        "axes = Constant",
        "i = Shape <end = 0> (x) z = Constant <value_ints = [0]> () "
        "s = Slice (i, z, z) axes = Constant",
    )
    assert not Emptiness(serialize(model(text)), "", runtime)(
        {"x": np.ones((2, 3, 16, 16), np.float32)}
    )


def test_a_model_without_windows_has_nothing_empty() -> None:
    text = "g (float[N] x) => (float[N] y) { y = Neg (x) }"
    assert not Emptiness(serialize(model(text)), "", "reference")({"x": np.ones(3, np.float32)})
