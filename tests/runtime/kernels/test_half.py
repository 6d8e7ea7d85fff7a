"""float16 by the bits, against the conversions of numpy."""

from __future__ import annotations

import numpy as np
import pytest

from onnx_kvtool.runtime.kernels.conversion.rounding import round_to_half, widen_half

_ALL = np.arange(1 << 16, dtype=np.uint16).view(np.float16)


def test_every_float16_is_widened() -> None:
    assert widen_half(_ALL).tobytes() == _ALL.astype(np.float32).tobytes()
    assert widen_half(_ALL.reshape(256, 256).T)[3, 1] == np.float32(_ALL[259])
    assert widen_half(np.asarray(1.5, np.float16)).shape == ()


def _between() -> np.ndarray:
    finite = np.sort(_ALL[np.isfinite(_ALL)].astype(np.float32))
    return (finite[:-1] + finite[1:]) / 2


@pytest.mark.parametrize(
    "values",
    [
        _ALL.astype(np.float32),
        _between(),
        np.nextafter(_between(), np.float32(np.inf)),
        np.nextafter(_between(), np.float32(-np.inf)),
        np.array([65504, 65519.996, 65520, 65536, 1e38, np.inf, 1e-45, -1e-45, -0.0], np.float32),
        -np.array([65504, 65519.996, 65520, 65536, 1e38, np.inf, np.nan], np.float32),
        np.random.default_rng(5).integers(0, 1 << 32, 1 << 18, np.uint32).view(np.float32),
    ],
    ids=["float16 itself", "ties", "above ties", "below ties", "edges", "negative edges", "any"],
)
def test_rounding_is_that_of_numpy(values: np.ndarray) -> None:
    values = np.resize(values, max(1024, values.size))  # of few numbers, numpy does it
    with np.errstate(all="ignore"):
        expected = values.astype(np.float16).astype(np.float32)
        got = round_to_half(values)
    assert np.array_equal(got, expected, equal_nan=True)
    number = ~np.isnan(expected)
    assert np.array_equal(np.signbit(got[number]), np.signbit(expected[number]))
