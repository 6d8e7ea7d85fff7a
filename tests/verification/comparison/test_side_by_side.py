"""Which part of a cache must be the same bits, and how much a model's own rounding allows."""

from __future__ import annotations

import numpy as np
import pytest

from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.runtime.sessions import open_session
from onnx_kvtool.verification.comparison.differences import (
    OutputDifference,
    Tolerance,
    kept_rows,
    tolerance_of,
)
from onnx_kvtool.verification.comparison.tolerances import Noise
from tests.runtime.recorded import model, native, recorded_run

B, S, D = 2, 5, 3

Noisy = tuple[OutputDifference, Tolerance] | None


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


def noise_of(apart: np.ndarray | float) -> Noisy:
    """Return what noise says of a B that lies `apart` from what the model gives."""
    data = serialize(model(NOISY))
    inputs = {"x": np.random.default_rng(0).normal(size=(3, 64)).astype(np.float32)}
    a = open_session("onnxruntime", data, "").run(inputs)["y"]
    b = (a + apart).astype(np.float32)
    return Noise(data, "", "onnxruntime").compare("y", inputs, (a, b), tolerance_of(a.dtype))


def test_noise_is_measured_where_rounding_is_amplified() -> None:
    found = noise_of(0.0)
    assert found is not None
    assert found[0].within
    assert found[1].atol > 10 * tolerance_of(np.dtype(np.float32)).atol
    assert "evaluated in another way" in found[1].because


def test_noise_never_allows_more_than_a_hundred_times_the_usual(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a = np.zeros(1000, np.float32)
    rounding = np.random.default_rng(0).uniform(-1, 1, a.shape).astype(np.float32)
    monkeypatch.setattr(Noise, "others", lambda *_: iter([rounding]))

    def found(b: np.ndarray) -> Noisy:
        return Noise(b"", "", "onnxruntime").compare("y", {}, (a, b), Tolerance(1e-4, 1e-5))

    compared = found(rounding * np.float32(0.99e-3))
    assert compared is not None
    assert compared[0].within
    assert found(rounding * np.float32(1.1e-3)) is None


def test_an_offset_of_all_elements_is_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding moves the elements to both sides, and most of them less than the largest."""
    a = np.zeros(1000, np.float32)
    rounding = np.random.default_rng(0).normal(size=a.shape).astype(np.float32)
    monkeypatch.setattr(Noise, "others", lambda *_: iter([rounding]))
    usual = Tolerance(1e-2, 1e-1)

    def found(b: np.ndarray) -> Noisy:
        return Noise(b"", "", "onnxruntime").compare("y", {}, (a, b), usual)

    largest = float(np.abs(rounding).max())
    one = a.copy()
    one[3] = 2.5 * largest
    for right in (rounding[::-1].copy(), 2 * rounding, one):
        compared = found(right)
        assert compared is not None
        assert compared[0].within
    assert found(a + np.float32(2.5 * largest)) is None


def test_a_model_without_noise_has_the_usual_tolerance() -> None:
    data = serialize(native("mobius_block_bias_int64_2d"))
    inputs, outputs = recorded_run("mobius_block_bias_int64_2d")
    bias = outputs["attention_bias"]
    noise = Noise(data, "", "onnxruntime")
    assert noise.compare("attention_bias", inputs, (bias, bias), Tolerance(1e-4, 1e-5)) is None
