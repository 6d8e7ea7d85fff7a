"""Runs one model in the runtime of the interpreter that executes this file.

    python run_model.py onnxruntime|openvino MODEL [INPUTS OUTPUTS]

INPUTS is an .npz with one array per graph input, by name. OUTPUTS becomes an .npz with one array
per graph output, called `0`, `1`, ... in the order of the graph. Without the two the model is only
loaded. The file imports numpy, the runtime and nothing else, because it runs where kvtool is not
installed.
"""

from __future__ import annotations

import sys

import numpy as np


def run_onnxruntime(path: str, feeds: dict[str, np.ndarray] | None) -> list[np.ndarray]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    if feeds is None:
        return []
    # An input that nothing reads is no input of a lowered model either.
    taken = {value.name for value in session.get_inputs()}
    return session.run(None, {name: feeds[name] for name in taken})


def run_openvino(path: str, feeds: dict[str, np.ndarray] | None) -> list[np.ndarray]:
    import openvino

    # Where the processor has bfloat16 units it is the default precision.
    compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    if feeds is None:
        return []
    # An input that a Cast does not change has the name of its result as well.
    taken = {index: value.names & feeds.keys() for index, value in enumerate(compiled.inputs)}
    results = compiled({index: feeds[names.pop()] for index, names in taken.items()})
    return [results[value] for value in compiled.outputs]


def main(runtime: str, path: str, inputs: str | None = None, outputs: str | None = None) -> None:
    run = {"onnxruntime": run_onnxruntime, "openvino": run_openvino}[runtime]
    if inputs is None or outputs is None:
        run(path, None)
        return
    with np.load(inputs) as arrays:
        feeds = {name: arrays[name] for name in arrays.files}
    arrays = run(path, feeds)
    np.savez(outputs, **{str(index): array for index, array in enumerate(arrays)})


if __name__ == "__main__":
    main(*sys.argv[1:])
