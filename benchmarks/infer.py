"""`kvtool infer` on 20,000 nodes, beside onnx's own inference plus load and save.

Run it from the checkout:  python -m benchmarks.infer [--rounds N]

Whole processes, which take turns. The floor is a process that loads the model with onnx_ir, which
is the form that kvtool works on, runs onnx's inference with data propagation and saves the result;
the ratio, in processor time, must stay at or below 3. The same with protobuf alone is printed for
comparison: half of what kvtool takes is importing onnx_ir and holding the model in it.

The same for a model in which an unknown operator stops onnx's inference at the start, so that every
shape is found by kvtool's own pass; and the time per node for 5,000 to 50,000 nodes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx
from onnx import helper

from benchmarks.decoders import decoder

_PROTOBUF = """
import sys, onnx
model = onnx.shape_inference.infer_shapes(onnx.load(sys.argv[1]), data_prop=True)
onnx.save(model, sys.argv[1] + ".copy")
"""
_ONNX_IR = """
import sys, onnx, onnx_ir as ir
model = ir.to_proto(ir.load(sys.argv[1]))
model = onnx.shape_inference.infer_shapes(model, data_prop=True)
onnx.save(model, sys.argv[1] + ".copy")
"""


def _seconds(*arguments: str) -> float:
    """Run Python with these arguments; return the processor time of the process."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{arguments} failed")
    return usage.ru_utime + usage.ru_stime


def _infer(path: Path) -> float:
    return _seconds("-m", "onnx_kvtool", "infer", str(path), "-o", f"{path}.inferred")


def _stopped(model: onnx.ModelProto) -> onnx.ModelProto:
    """Put an operator that onnx does not know before the first node; its output is declared."""
    node = helper.make_node("Odd", ["hidden_states"], ["odd"], name="odd", domain="my")
    for other in model.graph.node:
        for index, name in enumerate(other.input):
            if name == "hidden_states":
                other.input[index] = "odd"
    model.graph.node.insert(0, node)
    (given,) = [value for value in model.graph.input if value.name == "hidden_states"]
    declared = model.graph.value_info.add()
    declared.CopyFrom(given)
    declared.name = "odd"
    model.opset_import.add(domain="my", version=1)
    return model


def _compare(path: Path, name: str, rounds: int) -> float:
    runs = [
        (_seconds("-c", _PROTOBUF, str(path)), _seconds("-c", _ONNX_IR, str(path)), _infer(path))
        for _ in range(rounds)
    ]
    protobuf, onnx_ir, kvtool = (statistics.median(column) for column in zip(*runs, strict=True))
    print(
        f"{name}: kvtool {kvtool:.2f} s; onnx_ir with onnx's inference {onnx_ir:.2f} s, "
        f"ratio {kvtool / onnx_ir:.2f} (limit 3); protobuf with onnx's inference "
        f"{protobuf:.2f} s, ratio {kvtool / protobuf:.2f}"
    )
    return kvtool / onnx_ir


def main() -> None:
    """Print the ratios; exit 1 when the first is beyond its limit or the time per node grows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "model.onnx"
        onnx.save(decoder(64, filler=298), path)
        ratio = _compare(path, "20,000 nodes", rounds)
        onnx.save(_stopped(decoder(64, filler=298)), path)
        _compare(path, "behind an unknown operator", rounds)
        per_node = {}
        for layers in (16, 64, 160):
            message = decoder(layers, filler=298)
            onnx.save(message, path)
            count = len(message.graph.node)
            per_node[count] = min(_infer(path) for _ in range(2)) / count * 1e6
        print("microseconds per node: " + ", ".join(f"{n}: {t:.0f}" for n, t in per_node.items()))
    grows = max(per_node.values()) > 1.2 * per_node[min(per_node)]
    raise SystemExit(1 if ratio > 3 or grows else 0)


if __name__ == "__main__":
    main()
