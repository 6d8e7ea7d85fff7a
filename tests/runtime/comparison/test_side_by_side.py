"""Which part of a cache must be the same bits, and how much a model's own rounding allows."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from onnx_kvtool.core.model import serialize
from onnx_kvtool.runtime.comparison.compare import Tolerance, tolerance_of
from onnx_kvtool.runtime.comparison.kept import kept_rows
from onnx_kvtool.runtime.comparison.noise import Noise, coarsest_type
from onnx_kvtool.runtime.sessions import open_session
from tests.runtime.recorded import model, native, recorded_run

B, S, D = 2, 5, 3


def test_rows_that_were_not_written_are_kept() -> None:
    past = np.arange(B * S * D, dtype=np.float32).reshape(B, S, D)
    present = past.copy()
    present[0, 1, 2] = present[1, 4, 0] = 99  # one element of each row
    kept = kept_rows(past, present, 1)
    expected = np.ones((B, S, D), bool)
    expected[0, 1], expected[1, 4] = False, False
    np.testing.assert_array_equal(kept, expected)


def test_rows_lie_along_the_axis_given() -> None:
    past = np.zeros((B, D, S, 7), np.float32)
    present = past.copy()
    present[1, 2, 3, 4] = 1
    kept = kept_rows(past, present, 2)
    expected = np.ones(past.shape, bool)
    expected[1, :, 3, :] = False
    np.testing.assert_array_equal(kept, expected)


def test_without_an_axis_a_row_lies_along_the_last_one() -> None:
    past = np.zeros((B, D, S, 7), np.float32)
    present = past.copy()
    present[1, 2, 3, 4] = 1
    kept = kept_rows(past, present, None)
    expected = np.ones(past.shape, bool)
    expected[1, 2, 3] = False
    np.testing.assert_array_equal(kept, expected)


def test_the_rows_that_a_cache_gained_are_not_kept() -> None:
    past = np.ones((B, S, D), np.float32)
    kept = kept_rows(past, np.concatenate([past, past[:, :2]], axis=1), 1)
    assert isinstance(kept, np.ndarray)
    assert kept[:, :S].all()
    assert not kept[:, S:].any()


def test_a_sign_of_zero_is_a_change() -> None:
    past = np.zeros((B, S, D), np.float32)
    assert not np.asarray(kept_rows(past, -past, 1)).any()


@pytest.mark.parametrize(
    "present",
    [
        pytest.param(np.zeros((B, S, D), np.float16), id="another dtype"),
        pytest.param(np.zeros((B, S), np.float32), id="another rank"),
        pytest.param(np.zeros((B, S - 1, D), np.float32), id="a smaller cache"),
    ],
)
def test_what_does_not_fit_is_not_kept(present: np.ndarray) -> None:
    assert kept_rows(np.zeros((B, S, D), np.float32), present, 1) is False


@pytest.mark.parametrize(
    ("source", "dtype"),
    [
        pytest.param(native("llama_static"), ir.DataType.FLOAT, id="float32"),
        pytest.param(native("llama_static_fp16"), ir.DataType.FLOAT16, id="float16"),
        pytest.param(
            model(
                "g (float[N] x) => (float[N] y) { z = Cast <to = 16> (x) y = Cast <to = 1> (z) }"
            ),
            ir.DataType.FLOAT,
            id="types that the model does not state are not guessed",
        ),
    ],
)
def test_a_model_is_as_precise_as_its_coarsest_type(source: ir.Model, dtype: ir.DataType) -> None:
    assert coarsest_type(source) == dtype


def test_a_coarse_type_inside_counts() -> None:
    source = model(
        "g (float[N] x) => (float[N] y) { z = Cast <to = 16> (x) y = Cast <to = 1> (z) }"
    )
    next(iter(source.graph)).outputs[0].type = ir.TensorType(ir.DataType.BFLOAT16)
    assert coarsest_type(source) == ir.DataType.BFLOAT16


def test_a_model_that_only_moves_data_has_no_precision() -> None:
    source = model("g (int64[N] x) => (int64[N] y) { y = Identity (x) }")
    assert coarsest_type(source) is None


NOISY = """
<ir_version: 10, opset_import: ["": 18]>
g (float[N, 64] x) => (float[N, 1] y)
{
  axes = Constant <value_ints = [1]> ()
  big = Constant <value_float = 1000000.0> ()
  mean = ReduceMean (x, axes)
  centred = Sub (x, mean)
  rest = ReduceSum (centred, axes)
  y = Mul (rest, big)
}
"""


def test_noise_is_measured_where_rounding_is_amplified() -> None:
    data = serialize(model(NOISY))
    inputs = {"x": np.random.default_rng(0).normal(size=(3, 64)).astype(np.float32)}
    expected = open_session("onnxruntime", data, "").run(inputs)["y"]
    usual = tolerance_of(expected.dtype)
    wider = Noise(data, "", "onnxruntime").tolerance("y", inputs, expected, usual)
    assert wider is not None
    assert wider.atol > 10 * usual.atol


def test_noise_never_allows_more_than_a_hundred_times_the_usual() -> None:
    data = serialize(model(NOISY))
    inputs = {"x": np.random.default_rng(0).normal(size=(3, 64)).astype(np.float32)}
    nowhere_near = np.full((3, 1), 5.0, np.float32)
    wider = Noise(data, "", "onnxruntime").tolerance(
        "y", inputs, nowhere_near, Tolerance(1e-4, 1e-5)
    )
    assert wider is not None
    assert wider.atol <= 1e-5 + 100 * (1e-5 + 1e-4 * 5.0) * (1 + 1e-9)


def test_a_model_without_noise_has_the_usual_tolerance() -> None:
    data = serialize(native("mobius_block_bias_int64_2d"))
    inputs, outputs = recorded_run("mobius_block_bias_int64_2d")
    noise = Noise(data, "", "onnxruntime")
    bias = outputs["attention_bias"]
    assert noise.tolerance("attention_bias", inputs, bias, Tolerance(1e-4, 1e-5)) is None
