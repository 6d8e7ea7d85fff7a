"""Times steps of a decoder in OpenVINO; runs where kvtool is not installed.

    python run_openvino.py MODEL ROUNDS LENGTH START [LENGTH START ...]

Prints the median milliseconds of processor time of each kind of step, as JSON. The interpreter has
numpy and openvino.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import numpy as np
import openvino

_SIZES = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": "1"}


def main(path: str, rounds: int, *steps: int) -> None:
    settings = {**_SIZES, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(path, "CPU", settings)
    pairs = [(steps[i], steps[i + 1]) for i in range(0, len(steps), 2)]
    print(json.dumps([_step(compiled, rounds, *pair) for pair in pairs]))


def _step(compiled: openvino.CompiledModel, rounds: int, length: int, start: int) -> float:
    request = compiled.create_infer_request()
    tokens = np.arange(start, start + length)[None]
    given = {
        "input_ids": tokens % 1000,
        "position_ids": tokens,
        "write_indices": np.array([start]),
        "nonpad_kv_seqlen": np.array([start + length]),
    }
    rng = np.random.default_rng(0)
    outputs = {value.any_name: value for value in compiled.outputs}
    caches = {}
    for value in compiled.inputs:
        name = value.any_name
        if name in given:
            request.set_tensor(value, openvino.Tensor(given[name].astype(np.int64)))
            continue
        dims = [dim.get_length() for dim in value.partial_shape]
        dtype = value.element_type.to_dtype()
        pair = [openvino.Tensor(rng.standard_normal(dims).astype(dtype)) for _ in range(2)]
        caches[value] = (outputs[f"updated_{name}"], pair)
    times = []
    for turn in range(rounds + 1):
        for value, (output, pair) in caches.items():
            request.set_tensor(value, pair[turn % 2])
            request.set_tensor(output, pair[1 - turn % 2])
        begin = time.process_time()
        request.infer()
        times.append(time.process_time() - begin)
    return statistics.median(times[1:]) * 1e3


if __name__ == "__main__":
    main(sys.argv[1], *(int(argument) for argument in sys.argv[2:]))
