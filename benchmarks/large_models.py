"""Whole processes on large models: time and memory beside loading and saving with onnx_ir.

Run it from the checkout:  python -m benchmarks.large_models [--rounds N]

- 20,000 nodes: `kvtool lower --no-verify` beside a process that loads and saves the model with
  onnx_ir, taking turns; the ratio of the medians must stay at or below 2.5.
- 3 GB of weights in a sparse file: the peak memory of `kvtool lower`, which must stay below
  400 MB; the file is not read (its blocks stay unallocated and its access time is unchanged).
- 5,000 to 50,000 nodes: the time per node, which must not grow.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import onnx

from benchmarks.decoders import decoder

_FLOOR = "import sys, onnx_ir as ir; m = ir.load(sys.argv[1]); ir.save(m, sys.argv[1] + '.copy')"
_GIB = 1 << 30


def _run(*command: str) -> tuple[float, float]:
    """Run a process; return its seconds and its peak memory in MB."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command} failed:\n{errors.decode()}")
    return time.perf_counter() - begin, usage.ru_maxrss / 1024


def _lower(model: Path, *options: str) -> tuple[float, float]:
    output = str(model.with_suffix(".lowered.onnx"))
    command = [sys.executable, "-m", "onnx_kvtool", "lower", str(model), "-o", output, *options]
    return _run(*command)


def _many_nodes(directory: Path, rounds: int) -> bool:
    model = directory / "nodes.onnx"
    message = decoder(64, filler=298)
    onnx.save(message, model)
    lowered, floor = [], []
    for _ in range(rounds):
        floor.append(_run(sys.executable, "-c", _FLOOR, str(model)))
        lowered.append(_lower(model, "--no-verify"))
    ratio = statistics.median(t for t, _ in lowered) / statistics.median(t for t, _ in floor)
    print(
        f"{len(message.graph.node)} nodes: lower {statistics.median(t for t, _ in lowered):.2f} s, "
        f"load and save {statistics.median(t for t, _ in floor):.2f} s, ratio {ratio:.2f} "
        f"(limit 2.5); {max(m for _, m in lowered):.0f} MB"
    )
    return ratio <= 2.5


def _large_weights(directory: Path) -> bool:
    model, data = directory / "weights.onnx", directory / "weights.data"
    onnx.save(decoder(16, data_file=data, weight_bytes=3 * _GIB), model)
    before = os.stat(data)
    seconds, memory = _lower(model)
    after = os.stat(data)
    untouched = (before.st_blocks, before.st_atime_ns) == (after.st_blocks, after.st_atime_ns)
    print(
        f"3 GB of weights: lower {seconds:.2f} s, {memory:.0f} MB (limit 400); "
        f"data file {'untouched' if untouched else 'TOUCHED'}"
    )
    return memory < 400 and untouched


def _growth(directory: Path) -> bool:
    per_node = {}
    for layers in (16, 64, 160):
        model = directory / f"growth{layers}.onnx"
        message = decoder(layers, filler=298)
        onnx.save(message, model)
        seconds = min(_lower(model, "--no-verify")[0] for _ in range(2))
        per_node[len(message.graph.node)] = seconds / len(message.graph.node) * 1e6
    print("microseconds per node: " + ", ".join(f"{n}: {t:.0f}" for n, t in per_node.items()))
    return max(list(per_node.values())[1:]) <= 1.2 * per_node[min(per_node)]


def main() -> None:
    """Print the three results; exit 1 when one is beyond its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        results = [
            _many_nodes(directory, arguments.rounds),
            _large_weights(directory),
            _growth(directory),
        ]
    raise SystemExit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
