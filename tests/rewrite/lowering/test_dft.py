"""DFT for older opsets."""

from __future__ import annotations

import numpy as np
import pytest

from tests.grids import part
from tests.rewrite.lowering.single import check, one_node, refusal

_RNG = np.random.default_rng(37)


def _parts(values: np.ndarray) -> np.ndarray:
    return np.stack([values.real, values.imag], -1).astype(np.float32)


@part(6)
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "at run time"])
@pytest.mark.parametrize("target", [9, 10, 11, 17])
@pytest.mark.parametrize("length", [None, 3, 7])
@pytest.mark.parametrize("axis", [0, 1, -2])
@pytest.mark.parametrize("form", ["complex", "real", "onesided", "inverse", "half"])
def test_transforms(form: str, axis: int, length: int | None, target: int, constant: bool) -> None:
    if form == "half" and target == 17:
        length = None  # with a length, onnxruntime 1.31 transforms half a spectrum otherwise
    real, imaginary = _RNG.normal(size=(2, 4, 5))
    place = 1 if axis == -2 else axis
    signal = real if form in ("real", "onesided") else real + 1j * imaginary
    transform = {
        "complex": np.fft.fft,
        "real": np.fft.fft,
        "onesided": np.fft.rfft,
        "inverse": np.fft.ifft,
        "half": np.fft.irfft,
    }[form]
    result = transform(signal, length, place)
    expected = _parts(result) if form != "half" else result[..., None].astype(np.float32)
    data = _parts(signal) if form not in ("real", "onesided") else signal[..., None]
    inputs = {
        "input": data.astype(np.float32),
        "dft_length": None if length is None else np.array(length),
        "axis": np.array(axis),
    }
    constants = [n for n in ("dft_length", "axis") if inputs[n] is not None]
    if not constant:
        constants.remove("axis")
    model = one_node(
        "DFT",
        inputs,
        [np.float32],
        opset=20,
        constants=constants,
        inverse=int(form in ("inverse", "half")),
        onesided=int(form in ("onesided", "half")),
    )
    check(model, inputs, target, [expected], rtol=1e-5)


def test_the_default_axis_is_written_out() -> None:
    inputs = {"input": _RNG.normal(size=(2, 3, 5, 1)).astype(np.float32)}
    expected = _parts(np.fft.fft(inputs["input"][..., 0], axis=2))
    check(one_node("DFT", inputs, [np.float32], opset=20), inputs, 19, [expected], rtol=1e-5)


@pytest.mark.parametrize(
    ("dims", "code"),
    [(None, "unknown-rank"), (["B", "N", 1], "unknown-dimension")],
    ids=["an unknown rank", "an unknown length"],
)
def test_refused_below_17(dims: list[int | str] | None, code: str) -> None:
    inputs = {"input": np.zeros((2, 3, 1), np.float32)}
    found = refusal(one_node("DFT", inputs, [np.float32], opset=17, dims={"input": dims}), 16)
    assert (found.code, found.lowest_opset) == (code, 17)


def test_a_long_transform_is_refused() -> None:
    inputs = {"input": np.zeros((1, 2000, 1), np.float32)}
    found = refusal(one_node("DFT", inputs, [np.float32], opset=17), 16)
    assert (found.code, found.lowest_opset) == ("too-large", 17)


def test_the_lowest_opset_may_be_one_where_branches_differ_in_shape() -> None:
    data, axis = np.zeros((2, 5, 7, 1), np.float32), np.array(1, np.int64)
    inputs = {"input": data, "dft_length": None, "axis": axis}
    dims = {"input": ["batch", "rows", "columns", 1]}
    model = one_node("DFT", inputs, [np.float32], opset=20, dims=dims, onesided=1)
    for target in (9, 12):
        found = refusal(model, target)
        assert (found.code, found.lowest_opset) == ("unknown-dimension", 17), target
