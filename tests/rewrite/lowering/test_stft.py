"""STFT-17, for older opsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from onnx_kvtool.commands.lower import lower
from tests.grids import part
from tests.rewrite.lowering.single import check, one_node, refusal

_RNG = np.random.default_rng(43)


def _frames(
    signal: np.ndarray, step: int, length: int, window: np.ndarray | None, onesided: int
) -> np.ndarray:
    """Return what the text says, by numpy's transform in float64."""
    whole = signal[..., 0] + (1j * signal[..., 1] if signal.shape[-1] == 2 else 0)
    count = (whole.shape[1] - length) // step + 1
    rows = np.stack([whole[:, i * step : i * step + length] for i in range(count)], 1)
    result = np.fft.fft(rows * (1 if window is None else window))
    result = result[..., : length // 2 + 1] if onesided else result
    return np.stack([result.real, result.imag], -1)


@part(6)
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "at run time"])
@pytest.mark.parametrize("dims", [None, ["B", "L", 2]], ids=["known", "named"])
@pytest.mark.parametrize("given", ["window", "frame_length", "both"])
@pytest.mark.parametrize("form", ["complex", "real", "onesided"])
@pytest.mark.parametrize("length", [7, 8])
@pytest.mark.parametrize("target", [10, 11, 16])
def test_frames(target: int, length: int, form: str, given: str, dims: Any, constant: bool) -> None:
    signal = _RNG.normal(size=(2, 29, 2 if form == "complex" else 1)).astype(np.float32)
    window = None if given == "frame_length" else _RNG.uniform(0, 1, length).astype(np.float32)
    inputs = {
        "signal": signal,
        "frame_step": np.array(3),
        "window": window,
        "frame_length": None if given == "window" else np.array(length),
    }
    constants = ["frame_step"] + (["frame_length"] if given != "window" else [])
    onesided = int(form == "onesided")
    shapes = None
    if dims is not None:
        shapes = {"signal": [*dims[:2], signal.shape[2]], "window": ["W"]}
    model = one_node(
        "STFT",
        inputs,
        [np.float32],
        opset=17,
        constants=constants if constant else [],
        dims=shapes,
        onesided=onesided,
    )
    expected = _frames(signal, 3, length, window, onesided).astype(np.float32)
    check(model, inputs, target, [expected], rtol=1e-5)


def test_one_frame_is_as_long_as_the_signal() -> None:
    signal = _RNG.normal(size=(2, 12, 1))
    inputs = {"signal": signal, "frame_step": np.array(5)}
    model = one_node("STFT", inputs, [np.float64], opset=17, dims={"signal": ["B", "L", 1]})
    check(model, inputs, 13, [_frames(signal, 5, 12, None, 1)], rtol=1e-12)


@pytest.mark.long
def test_the_file_does_not_hold_a_large_matrix() -> None:
    signal = _RNG.normal(size=(1, 2100, 1)).astype(np.float32)
    inputs = {"signal": signal, "frame_step": np.array(512), "frame_length": np.array(1026)}
    given = {name: inputs.get(name) for name in ("signal", "frame_step", "window", "frame_length")}
    constants = ["frame_step", "frame_length"]
    model = one_node("STFT", given, [np.float32], opset=17, constants=constants)
    expected = _frames(signal, 512, 1026, None, 1).astype(np.float32)
    check(model, given, 13, [expected], rtol=2e-4)
    lowered, _ = lower(ir.from_proto(model), opset=13, verify=False)
    assert sum(value.const_value.size for value in lowered.graph.initializers.values()) < 10_000


@pytest.mark.parametrize("onesided", [0, 1])
def test_as_onnx_reference_has_it(onesided: int) -> None:
    inputs = {
        "signal": _RNG.normal(size=(2, 29, 1)).astype(np.float32),
        "frame_step": np.array(4),
        "window": np.hanning(9).astype(np.float32),
        "frame_length": np.array(9),
    }
    model = one_node("STFT", inputs, [np.float32], opset=17, onesided=onesided)
    check(model, inputs, 13, rtol=1e-5)


@pytest.mark.parametrize(
    ("length", "dims", "code"),
    [
        (8, {"signal": None}, "unknown-dimension"),
        (8, {"signal": ["B", 5029, "C"]}, "unknown-dimension"),
        (5000, None, "too-large"),
    ],
    ids=["an unknown rank", "unknown components", "a long transform"],
)
def test_refused(length: int, dims: Any, code: str) -> None:
    inputs = {
        "signal": np.zeros((2, 5029, 1), np.float32),
        "frame_step": np.array(3),
        "window": None,
        "frame_length": np.array(length),
    }
    model = one_node("STFT", inputs, [np.float32], opset=17, constants=["frame_length"], dims=dims)
    found = refusal(model, 16)
    assert (found.code, found.lowest_opset) == (code, 17)
