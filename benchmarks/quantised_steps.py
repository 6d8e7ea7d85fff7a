"""Quantised decoders of 4 layers, lowered beside native: `python -m benchmarks.quantised_steps`.

Prints the numbers of the page of `kvtool lower`: a decode step at a context of 100 and a prompt of
512, in one thread of onnxruntime, caches bound in place, the sessions in turns; ratios of the time
of the processor, medians over the steps.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import onnxruntime as ort

import onnx_kvtool as kv
from benchmarks.real_models.configuration import CONFIGURATIONS
from benchmarks.real_models.writer import write
from onnx_kvtool.model_io.model import write as write_model

_CONTEXT, _STEPS, _PROMPT, _PROMPTS = 100, 24, 512, 2
_SMALL = replace(CONFIGURATIONS["16-layers-qdq-int8"], layers=4, capacity=1024, batch=1)
_CASES = {
    "int4 in blocks of 32": (replace(_SMALL, quantisation="dq-int4"), (22, 18, 13)),
    "int8 per channel, activations of uint8": (_SMALL, (18, 13, 11)),
}
_DTYPES = {"tensor(float)": np.float32, "tensor(int32)": np.int32, "tensor(int64)": np.int64}


class _Decoder:
    """A session on one thread whose caches are updated in place."""

    def __init__(self, path: Path) -> None:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        self._session = ort.InferenceSession(str(path), options)
        self._binding = self._session.io_binding()
        self._caches = []
        for port in self._session.get_inputs():
            if "cache" in port.name:
                cache = ort.OrtValue.ortvalue_from_numpy(np.zeros(port.shape, _DTYPES[port.type]))
                self._caches.append(cache)
                self._binding.bind_ortvalue_input(port.name, cache)
                self._binding.bind_ortvalue_output(f"updated_{port.name}", cache)

    def step(self, length: int, start: int) -> float:
        """Run tokens from a position on; return the seconds of the processor."""
        values = {
            "input_ids": np.full((1, length), 5),
            "position_ids": np.arange(start, start + length)[None],
            "write_indices": np.array([start]),
            "nonpad_kv_seqlen": np.array([start + length]),
        }
        for port in self._session.get_inputs():
            if "cache" not in port.name:
                value = values[port.name].astype(_DTYPES[port.type])
                self._binding.bind_cpu_input(port.name, value)
        self._binding.bind_output("logits")
        began = time.process_time()
        self._session.run_with_iobinding(self._binding)
        return time.process_time() - began


def _ratios(paths: Mapping[str, Path]) -> dict[str, tuple[float, float]]:
    """Return the ratio of a decode step and that of a prompt, to the native model."""
    decoders = {name: _Decoder(path) for name, path in paths.items()}
    steps: dict[str, list[float]] = {name: [] for name in decoders}
    prompts: dict[str, list[float]] = {name: [] for name in decoders}
    for decoder in decoders.values():
        decoder.step(_CONTEXT, 0)
    for index in range(_STEPS):
        for name, decoder in decoders.items():
            steps[name].append(decoder.step(1, _CONTEXT + index))
    for _ in range(_PROMPTS):
        for name, decoder in decoders.items():
            prompts[name].append(decoder.step(_PROMPT, 0))
    return {
        name: (
            median(own / native for own, native in zip(steps[name], steps["native"], strict=True)),
            min(prompts[name]) / min(prompts["native"]),
        )
        for name in decoders
    }


def main() -> None:
    """Build, lower, measure and print."""
    for weights, (configuration, opsets) in _CASES.items():
        with tempfile.TemporaryDirectory() as directory:
            source = write(configuration, Path(directory))
            paths = {"native": source}
            for opset in opsets:
                lowered, _ = kv.lower(source, opset=opset, verify=False)
                paths[str(opset)] = source.with_name(f"lowered{opset}.onnx")
                write_model(lowered, paths[str(opset)])
            for opset, (step, prompt) in _ratios(paths).items():
                print(f"| {weights} | {opset} | {step:.2f} | {prompt:.2f} |", flush=True)


if __name__ == "__main__":
    main()
